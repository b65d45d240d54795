"""Claims of the page on finding the commit that changed the numbers, run."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from probe_recording.settings.recorded_settings import REPEATED_FIELDS, REPEATED_SECTION_FIELDS
from probe_workflow import recording
from probe_workflow.exit_codes import CheckCode
from probe_workflow.recording import RecordedScript, RecordingEnd
from probe_workflow.reports.annotations import Annotation, AnnotationLevel
from probe_workflow.reports.ci_systems import ROOT_VARIABLES, CiSystem
from support.programs.preloaded import PreloadedPopen
from test_pages import ROOT, blocks

PAGE = ROOT / "docs" / "workflow.md"
TEXT = PAGE.read_text("utf-8")
SCRIPT = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Softmax(-1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(2, 4)).square().sum().backward()
optimizer.step()
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git repository with a script, whose tag v1.2 computes other numbers than its branch main."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(recording.subprocess, "Popen", PreloadedPopen)
    for name in ("GITHUB_ACTIONS", "TF_BUILD", *ROOT_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / ".gitignore").write_text("golden\nbad\n")
    git("init", "-q", "-b", "main")
    for number, scale in enumerate((-1, -1, 0)):
        (tmp_path / "train.py").write_text(SCRIPT.replace("(-1)", f"({scale})") + f"# {number}\n")
        git("add", ".")
        git("commit", "-q", "-m", f"Change {number}")
        if not number:
            git("tag", "v1.2")
    return tmp_path


def git(*arguments: str) -> str:
    """Run git without the user's configuration."""
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    command = ["git", "-c", "user.name=probe", "-c", "user.email=probe@localhost", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def commands() -> list[list[str]]:
    """The commands of the page, with the interpreter of the tests."""
    lines = [line for block in blocks(PAGE, "bash") for line in block.splitlines() if line]
    python = {"python": sys.executable}
    return [[python.get(word, word) for word in shlex.split(line)] for line in lines]


def test_the_commands_of_the_page_find_the_commit(here: Path, probe: Any) -> None:
    record, check, start, run, ci = commands()
    git("checkout", "-q", "v1.2")
    assert probe(*record[1:]) == 0, probe.err
    assert probe(*check[1:]) == 0, probe.err
    git("checkout", "-q", "main")
    assert probe(*("bad" if word == "golden" else word for word in record[1:])) == 0, probe.err
    assert probe(*ci[1:]) == 1
    assert Path("check.xml").exists() and Path("check.md").exists()
    git(*start[1:])
    check = run[3:]
    assert run[:3] == ["git", "bisect", "run"] and check[0] == "probe"
    program = f"import sys; from probe_core.cli.main import main; main({check[1:]!r})"
    git("bisect", "run", sys.executable, "-c", program)
    assert f"# first bad commit: [{git('rev-parse', 'main').strip()}]" in git("bisect", "log")


def test_the_page_lists_all_exit_codes_settings_and_members() -> None:
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", TEXT, re.MULTILINE)}
    assert listed == set(CheckCode)
    assert all(f"`{name}`" in TEXT for name in (*REPEATED_FIELDS, *REPEATED_SECTION_FIELDS, *ROOT_VARIABLES))
    names = [field.name for kind in (RecordedScript, Annotation) for field in dataclasses.fields(kind)]
    values = [member.value for kind in (RecordingEnd, AnnotationLevel, CiSystem) for member in kind]
    codes = [code.name.lower() for code in CheckCode]
    assert [name for name in (*names, *values, *codes) if f"`{name}`" not in TEXT] == []


def test_the_json_has_the_members_of_the_page(here: Path, probe: Any) -> None:
    assert probe(*commands()[0][1:]) == 0, probe.err
    assert probe("check", "golden", "--json", "--", sys.executable, "train.py") == 0, probe.err
    table = TEXT[TEXT.index("| member |") : TEXT.index("## Settings")]
    members = {
        name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    assert json.loads(probe.out).keys() == members
