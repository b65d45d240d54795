"""The table of ptdbg_ascend on two of its files (docs/legacy.md#tables): of 2.3, or of a later release."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from probe_legacy.compare.dump import (
    STATISTIC_COUNT,
    Cells,
    LegacyTable,
    MeasurementError,
    PtdbgDump,
    Release,
    load_arrays,
    open_dump,
)
from probe_legacy.compare.groups import OldRow, align_groups
from probe_legacy.compare.later_table import create_later_table, list_names
from probe_legacy.compare.measures import judge_ptdbg, measure_ptdbg
from probe_legacy.compare.table_texts import get_message, get_table_entry

__all__ = ["create_ptdbg_table", "format_advice"]


def create_ptdbg_table(npu: Path, bench: Path, *, fuzzy: bool = False) -> LegacyTable:
    """Return the table of two files, as the release wrote it that recorded them; of two, the later.

    Args:
        npu: The file of the NPU.
        bench: The file of the bench.
        fuzzy: True if the numbers of calls may differ, from 3.0 on.

    Raises:
        UserError: A file cannot be read.
    """
    dumps = open_dump(npu), open_dump(bench)
    try:
        release = max(dump.release for dump in dumps)
        return _create_first_table(dumps) if release is Release.V2 else create_later_table(dumps, release, fuzzy)
    finally:
        for dump in dumps:
            dump.tensors.close()


def _create_first_table(dumps: tuple[PtdbgDump, PtdbgDump]) -> LegacyTable:
    """Return the table of 2.3."""
    has_statistics = all(dump.has_statistics for dump in dumps)
    has_stacks = all(dump.has_stacks for dump in dumps)
    columns = [*get_table_entry("ptdbg", "names"), *get_table_entry("ptdbg", "metrics")]
    if has_statistics:
        columns += get_table_entry("ptdbg", "statistics")
    columns += get_table_entry("ptdbg", "verdict")
    if has_stacks:
        columns.append(get_table_entry("ptdbg", "stack"))
    rows: list[Cells] = []
    for group, partner in align_groups(dumps[0].iterate_groups(), dumps[1].iterate_groups()):
        for index, row in enumerate(group.rows):
            bench_row = partner.rows[index] if partner else None
            cells = _create_cells(row, bench_row, dumps, has_statistics)
            if has_stacks:
                is_first = index == 0 and group.frames is not None and (partner is None or partner.frames is not None)
                cells.append(str(group.frames) if is_first else "")
            rows.append(cells)
    return LegacyTable(columns, rows)


def _create_cells(
    row: OldRow, bench_row: OldRow | None, dumps: tuple[PtdbgDump, PtdbgDump], has_statistics: bool
) -> Cells:
    missing = get_message("not_available")
    if bench_row is None:
        cosine, difference, note = missing, missing, get_message("no_bench")
    else:
        cosine, difference, note = _measure_row(row, bench_row, dumps)
    statistics: Cells = []
    if has_statistics:
        statistics = [*_list_statistics(row.statistics), *_list_statistics(bench_row.statistics if bench_row else ())]
    return [*list_names(row, bench_row), cosine, difference, *statistics, judge_ptdbg(cosine, difference), note]


def _list_statistics(statistics: Sequence[Any]) -> Cells:
    return [*statistics[:STATISTIC_COUNT], *[get_message("not_available")] * (STATISTIC_COUNT - len(statistics))]


def _measure_row(row: OldRow, bench_row: OldRow, dumps: tuple[PtdbgDump, PtdbgDump]) -> tuple[Any, Any, str]:
    try:
        return measure_ptdbg(*load_arrays(row, bench_row, dumps, "no_file"))
    except MeasurementError as error:
        return get_message("not_available"), get_message("not_available"), str(error)


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
