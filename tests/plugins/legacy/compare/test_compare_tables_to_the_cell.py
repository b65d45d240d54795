"""Tables of the older tools, cell by cell; what differs is listed with its reason, and nothing else may."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
import yaml
from openpyxl import load_workbook
from probe_legacy.compare import hooks_table, ptdbg_table
from probe_legacy.compare.dump import LegacyTable
from probe_legacy.compare.files import write_csv, write_workbook
from support import DATA
from support.runs.older_dumps import dumps  # noqa: F401

from probe_core.plugins.manager import Manager

KNOWN: dict[str, dict[str, Any]] = yaml.safe_load((DATA / "differences-legacy.yaml").read_text("utf-8"))


class Given(NamedTuple):
    """Two dumps, and what the tool was asked for besides."""

    npu: str
    bench: str
    options: Mapping[str, bool] = MappingProxyType({})


SIDES = Given("npu", "bench")
FILES = Given("npu.pkl", "cpu.pkl")
OF_SHAPES = FILES._replace(options={"with_shapes": True})
TABLES = {
    "ptdbg23_conv_all/expected/compare_result.csv": SIDES,
    "ptdbg23_conv_api_stack/expected/compare_result.csv": SIDES,
    "ptdbg23_unmatched/expected/compare_result.csv": SIDES,
    "ptdbg23_truncated/expected/compare_result.csv": SIDES,
    "ptdbg23_truncated/expected_swapped/compare_result.csv": Given("bench", "npu"),
    "ptdbg23_modes/expected_list_compare/compare_result.csv": Given("list", "list"),
    "ptdbg40_branch/expected/compare_result.csv": SIDES,
    "ptdbg40_branch/expected_fuzzy/compare_result.csv": SIDES._replace(options={"fuzzy": True}),
    "ptdbg60_all/expected/compare_result.xlsx": SIDES,
    "ptdbg60_all/expected/compare_result_from_xlsx.csv": SIDES,
    "ptdbg60_summary/expected/compare_result.xlsx": SIDES,
    "ptdbg60_summary/expected/compare_result_from_xlsx.csv": SIDES,
    "hooks_rc3_conv/result.csv": FILES,
    "hooks_rc3_conv/result_shape.csv": OF_SHAPES,
    "hooks_300_sample_conv/result.csv": FILES,
    "hooks_300_sample_conv/result_shape.csv": OF_SHAPES,
    "hooks_50_full_xfmr_fp16/result.csv": FILES,
    "hooks_50_full_xfmr_fp16/result_shape.csv": OF_SHAPES,
    "hooks_edge_cases/result.csv": FILES,
    "hooks_edge_cases/multi_result.csv": Given("multi_npu.pkl", "multi_cpu.pkl"),
    "hooks_edge_cases/sync_result.csv": Given("sync_npu.pkl", "sync_cpu.pkl"),
}
MADE_BY_HAND = {  # of another tool's unit tests: they hold no dump that they could be made from
    "ptdbg_att_unit_test_data/compare_result_20230703104808.csv",
    "ptdbg_att_unit_test_data/compare_result_without_accuracy.csv",
}
ADVICE = "advisor.txt"
Row = dict[str, Any]


class Sheet(NamedTuple):
    """A table that was read: its columns, its rows and the colors of the rows."""

    columns: list[str]
    rows: list[Row]
    colors: list[str]


def read_csv(path: Path) -> Sheet:
    with path.open(newline="") as file:
        header, *rows = list(csv.reader(file))
    return Sheet(header, [dict(zip(header, row)) for row in rows], [])


def read_workbook(path: Path) -> Sheet:
    header, *rows = list(load_workbook(path).worksheets[0].iter_rows())
    columns = [str(cell.value) for cell in header]
    cells = [{name: "" if cell.value is None else cell.value for name, cell in zip(columns, row)} for row in rows]
    return Sheet(columns, cells, [row[0].fill.start_color.rgb for row in rows])


def read(path: Path) -> Sheet:
    return read_workbook(path) if path.suffix == ".xlsx" else read_csv(path)


@pytest.fixture
def made(dumps: Path, tmp_path: Path) -> Callable[[str], tuple[LegacyTable, Sheet]]:
    """Make the table for one of the tools', write it, and read it again."""

    def make(table: str) -> tuple[LegacyTable, Sheet]:
        given, folder = TABLES[table], dumps / table.partition("/")[0]
        create = ptdbg_table.create_ptdbg_table if table.startswith("ptdbg") else hooks_table.create_hooks_table
        own = create(*(dump_in(folder / name) for name in given[:2]), **given.options)
        path = tmp_path / f"own{own.suffix}"
        if own.suffix == ".csv":
            write_csv(path, own)
        else:
            write_workbook(path, own, Manager())
        return own, read(path)

    return make


def dump_in(path: Path) -> Path:
    if path.is_file():
        return path
    (file,) = path.rglob("*.pkl")
    return file


def is_same(tool: Any, own: Any) -> bool:
    """Return True for equal cells; numbers of a workbook have no digits of their own."""
    if tool == own or isinstance(own, str):
        return bool(tool == own)
    try:
        return float(tool) == float(own)
    except ValueError:
        return False


def entry_of(table: str, row: str, column: str, tool: str, own: str) -> str:
    """The one entry that a differing cell belongs to."""
    found = [
        name
        for name in entries(table)
        if column in KNOWN[name].get("columns", ()) and belongs(KNOWN[name], row, tool, own)
    ]
    assert len(found) == 1, (table, row, column, tool, own)
    return found[0]


def belongs(entry: dict[str, Any], row: str, tool: str, own: str) -> bool:
    if entry.get("formula") == "half":
        return abs(float(tool) - (0.5 + 0.5 * float(own))) < 1e-12
    texts = ((entry.get("names", ".*"), row), (entry["tool"], tool), (entry["probe"], own))
    return all(re.fullmatch(pattern, text, re.DOTALL) for pattern, text in texts)


def entries(table: str) -> list[str]:
    return [name for name, entry in KNOWN.items() if table in entry["tables"]]


@pytest.mark.parametrize("table", TABLES)
def test_a_table_is_that_of_the_tool(dumps: Path, made: Callable[[str], tuple[LegacyTable, Sheet]], table: str) -> None:
    wanted = read(dumps / table)
    made_table, own = made(table)
    used: set[str] = set()
    if "header-only" not in entries(table):
        assert own.columns == wanted.columns
    for row, own_row in zip(wanted.rows, own.rows):
        name = str(row[wanted.columns[0]])
        used |= {
            entry_of(table, name, key, str(row[key]), str(own_row[key]))
            for key in wanted.columns
            if not is_same(row[key], own_row[key])
        }
    if more := own.rows[len(wanted.rows) :]:
        (name,) = [name for name in entries(table) if "rows" in KNOWN[name]]
        assert len(more) == KNOWN[name]["rows"]
        assert {row["Err_message"] for row in more} == {KNOWN[name]["probe"].replace("\\", "")}
        used.add(name)
    assert len(own.rows) >= len(wanted.rows)
    if wanted.colors:
        assert own.colors == wanted.colors
    advice = (dumps / table).with_name(ADVICE)
    if advice.exists():
        tool, probe = advice.read_text(), ptdbg_table.format_advice(made_table)
        if tool != probe:
            used.add(entry_of(table, "", ADVICE, tool, probe))
    assert used == set(entries(table)), "an entry that no longer differs must go"


def test_every_table_is_compared(dumps: Path) -> None:
    files = {str(path.relative_to(dumps)) for suffix in ("csv", "xlsx") for path in dumps.rglob(f"*.{suffix}")}
    assert files == set(TABLES) | MADE_BY_HAND


def test_every_entry_is_of_a_table() -> None:
    assert {table for entry in KNOWN.values() for table in entry["tables"]} <= set(TABLES)
    assert all(entry["why"].endswith(".") for entry in KNOWN.values())


def test_red_rows_are_in_a_workbook_of_the_tool(dumps: Path) -> None:
    colors = read_workbook(dumps / "ptdbg60_all/expected/compare_result.xlsx").colors
    assert {"FFFF0000", "00000000"} == set(colors)


def test_the_dump_of_another_tools_unit_tests(dumps: Path, tmp_path: Path) -> None:
    """Its tensors are not there. A dump against itself has the same table, whatever they are."""
    file = Path(shutil.copy(dumps / "ptdbg_att_unit_test_data/npu_test.pkl", tmp_path))
    file.with_suffix("").mkdir()
    for line in file.read_text().splitlines():
        name, _, _, _, shape, _ = json.loads(line)
        np.save(file.with_suffix("") / f"{name}.npy", np.arange(1.0, 1 + np.prod(shape)).reshape(shape))
    table = ptdbg_table.create_ptdbg_table(file, file)
    write_csv(tmp_path / "own.csv", table)
    folder = dumps / "ptdbg_att_unit_test_data"
    expected = folder / "compare_result_20230703104808.csv"
    assert (tmp_path / "own.csv").read_text().splitlines() == expected.read_text().splitlines()
    assert ptdbg_table.format_advice(table).splitlines() == (folder / ADVICE).read_text().splitlines()
