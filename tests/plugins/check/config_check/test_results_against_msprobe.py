"""The workbook beside that of mindstudio-probe 8.3.3, cell by cell."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.runs.config_packs import COLLECTED, DIFFERENCES, EXPECTED, cells_of, load_cases, write_packs

Cell = tuple[str, ...]
"""Case, sheet, key of the row, column."""
KEYS = {
    "summary": 1, "env": 2, "pip": 1, "dataset": 3, "weights": 3, "hyperparameters": 3, "random": 4,
}  # fmt: skip
"""Number of the first columns by which a row is known."""


@cache
def expected() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(EXPECTED.read_text())
    return loaded


def differences() -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = yaml.safe_load(DIFFERENCES.read_text())
    return entries


def listed(entry: dict[str, Any]) -> set[Cell]:
    return {tuple(map(str, cell)) for cell in entry["cells"]}


def rows_of(sheets: dict[str, Any]) -> dict[tuple[str, ...], dict[str, Any]]:
    """Return the cells of each row by sheet and key; a second row of one key has a number."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for sheet, (header, *rows) in sheets.items():
        found[sheet, "header"] = dict(zip(map(str, range(len(header))), header))
        for row in rows:
            key = "/".join(str(cell) for cell in row[: KEYS[sheet]])
            number = sum(place[:2] == (sheet, key) for place in found)
            found[(sheet, key, *([str(number)] if number else []))] = dict(zip(header, row))
    return found


def cells_that_differ(case: str, sheets: dict[str, Any]) -> Iterator[Cell]:
    peer = expected()[case]
    if peer == "error":
        yield case, "error"
        return
    own, theirs = rows_of(sheets), rows_of(peer)
    yield from ((case, *place, "extra") for place in own.keys() - theirs.keys())
    yield from ((case, *place, "missing") for place in theirs.keys() - own.keys())
    for place in own.keys() & theirs.keys():
        for column in own[place].keys() | theirs[place].keys():
            if not _is_same(own[place].get(column), theirs[place].get(column)):
                yield (case, *place, column)


def _is_same(own: Any, other: Any) -> bool:
    if isinstance(own, float) and isinstance(other, (int, float)):
        return own == pytest.approx(other, rel=1e-12, abs=0)
    return type(own) is type(other) and bool(own == other)


@pytest.mark.parametrize("case", load_cases())
def test_cases_differ_only_as_listed(case: str, tmp_path: Path, probe: Callable[..., Any]) -> None:
    bench, cmp = write_packs(load_cases()[case], tmp_path)
    assert probe("config-check", "-c", bench, cmp, "-o", tmp_path / "out") == 0, probe.err
    assert {*cells_that_differ(case, cells_of(tmp_path / "out" / "result.xlsx"))} == {
        cell for entry in differences() for cell in listed(entry) if cell[0] == case
    }


def test_packs_collected_by_msprobe_differ_only_as_listed(tmp_path: Path, probe: Callable[..., Any]) -> None:
    case = "collected_by_msprobe"
    with zipfile.ZipFile(COLLECTED) as packs:
        packs.extractall(tmp_path)
    out = tmp_path / "out"
    assert probe("config-check", "-c", tmp_path / "bench.zip", tmp_path / "cmp.zip", "-o", out) == 0, probe.err
    assert {*cells_that_differ(case, cells_of(out / "result.xlsx"))} == {
        cell for entry in differences() for cell in listed(entry) if cell[0] == case
    }


def test_sheets_have_the_order_of_msprobe(tmp_path: Path, probe: Callable[..., Any]) -> None:
    bench, cmp = write_packs(load_cases()["equal"], tmp_path)
    probe("config-check", "-c", bench, cmp, "-o", tmp_path / "out")
    assert list(cells_of(tmp_path / "out" / "result.xlsx")) == list(expected()["equal"])


def test_the_list_of_differences_is_well_formed() -> None:
    cells = [cell for entry in differences() for cell in listed(entry)]
    assert len(cells) == len({*cells})
    assert {cell[0] for cell in cells} <= expected().keys()
    for entry in differences():
        assert entry["cells"] and ("decision" in entry) is not ("defect" in entry)
    assert expected().keys() == {*load_cases(), "collected_by_msprobe"}
