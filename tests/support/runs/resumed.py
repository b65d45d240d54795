"""Comparisons that are interrupted and resumed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from probe_core import engine
from support.runs.recorded import forward, tensor, write_run

FORMATS = ("--format", "xlsx,csv,jsonl")
GOOD = {f"Torch.exp.{n}.forward": forward(tensor(), output=[tensor()]) for n in range(3)}
OFF = {**GOOD, "Torch.exp.1.forward": forward(tensor(), output=[tensor(value=9.0)])}
Marks = dict[str, tuple[int, int]]


@pytest.fixture(autouse=True)
def _stamps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each comparison of a test has a time of its own, and threads are as they were behind it."""
    stamps = iter(range(20260101000000, 20260101009999))
    monkeypatch.setattr("probe_core.library.get_time_stamp", lambda: str(next(stamps)))
    monkeypatch.setattr(engine, "_threads", 0)


def record(root: Path, ranks: Iterable[int], off: Iterable[int] = ()) -> Path:
    for rank in ranks:
        write_run(root / f"rank{rank}", OFF if rank in off else GOOD)
    return root


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Two runs of four ranks; rank 1 of the target parts from its golden."""
    return record(tmp_path / "target", range(4), off=[1]), record(tmp_path / "golden", range(4))


def cut(path: Path) -> bytes:
    """Cut a record file off; what it was."""
    data = path.read_bytes()
    path.write_bytes(data[:-100])
    return data


def mend(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def files(out: Path) -> dict[str, bytes]:
    """All that lies below ``out``, without the time in its name, nor in the links of pages."""
    return {
        re.sub(r"\d{14}", "T", path.relative_to(out).as_posix()): re.sub(rb"\d{14}", b"T", path.read_bytes())
        if path.suffix == ".html"
        else path.read_bytes()
        for path in sorted(out.rglob("*"))
        if path.is_file()
    }


def marks(out: Path, what: str = "*") -> Marks:
    """Return a mark that tells a file that was written again from one that was left alone."""
    return {
        path.relative_to(out).as_posix(): (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in sorted(out.rglob(what))
        if path.is_file()
    }


def kept(text: str) -> int:
    """Return the number of ranks that were taken over, by the command's words."""
    found = re.search(r"finished, (\d+) of them in an earlier run", text)
    return int(found[1]) if found else 0


@pytest.fixture
def begun(probe: Any, pair: tuple[Path, Path], tmp_path: Path) -> Any:
    """``begun(rank=2)``: a comparison of which that rank is left over, as its golden was cut off."""

    def begin(*options: str, rank: int = 2) -> tuple[Path, bytes]:
        out, bad = tmp_path / "o", pair[1] / f"rank{rank}/dump.json"
        data = cut(bad)
        assert probe("compare", *pair, "-o", out, *FORMATS, *options) == 2
        assert "--resume compares what is left" in probe.err
        return out, data

    return begin


@pytest.fixture
def undisturbed(probe: Any, tmp_path: Path) -> Callable[..., dict[str, bytes]]:
    """``undisturbed(target, golden, …)``: the files of a comparison that nothing came between."""

    def compare(*arguments: str | Path) -> dict[str, bytes]:
        out = tmp_path / "undisturbed"
        shutil.rmtree(out, ignore_errors=True)
        assert probe("compare", *arguments, "-o", out, "-j", "1") == 0, probe.err
        return files(out)

    return compare
