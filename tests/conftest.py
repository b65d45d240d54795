"""Recorded runs for the tests: unpacked once a session, read-only by agreement."""

from __future__ import annotations

import gzip
import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import DATA
from support.probe import Probe
from support.runs.results import read_jsonl


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """``runs("tensor_L1_edge", "8.3.3")``: the directory with npu_dump and bench_dump."""
    unpacked: dict[str, Path] = {}

    def find(case: str, version: str = "8.3.3") -> Path:
        if version not in unpacked:
            unpacked[version] = tmp_path_factory.mktemp(f"runs-{version}")
            zipfile.ZipFile(DATA / f"runs-{version}.zip").extractall(unpacked[version])
        return unpacked[version] / case / (f"v{version}" if version[0].isdigit() else "")

    return find


@pytest.fixture(scope="session")
def expected() -> list[dict[str, Any]]:
    """The peer's own results for the runs of 8.3.3, a table each."""
    with gzip.open(DATA / "expected-8.3.3.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@pytest.fixture
def probe(capsys: pytest.CaptureFixture[str]) -> Probe:
    """``probe("compare", target, golden)`` is the exit code."""
    return Probe(capsys)


@pytest.fixture
def rows_of(probe: Probe, tmp_path: Path) -> Iterator[Callable[..., list[dict[str, Any]]]]:
    """``rows_of(target, golden, "-f")``: compare, and the rows of the result."""
    count = 0

    def compare(*arguments: str | Path) -> list[dict[str, Any]]:
        nonlocal count
        count += 1
        out = tmp_path / f"out{count}"
        assert probe("compare", *arguments, "-o", out, "--format", "jsonl") == 0, probe.err
        return read_jsonl(out)

    yield compare
