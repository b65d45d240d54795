"""``git bisect run probe check`` on generated repositories; ``python3 make.py bench bisection`` does ten of 64 commits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bisection.__main__ import measure
from bisection.program import BROKEN_LINES, CHANGES
from bisection.repository import SCRIPT_NAME, GeneratedRepository, generate, git
from probe_workflow import recording
from support.programs.preloaded import PreloadedPopen

ANSWERS = {0: "good", 1: "bad", 125: "skip"}
"""The exit codes of checks that end as planned, each with the word that ``git bisect run`` takes it for."""


@pytest.fixture(autouse=True)
def _no_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_ACTIONS", "TF_BUILD"):
        monkeypatch.delenv(name, raising=False)


def bisect_here(repository: GeneratedRepository, golden: Path, probe: Any) -> str:
    """Bisect as ``git bisect run`` does, with checks in this process; return what git says last."""
    good, bad = repository.commits[0], repository.commits[-1]
    git(repository.path, "checkout", "-q", good)
    assert probe("run", "-o", golden, "--step", "0,1", SCRIPT_NAME) == 0, probe.err
    git(repository.path, "bisect", "start", bad, good)
    said = ""
    while "is the first bad commit" not in said:
        code = probe("check", golden, "--", sys.executable, SCRIPT_NAME)
        said = git(repository.path, "bisect", ANSWERS[code])
    return said


def test_a_bisection_ends_at_the_planted_commit_and_skips_broken_ones(
    tmp_path: Path, probe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording.subprocess, "Popen", PreloadedPopen)
    repository = generate(tmp_path / "repository", CHANGES[0], 1, 16, BROKEN_LINES[:4])
    monkeypatch.chdir(repository.path)
    said = bisect_here(repository, tmp_path / "golden", probe)
    assert said.startswith(repository.commits[repository.planted])


def test_broken_lines_end_the_script(tmp_path: Path) -> None:
    for line in BROKEN_LINES:
        script = tmp_path / "train.py"
        script.write_text(f"class torch:\n    __version__ = ''\n{line}\n")
        assert subprocess.run([sys.executable, script], capture_output=True).returncode, line


def test_a_repository_is_generated_the_same_way_again(tmp_path: Path) -> None:
    first, second = (generate(tmp_path / name, CHANGES[1], 1, 12, BROKEN_LINES[:3]) for name in "ab")
    assert first.commits == second.commits and len(first.broken) == 3
    before, after = (
        git(first.path, "show", f"{first.commits[first.planted + move]}:{SCRIPT_NAME}") for move in (-1, 0)
    )
    assert CHANGES[1].old in before and CHANGES[1].new in after


@pytest.mark.slow
def test_a_bisection_of_64_commits_ends_at_the_planted_commit(tmp_path: Path) -> None:
    assert measure(CHANGES[4], 0, tmp_path)
