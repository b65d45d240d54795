"""Runs with a known first difference, and the files of ``-da`` read back."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from probe_reporters.tables import COLUMNS

from support.runs.recorded import forward, tensor, write_run

TRANSFER = ["NPU P2POp op", "Bench P2POp op", "NPU P2POp peer", "Bench P2POp peer"]
HEADERS = {mode: [column.header for column in columns] for mode, columns in COLUMNS.items()}
Data = dict[str, Any]


def strictly(path: Path) -> Any:
    """Read a file, which must be JSON as the standard has it: no bare NaN, no key twice."""

    def refuse(text: str) -> None:
        raise AssertionError(f"{text} is no JSON")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs), "a key appears twice"
        return dict(pairs)

    return json.loads(path.read_text("utf-8"), parse_constant=refuse, object_pairs_hook=once)


class Analysis:
    """Runs ``compare -da`` and reads what it wrote."""

    def __init__(self, probe: Any, out: Path) -> None:
        self.probe = probe
        self.out = out

    def __call__(self, *arguments: str | Path, code: int = 0) -> Data:
        """The contents of ``diff_analyze``; empty if there is no such file."""
        shutil.rmtree(self.out, ignore_errors=True)
        return self.again(*arguments, code=code)

    def again(self, *arguments: str | Path, code: int = 0) -> Data:
        assert self.probe("compare", *arguments, "-o", self.out, "-da", "-j", "1") == code, self.probe.err
        assert "Traceback" not in self.probe.err
        return self.found()

    def found(self, part: str = "") -> Data:
        paths = list((self.out / part).glob("diff_analyze_*.json"))
        assert len(paths) <= 1
        return strictly(paths[0]) if paths else {}

    def rank(self, number: int = 0, part: str = "") -> Data:
        (path,) = (self.out / part).glob(f"compare_result_rank{number}_*.json")
        found: Data = strictly(path)
        return found

    def names(self) -> list[str]:
        """The files written, without their time stamps."""
        return sorted(
            re.sub(r"_\d{14}", "", path.relative_to(self.out).as_posix())
            for path in self.out.rglob("*")
            if path.is_file()
        )


@pytest.fixture
def analyze(probe: Any, tmp_path: Path) -> Analysis:
    """``analyze(target, golden)``: what ``-da`` finds between them."""
    return Analysis(probe, tmp_path / "analysis")


def named(found: Data) -> list[tuple[str, str]]:
    return [(rank, node["op_name"]) for rank, nodes in found.items() for node in nodes]


# -- hand-written runs -------------------------------------------------------------------------


PlanExecution = Sequence[dict[str, Any]]


def write_ranks(directory: Path, ranks: PlanExecution) -> Path:
    """A step with one statistics run a rank."""
    for number, data in enumerate(ranks):
        write_run(directory / f"rank{number}", data)
    return directory


@pytest.fixture
def written(tmp_path: Path) -> Callable[[PlanExecution, PlanExecution], tuple[Path, Path]]:
    """``written(targets, goldens)``: both steps."""
    return lambda targets, goldens: (
        write_ranks(tmp_path / "t", targets),
        write_ranks(tmp_path / "g", goldens),
    )


def program(scale: float = 1.0, got: float = 1.0, api: str = "all_reduce", **keywords: Any) -> dict[str, Any]:
    """Multiplies, communicates, goes on."""
    return {
        "Torch.relu.0.forward": forward(tensor(), output=[tensor()]),
        "Torch.mul.0.forward": forward(tensor(), output=[tensor(value=scale)]),
        f"Distributed.{api}.0.forward": forward(
            tensor(value=scale), output=[tensor(value=got)], **keywords
        ),
        "Torch.exp.0.forward": forward(tensor(value=got), output=[tensor(value=got)]),
    }  # fmt: skip


GOOD = program()
