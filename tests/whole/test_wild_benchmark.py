"""The benchmark of public repositories: its cases are complete, and a small repository is recorded and scored."""

from __future__ import annotations

import hashlib
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import yaml
from wild.__main__ import Result, results, shown, totals
from wild.cases import EQUAL, FAULT, ROUNDING, Case, Repository, repositories
from wild.record import USUAL, RecordingError, record

ALL = list(repositories())
PROGRAM = """\
import torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    x = torch.randn(3, 4)
    loss = torch.nn.functional.softplus(model(x), beta=1.0).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
FAULTY = {"beta": ("beta=1.0", "beta=2.0"), "rate": ("lr=0.1", "lr=0.2")}


def test_the_cases_are_many_enough() -> None:
    cases = [case for repository in ALL for case in repository.cases]
    count = {kind: sum(case.kind == kind for case in cases) for kind in (FAULT, EQUAL, ROUNDING)}
    assert len(ALL) >= 20 and count[FAULT] >= 40 and count[EQUAL] >= 20 and count[ROUNDING] >= 10
    assert len(cases) == sum(count.values()), "a case of another kind"
    halves = [repository.half for repository in ALL]
    assert halves.count("known") == halves.count("frozen")


@pytest.mark.parametrize("repository", ALL, ids=lambda repository: repository.directory)
def test_a_repository_is_complete(repository: Repository) -> None:
    assert re.fullmatch(r"[0-9a-f]{40}", repository.commit)
    assert repository.files and all(re.fullmatch(r"[0-9a-f]{64}", value) for value in repository.files.values())
    assert repository.patches.name == repository.directory
    names = [case.name for case in repository.cases]
    assert len(set(names)) == len(names)
    used = {case.patch.name for case in repository.cases if case.patch} | {"base.patch", "debugger.patch"}
    stored = {file.name for file in repository.patches.glob("*.patch")}
    assert stored <= used and used - stored <= {"debugger.patch"}
    for case in repository.cases:
        assert bool(case.named_by) is bool(case.like) is (case.kind == FAULT), case.name
        for alternative in case.named_by:
            assert alternative.keys() <= {"op", "where", "module", "says"} and alternative, case.name
            for pattern in alternative.values():
                re.compile(pattern)


# -- a repository of its own -------------------------------------------------------------------------------


def diff(before: str, after: str, directory: Path) -> str:
    """The patch from a text to another, for the file ``train.py``."""
    for name, text in (("a", before), ("b", after)):
        (directory / name).mkdir(exist_ok=True)
        (directory / name / "train.py").write_text(text)
    command = ["git", "diff", "--no-index", "--no-prefix", "a/train.py", "b/train.py"]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True).stdout


@pytest.fixture
def small(tmp_path: Path) -> Repository:
    """A repository with two faults and an equal pair, below ``tmp_path / "checkouts"``."""
    original = PROGRAM.replace("range(2)", "range(2000)")
    checkout, cases = tmp_path / "checkouts" / "me+small", tmp_path / "cases" / "me+small"
    checkout.mkdir(parents=True)
    cases.mkdir(parents=True)
    (checkout / "train.py").write_text(original)
    (cases / "base.patch").write_text(diff(original, PROGRAM, tmp_path))
    described: list[dict[str, Any]] = [{"name": "same", "kind": EQUAL}]
    for name, (right, wrong) in FAULTY.items():
        (cases / f"{name}.patch").write_text(diff(PROGRAM, PROGRAM.replace(right, wrong), tmp_path))
        described.append(
            {
                "name": name,
                "kind": FAULT,
                "patch": f"{name}.patch",
                "like": "…",
                "named_by": [{"says": name if name == "beta" else "lr"}],
            }
        )
    content = {
        "repository": "me/small", "commit": "0" * 40, "half": "known", "command": ["train.py"], "modules": ["torch"],
        "files": {"train.py": hashlib.sha256(original.encode()).hexdigest()}, "cases": described,
    }  # fmt: skip
    (cases / "wild.yaml").write_text(yaml.safe_dump(content))
    (found,) = repositories(tmp_path / "cases")
    return found


def test_a_repository_is_recorded_and_scored(small: Repository, tmp_path: Path) -> None:
    checkouts = tmp_path / "checkouts"
    assert small.obstacle(checkouts) == ""
    found = list(results(small, [USUAL], checkouts, tmp_path / "work"))
    assert {(one.case.name, one.task): one.word for one in found} == {
        (name, task): word
        for name, word in (("same", "agree"), ("beta", "right"), ("rate", "right"))
        for task in ("tensor", "statistics")
    }, [line for one in found for line in shown(one)]
    assert not any(one.false for one in found)
    assert "faults: 4 right of 4" in totals(found)
    marks = sorted((tmp_path / "work").rglob("*-done.txt"))
    times = [mark.stat().st_mtime_ns for mark in marks]
    assert len(list(results(small, [USUAL], checkouts, tmp_path / "work"))) == 6
    assert [mark.stat().st_mtime_ns for mark in marks] == times, "recordings are used again"


def test_what_keeps_a_repository_from_running_is_named(small: Repository, tmp_path: Path) -> None:
    assert small.obstacle(tmp_path / "elsewhere") == "no checkout"
    (tmp_path / "checkouts" / "me+small" / "train.py").write_text("pass")
    assert small.obstacle(tmp_path / "checkouts").startswith("train.py is not that of commit 0000")


def test_a_program_that_fails_is_no_result(small: Repository, tmp_path: Path) -> None:
    broken = Case("broken", FAULT, small.cases[1].patch)
    assert broken.patch is not None
    broken.patch.write_text("no patch")
    with pytest.raises(RecordingError, match=r"beta\.patch"):
        record(small, broken, USUAL, "tensor", tmp_path / "checkouts", tmp_path / "run", "")


@pytest.mark.parametrize(
    "kind, verdict, causes, rank, word",
    [
        (FAULT, "DIVERGED", ["a"], 1, "right"), (FAULT, "DIVERGED", ["a", "b"], 2, "near"),
        (FAULT, "DIVERGED", ["a"], 0, "WRONG"), (FAULT, "AGREE", [], 0, "SILENT"), (EQUAL, "AGREE", [], 0, "agree"),
        (ROUNDING, "CANNOT TELL", ["a"], 0, "CANNOT TELL"), (ROUNDING, "DIVERGED", ["a"], 0, "ALARM"),
    ],
)  # fmt: skip
def test_words(small: Repository, kind: str, verdict: str, causes: Any, rank: int, word: str) -> None:
    assert Result(small, Case("a", kind), USUAL, "tensor", verdict, causes, rank).word == word
