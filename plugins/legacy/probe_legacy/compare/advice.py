"""The advice of ptdbg_ascend on its table: the first row that is not accurate (docs/legacy.md#tables)."""

from __future__ import annotations

from probe_legacy.compare.dump import Release, Table
from probe_legacy.compare.words import word

FIRST_LINE = 2
"""The line of the first row; the header is line 1."""


def advice_on(table: Table) -> str:
    """Return the advice on the first row that is not accurate, in the form of the tool's file."""
    column, failure = _judged(table)
    line, node, text = "NA", "NA", word("advice", "met")
    for number, cells in enumerate(table.rows, FIRST_LINE):
        name = str(cells[0])
        if cells[column] != failure:
            continue
        if table.release < Release.V4 and word("advice", "not_random") in name:
            continue
        line, node, text = str(number), name, _advice(name, table.release)
        break
    return f"Line: {line}\nSuspect Nodes: {node}\nExpert Advice: {text}\n"


def _judged(table: Table) -> tuple[int, str]:
    """Return the column of the verdict, and the verdict on a row that is not accurate."""
    verdict = word("ptdbg", "verdict")[0]
    if verdict in table.columns:
        return table.columns.index(verdict), "No"
    is_of_checksums = word("later", "checksums")[0] in table.columns
    return table.columns.index(word("later", "result")), word(
        "later", "different" if is_of_checksums else "warning"
    )


def _advice(name: str, release: Release) -> str:
    phase = "backward" if "backward" in name else "forward"
    side = "input" if "input" in name else "output"
    text: str = word("advice", f"{phase}_{side}")
    if release < Release.V4:
        return text
    if side == "output" and any(api in name for api in word("advice", "random")):
        text = word("advice", "random_said")
    flat = name.replace(".", "_")
    if all(part in flat for part in word("advice", "running_mean")):
        text = word("advice", "running_mean_said")
    return text
