"""Tables of the older tools, cell by cell; what differs is listed with its reason, and nothing else may."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from probe_legacy.compare import hooks_table, ptdbg_table
from probe_legacy.compare.answer import write_csv
from support import DATA
from support.runs.older_dumps import dumps  # noqa: F401

KNOWN: dict[str, dict[str, Any]] = yaml.safe_load((DATA / "differences-legacy.yaml").read_text("utf-8"))
RANK = "ptdbg_dump_v2.3/rank0"
TABLES = {  # the table, then both files
    "ptdbg23_conv_all/expected": (f"npu/{RANK}/npu_dump", f"bench/{RANK}/bench_dump"),
    "ptdbg23_conv_api_stack/expected": (
        f"npu/{RANK}/api_stack_npu_dump",
        f"bench/{RANK}/api_stack_bench_dump",
    ),
    "ptdbg23_unmatched/expected": (f"npu/{RANK}/npu_dump", f"bench/{RANK}/bench_dump"),
    "ptdbg23_truncated/expected": ("npu/npu_dump", "bench/bench_dump"),
    "ptdbg23_truncated/expected_swapped": ("bench/bench_dump", "npu/npu_dump"),
    "ptdbg23_modes/expected_list_compare": (f"list/{RANK}/d", f"list/{RANK}/d"),
    "hooks_rc3_conv/result": ("npu", "cpu"),
    "hooks_300_sample_conv/result": ("npu", "cpu"),
    "hooks_50_full_xfmr_fp16/result": ("npu", "cpu"),
    "hooks_edge_cases/result": ("npu", "cpu"),
    "hooks_edge_cases/multi_result": ("multi_npu", "multi_cpu"),
    "hooks_edge_cases/sync_result": ("sync_npu", "sync_cpu"),
}
Row = dict[str, str]


def read_csv(path: Path) -> tuple[list[str], list[Row]]:
    with path.open(newline="") as file:
        header, *rows = list(csv.reader(file))
    return header, [dict(zip(header, row)) for row in rows]


def entry_of(table: str, column: str, tool: str, own: str) -> str:
    """The one entry that a differing cell belongs to."""
    found = [
        name
        for name, entry in KNOWN.items()
        if table in entry["tables"] and column in entry.get("columns", ()) and belongs(entry, tool, own)
    ]
    assert len(found) == 1, (table, column, tool, own)
    return found[0]


def belongs(entry: dict[str, Any], tool: str, own: str) -> bool:
    if entry.get("formula") == "half":
        return abs(float(tool) - (0.5 + 0.5 * float(own))) < 1e-12
    return bool(re.fullmatch(entry["tool"], tool) and re.fullmatch(entry["probe"], own))


@pytest.mark.parametrize("table", TABLES)
def test_a_table_is_that_of_the_tool(dumps: Path, tmp_path: Path, table: str) -> None:
    folder = dumps / table.partition("/")[0]
    wanted = dumps / f"{table}.csv"
    if not wanted.exists():
        wanted = dumps / table / "compare_result.csv"
    module = ptdbg_table if table.startswith("ptdbg") else hooks_table
    made = module.table_of(*(folder / f"{name}.pkl" for name in TABLES[table]))
    write_csv(tmp_path / "own.csv", made)
    header, rows = read_csv(wanted)
    own_header, own_rows = read_csv(tmp_path / "own.csv")
    used: set[str] = set()
    if "header-only" not in entries(table):
        assert own_header == header
    for row, own in zip(rows, own_rows):
        used |= {entry_of(table, key, row[key], own[key]) for key in header if row[key] != own[key]}
    if more := own_rows[len(rows) :]:
        (name,) = [name for name in entries(table) if "rows" in KNOWN[name]]
        assert len(more) == KNOWN[name]["rows"]
        assert {row["Err_message"] for row in more} == {KNOWN[name]["probe"].replace("\\", "")}
        used.add(name)
    assert used == set(entries(table)), "an entry that no longer differs must go"
    advice = wanted.with_name("advisor.txt")
    if advice.exists():
        assert ptdbg_table.advice_on(made) == advice.read_text()


def entries(table: str) -> list[str]:
    return [name for name, entry in KNOWN.items() if table in entry["tables"]]


def test_every_entry_is_of_a_table() -> None:
    assert {table for entry in KNOWN.values() for table in entry["tables"]} <= set(TABLES)
    assert all(entry["why"].endswith(".") for entry in KNOWN.values())


def test_the_table_on_two_versions_of_shapes_is_as_without(dumps: Path) -> None:
    """The tool's second table of fp16 and fp32, made with shape_flag, leaves out pairs of other dtypes."""
    _, rows = read_csv(dumps / "hooks_50_full_xfmr_fp16/result_shape.csv")
    folder = dumps / "hooks_50_full_xfmr_fp16"
    table = hooks_table.table_of(folder / "npu.pkl", folder / "cpu.pkl")
    kept = [
        cells
        for cells in table.rows
        if cells[2] == cells[3] and cells[0] in {row["NPU Name"] for row in rows}
    ]
    assert len(kept) == len(rows) == 3
