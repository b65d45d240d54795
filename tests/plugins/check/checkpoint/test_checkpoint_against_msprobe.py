"""The figures of probe and of mindstudio-probe 8.3.3 are the same, cell by cell, except for listed differences."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from probe_check.checkpoint.command import run_comparison
from support.runs.checkpoints import CASES, DIFFERENCES, EXPECTED, write_pair

Cell = tuple[str, str, str]
"""Case, tensor and field; the field is ``missing`` or ``extra`` for a tensor that only one tool lists."""
FLOAT32_SUMS = 3e-6
"""Relative rounding of l2 in msprobe, which adds in float32."""
FLOAT32_COSINE = 2e-7


@cache
def differences() -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = yaml.safe_load(DIFFERENCES.read_text())
    return entries


def listed(entry: dict[str, Any]) -> set[Cell]:
    return {(entry["case"], tensor, field) for tensor in entry["tensors"] for field in entry["fields"]}


def is_same(field: str, mine: Any, theirs: Any) -> bool:
    if field not in ("l2", "cos") or mine is None or theirs is None:
        return bool(mine == theirs)
    first, second = float(mine), float(theirs)
    if not math.isfinite(second) or not math.isfinite(first):
        return repr(first) == repr(second)
    if field == "l2":
        return math.isclose(first, second, rel_tol=FLOAT32_SUMS)
    return math.isclose(first, second, abs_tol=FLOAT32_COSINE)


def differing_cells(case: str, directory: Path) -> Iterator[Cell]:
    output = directory / "out.json"
    run_comparison(*write_pair(case, directory), output)
    mine, theirs = json.loads(output.read_text()), json.loads(EXPECTED.read_text())[case]
    yield from ((case, name, "missing") for name in theirs.keys() - mine.keys())
    yield from ((case, name, "extra") for name in mine.keys() - theirs.keys())
    for name in mine.keys() & theirs.keys():
        assert mine[name].keys() == theirs[name].keys()
        for field in mine[name]:
            if not is_same(field, mine[name][field], theirs[name][field]):
                yield case, name, field


@pytest.mark.parametrize("case", CASES)
def test_cells_differ_only_where_a_difference_is_listed(case: str, tmp_path: Path) -> None:
    expected = {cell for entry in differences() for cell in listed(entry) if cell[0] == case}
    assert set(differing_cells(case, tmp_path)) == expected


def test_each_difference_has_a_reason_and_is_listed_once() -> None:
    cells = [cell for entry in differences() for cell in listed(entry)]
    assert len(cells) == len(set(cells))
    assert all(entry["kind"] in ("defect", "decision") and entry["reason"] for entry in differences())
