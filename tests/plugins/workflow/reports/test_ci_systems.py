from __future__ import annotations

import json
from pathlib import Path

import pytest
from probe_workflow.reports.annotations import Annotation, AnnotationLevel
from probe_workflow.reports.ci_systems import (
    CiSystem,
    detect_ci_system,
    find_root,
    format_azure,
    format_code_quality,
    format_github,
    neutralize_commands,
    show_annotations,
)

HOSTILE = "a%b\r\n::error::x,y:z;w]##vso[task.complete result=Succeeded]\x1b[31m\u202e"


def annotation(message: str = "differs", file: str = "a/train.py", line: int = 7) -> Annotation:
    return Annotation(AnnotationLevel.ERROR, message, file, line, "key")


def test_ci_systems_are_detected_by_their_variables() -> None:
    assert detect_ci_system({"GITHUB_ACTIONS": "true"}) is CiSystem.GITHUB
    assert detect_ci_system({"TF_BUILD": "True"}) is CiSystem.AZURE
    assert detect_ci_system({"GITLAB_CI": "true"}) is CiSystem.NONE
    assert detect_ci_system({}) is CiSystem.NONE


def test_the_root_is_that_of_the_ci_system_or_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_root({}) == Path.cwd()
    for name in ("GITHUB_WORKSPACE", "BUILD_SOURCESDIRECTORY", "CI_PROJECT_DIR"):
        assert find_root({name: "/builds/mine"}) == Path("/builds/mine")


def test_github_gets_a_workflow_command() -> None:
    assert format_github(annotation()) == "::error file=a/train.py,line=7,title=probe check::differs"
    assert format_github(annotation(file="")) == "::error title=probe check::differs"


def test_azure_gets_a_logging_command() -> None:
    expected = "##vso[task.logissue type=error;sourcepath=a/train.py;linenumber=7]differs"
    assert format_azure(annotation()) == expected


def test_hostile_names_stay_within_their_command() -> None:
    command = format_github(annotation(HOSTILE, HOSTILE))
    properties, message = command.removeprefix("::error ").split("::", 1)
    assert "\n" not in command and "\r" not in command and "\x1b" not in command
    assert "a%25b" in properties and properties.count(",") == 2 and ":" not in properties
    assert message.startswith("a%25b")
    command = format_azure(annotation(HOSTILE, HOSTILE))
    assert "\n" not in command and "\r" not in command
    assert command.count("]") == 1 and command.partition("]")[0].count(";") == 2


def test_gitlab_gets_issues_with_a_path_and_distinct_fingerprints() -> None:
    issues = json.loads(format_code_quality([annotation(), annotation(HOSTILE, "", 0)], Path("golden")))
    assert issues[0]["location"] == {"path": "a/train.py", "lines": {"begin": 7}}
    assert issues[1]["location"] == {"path": "golden", "lines": {"begin": 1}}
    assert len({issue["fingerprint"] for issue in issues}) == 2
    assert format_code_quality([], Path("golden")) == "[]\n"


def test_nothing_is_printed_outside_of_a_ci_system(capsys: pytest.CaptureFixture[str]) -> None:
    show_annotations([annotation()], CiSystem.NONE)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("system", [CiSystem.GITHUB, CiSystem.AZURE])
def test_printed_names_are_no_commands(system: CiSystem, capsys: pytest.CaptureFixture[str]) -> None:
    with neutralize_commands(system):
        print("##vso[task.complete]\n::set-output name=a::b")
    lines = capsys.readouterr().out.splitlines()
    assert "##vso" not in "".join(lines)
    if system is CiSystem.GITHUB:
        token = lines[0].removeprefix("::stop-commands::")
        assert lines[-1] == f"::{token}::" and "::set-output name=a::b" in lines[1:-1]


def test_the_text_is_printed_although_the_block_fails(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="broken"), neutralize_commands(CiSystem.AZURE):
        print("text")
        raise ValueError("broken")
    assert capsys.readouterr().out == "text\n"
