"""Runs of many ranks, written by hand, and the results of comparing them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from probe_core import engine
from support.runs.recorded import forward, tensor, write_run

STAMP = "20260101000000"
FORMATS = ("--format", "xlsx,csv,jsonl")
GOOD = {f"Torch.exp.{n}.forward": forward(tensor(), output=[tensor()]) for n in range(3)}
OFF = {**GOOD, "Torch.exp.1.forward": forward(tensor(), output=[tensor(value=9.0)])}
Pair = tuple[Path, Path]


@pytest.fixture(autouse=True)
def _same_stamp(monkeypatch: pytest.MonkeyPatch) -> None:
    """All results of a test have names that can be compared, and threads are as they were behind it."""
    monkeypatch.setattr("probe_core.library.get_time_stamp", lambda: STAMP)
    monkeypatch.setattr(engine, "_threads", 0)


def record(root: Path, ranks: Iterable[int | str], off: Iterable[int | str] = ()) -> Path:
    """A run with these ranks, given by number or name; those in ``off`` part from the others."""
    for rank in ranks:
        write_run(root / (rank if isinstance(rank, str) else f"rank{rank}"), OFF if rank in off else GOOD)
    return root


@pytest.fixture
def pair(tmp_path: Path) -> Callable[..., Pair]:
    """``pair([0, 1], [1, 2])``: two runs with these ranks; rank 1 of the target parts from its golden."""
    return lambda ours, theirs: (
        record(tmp_path / "target", ours, off=[1]),
        record(tmp_path / "golden", theirs),
    )


def files(out: Path) -> dict[str, bytes]:
    """All that lies below ``out``, without the time in its name, nor in the links of pages."""
    return {
        re.sub(r"\d{14}", "T", path.relative_to(out).as_posix()): re.sub(rb"\d{14}", b"T", path.read_bytes())
        if path.suffix == ".html"
        else path.read_bytes()
        for path in sorted(out.rglob("*"))
        if path.is_file()
    }


def results(out: Path) -> list[str]:
    """Return the ranks of the results in ``out``, with the step before each."""
    names = [name for name in files(out) if "compare_result" in name and not name.startswith(".")]
    found = [re.sub(r"(debug_)?compare_result_?", r"\1", name) for name in names]
    return sorted({re.sub(r"_?T\..*", "", name) for name in found})


def summary(out: Path) -> list[dict[str, Any]]:
    """The rows of the summary, which is there in jsonl."""
    (path,) = out.glob("compare_summary_*.jsonl")
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def errors(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("error: ")]


# -- what is compared ------------------------------------------------------------------------------


@pytest.fixture
def steps(tmp_path: Path) -> Pair:
    """Runs of four and three steps; rank 1 of step 2 parts."""
    for step in range(4):
        record(tmp_path / f"target/step{step}", [0, 1], off=[1] if step == 2 else [])
        if step != 1:
            record(tmp_path / f"golden/step{step}", [1, 0])
    return tmp_path / "target", tmp_path / "golden"


# -- inputs at fault: one sentence, and the other ranks --------------------------------------------


def empty(rank: Path) -> None:
    (rank / "dump.json").unlink()


def cut(rank: Path) -> None:
    path = rank / "dump.json"
    path.write_bytes(path.read_bytes()[:-200])
