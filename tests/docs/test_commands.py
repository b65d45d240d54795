"""Every command of every page: run here, run by the test of its page, or in need of what a test lacks."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from test_pages import PAGES, ROOT, blocks

OWN_TEST = {
    "checkpoints.md": "test_checkpoints_page.py",
    "comparing.md": "test_pages.py",
    "config-check.md": "test_config_check_page.py",
    "diagnosis.md": "test_reference_page.py",
    "merging.md": "test_merge_result.py",
    "metric-plugin.md": "test_pages.py",
    "plugins.md": "test_plugins_page.py",
    "gradients.md": "test_gradients_page.py",
    "monitor.md": "test_monitor_page.py",
    "recorder-plugin.md": "test_pages.py",
    "online.md": "test_online_page.py",
    "recording.md": "test_recording_page.py",
    "runner-plugin.md": "test_pages.py",
    "tutorial.md": "test_tutorial_page.py",
    "against.md": "test_against_page.py",
    "launchers.md": "test_launchers_page.py",
    "workflow.md": "test_workflow_page.py",
}
"""Pages whose commands a test of their own runs, all of them."""

ELSEWHERE = {
    r"python3 make\.py|MSPROBES=": "the verbs of the repository, which run tests and benchmarks",
    r"pip install|python3 -m venv|\. probe-env": "sets up an environment; `make.py wheels` does it",
    r"dask |.*--executor dask": "a cluster; the test of the executor starts one",
    r".*run_ut --framework mindspore": "MindSpore; the tests in with_mindspore run it",
    r"probe multi-run-ut .*-d 0 1 2 3": "four devices",
    r"probe api.precision.compare": "the result of two machines; its own test has one",
    r"probe show": "needs the page of an earlier command; tests/plugins/page/test_overview.py runs it",
    r"probe demo": "writes below probe-demo, which other commands read; tests/core/cli/test_main.py runs it",
    r"probe merge.result .* --page": "the results of several ranks; tests/plugins/page/test_merged.py has them",
    r"probe run-ut --listen|probe run --send-to": "two ends at once; test_online_page.py runs them",
    r"probe run --keep-last": "test_keep_last_page.py runs it with a script",
    r"probe run -o mine": "test_recording_page.py and test_how_to_page.py run it",
    r"probe run -o (old|new) train\.py|probe compare new old": "test_tutorial_page.py runs it with a script",
    r".* -i compare\.json": "test_pages.py runs it with the files of msprobe 8.3",
}
"""Commands that need other hardware, an installation or time, by a pattern of how they begin."""


def commands(page: Path) -> dict[str, int]:
    """The commands on a page without comments, each with its exit code: 0 unless its comment says another."""
    lines = [line for block in blocks(page, "bash") for line in block.splitlines() if line.strip()]
    parts = [(line.partition("  #")[0].strip(), re.search(r"# exits with (\d+)", line)) for line in lines]
    return {line: int(told[1]) if told else 0 for line, told in parts}


def here() -> list[Any]:
    """The commands that are run by the test below: each once, named after the first page that has it."""
    found = {}
    for page in PAGES:
        for line, code in commands(page).items() if page.name not in OWN_TEST else ():
            if not any(re.match(pattern, line) for pattern in ELSEWHERE):
                found.setdefault(line, pytest.param(line, code, id=f"{page.name}-{line}"))
    return [*found.values()]


@pytest.mark.parametrize("line, code", here())
def test_a_command_runs(line: str, code: int, room: Path, probe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(room)
    assert probe(*shlex.split(line)[1:]) == code, probe.err


def test_the_pages_with_a_test_of_their_own_are_there() -> None:
    assert set(OWN_TEST) <= {page.name for page in PAGES}


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if ">>> " in page.read_text("utf-8")],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_the_worked_examples_are_right(page: Path) -> None:
    assert doctest.testfile(str(page), module_relative=False, encoding="utf-8").failed == 0


def test_the_forms_for_issues_and_the_settings_for_pre_commit_are_valid(probe: Any) -> None:
    import yaml

    forms = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml"))
    assert len(forms) == 3
    for form in forms:
        fields = yaml.safe_load(form.read_text("utf-8"))
        assert fields["name"] and fields["description"] and all("label" in f["attributes"] for f in fields["body"])
    assert probe("plugins", "--json") == 0  # what the forms ask for
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"]
    assert [hook["id"] for hook in repository["hooks"]] == ["ruff", "ruff-format", "mypy"]
