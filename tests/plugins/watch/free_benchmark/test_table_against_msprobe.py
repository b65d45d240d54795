"""Rows of free_benchmark.csv next to those that mindstudio-probe 8.3.3 wrote for the same program."""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from probe_watch.free_benchmark.table import FILE, HEADER
from support.programs import free_benchmark_calls
from support.runs.recording import Recording

DATA = Path(__file__).resolve().parents[3] / "data"
Cells = tuple[str, ...]


def cases() -> list[dict[str, Any]]:
    """Return msprobe's rows of each case, with the section of config.json that made them."""
    with gzip.open(DATA / "free-benchmark-8.3.3.json.gz", "rt", encoding="utf-8") as file:
        loaded: list[dict[str, Any]] = json.load(file)
    return loaded


def our_rows(section: dict[str, Any], path: Path) -> list[Cells]:
    """Return the rows that probe writes for the program."""
    recording = Recording(path, task="free_benchmark", free_benchmark=section)
    try:
        free_benchmark_calls.run(recording.debugger, section["fuzz_stage"], 8 if section["if_preheat"] else 1)
    finally:
        recording.finish()
    rows = []
    for table in sorted(path.glob(f"step*/rank/{FILE}")):
        with table.open(newline="") as file:
            header, *others = csv.reader(file)
        assert tuple(header) == HEADER
        rows += [tuple(row) for row in others]
    return rows


def is_explained(entry: dict[str, Any], side: str, row: Cells) -> bool:
    """Return True if an entry matches a row that only ``side`` has."""
    cells = dict(zip(HEADER, row))
    return entry["only"] == side and all(
        re.fullmatch(pattern, cells[column]) for column, pattern in entry["cells"].items()
    )


def test_rows_differ_from_msprobe_only_for_listed_reasons(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entries = yaml.safe_load((DATA / "differences-free-benchmark.yaml").read_text("utf-8"))
    used: Counter[str] = Counter()
    wrong, equal = [], 0
    for number, case in enumerate(cases()):
        ours = Counter(our_rows(case["section"], tmp_path / f"run{number}"))
        theirs = Counter(tuple(row) for row in case["rows"])
        equal += (ours & theirs).total()
        for side, rows in (("msprobe", theirs - ours), ("probe", ours - theirs)):
            for row in rows.elements():
                reasons = [entry["name"] for entry in entries if is_explained(entry, side, row)]
                used.update(reasons)
                if len(reasons) != 1:
                    wrong.append((side, row, reasons))
    assert not wrong, "\n".join(map(str, wrong))
    assert equal > 250
    assert {entry["name"] for entry in entries} == used.keys(), "an entry no longer differs"
    assert all(entry["kind"] in ("defect", "decision") and entry["reason"] for entry in entries)
