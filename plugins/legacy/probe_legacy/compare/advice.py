"""The advice of ptdbg_ascend on its table: the first row that is not accurate (docs/legacy.md#tables)."""

from __future__ import annotations

from probe_legacy.compare.dump import LegacyTable, Release
from probe_legacy.compare.table_texts import get_table_entry

FIRST_LINE = 2
"""The line of the first row; the header is line 1."""


def format_advice(table: LegacyTable) -> str:
    """Return the advice on the first row that is not accurate, in the form of the tool's file."""
    column, failure = _find_verdict_column(table)
    line, node, text = "NA", "NA", get_table_entry("advice", "met")
    for number, cells in enumerate(table.rows, FIRST_LINE):
        name = str(cells[0])
        if cells[column] != failure:
            continue
        if table.release < Release.V4 and get_table_entry("advice", "not_random") in name:
            continue
        line, node, text = str(number), name, _load_advice(name, table.release)
        break
    return f"Line: {line}\nSuspect Nodes: {node}\nExpert Advice: {text}\n"


def _find_verdict_column(table: LegacyTable) -> tuple[int, str]:
    """Return the column of the verdict, and the verdict on a row that is not accurate."""
    verdict = get_table_entry("ptdbg", "verdict")[0]
    if verdict in table.columns:
        return table.columns.index(verdict), "No"
    is_of_checksums = get_table_entry("later", "checksums")[0] in table.columns
    return table.columns.index(get_table_entry("later", "result")), get_table_entry(
        "later", "different" if is_of_checksums else "warning"
    )


def _load_advice(name: str, release: Release) -> str:
    phase = "backward" if "backward" in name else "forward"
    side = "input" if "input" in name else "output"
    text: str = get_table_entry("advice", f"{phase}_{side}")
    if release < Release.V4:
        return text
    if side == "output" and any(api in name for api in get_table_entry("advice", "random")):
        text = get_table_entry("advice", "random_said")
    flat = name.replace(".", "_")
    if all(part in flat for part in get_table_entry("advice", "running_mean")):
        text = get_table_entry("advice", "running_mean_said")
    return text
