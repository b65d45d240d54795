"""The page of merged results: a small chart of each value over all ranks; values that differ most come first."""

from __future__ import annotations

import csv
import io
import json
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probe_reporters.api import MERGED_FILE_PREFIX

from probe_core import console
from probe_core.errors import UserError, make_printable
from probe_core.files.user_files import read_regular_file
from probe_core.model.plan import parse_time_stamp
from probe_page.sheet import encode_number, write_sheet

if TYPE_CHECKING:
    from probe_core.plugins.manager import Manager

NAME_HEADER = "NPU Name"
PART_MARKER = "_part_"
"""Text between the metric and the number in the title of a sheet that contains a part of the rows."""
MERGE_FIX = "Give the directory that probe merge-result wrote to."


@dataclass(frozen=True, slots=True)
class MergedTable:
    """The table of a metric: a cell for each value and rank; None if the rank has no row for the value."""

    metric: str
    ranks: Sequence[str]
    names: Sequence[str]
    cells: Sequence[Sequence[float | str | None]]


def write_requested_page(manager: Manager, output: Path, format: str, values: Mapping[str, Any]) -> int:
    """Write the page of the newest merged result of a format in ``output``: the factory of the option ``--page``.

    Factories of options of all commands have these parameters, and return the exit code.

    Raises:
        UserError: ``output`` contains no merged result in this format.
    """
    paths = list(output.glob(f"{MERGED_FILE_PREFIX}*.{format}"))
    if not paths:
        raise UserError(
            f"There is no merged result of format {format} in {output}.",
            "Give the results of all ranks with -i, and what to merge with --config.",
        )
    console.show(f"  wrote {write_merged_page(max(paths, key=parse_time_stamp))}")
    return 0


def write_merged_page(path: Path, lang: str = "en") -> Path:
    """Write the page of a merged result next to it.

    In csv and jsonl, each metric has a file. The page shows all files with the time stamp of ``path``.

    Raises:
        UserError: A file cannot be read, or the page cannot be written.
    """
    time_stamp = parse_time_stamp(path)
    pattern = f"{MERGED_FILE_PREFIX}*_{time_stamp}{path.suffix}"
    paths = [path] if path.suffix == ".xlsx" else sorted(path.parent.glob(pattern))
    tables = [table for table_path in paths for table in _read_tables(table_path)]
    if not tables:
        raise UserError(f"{path} has no merged table.", MERGE_FIX)
    data = [
        {
            "metric": make_printable(table.metric, 100),
            "ranks": [make_printable(rank, 100) for rank in table.ranks],
            "names": [make_printable(name, 1000) for name in table.names],
            "cells": [[encode_number(cell) for cell in row] for row in table.cells],
        }
        for table in tables
    ]
    return write_sheet(
        path.with_name(f"{MERGED_FILE_PREFIX}{time_stamp}.html"),
        "merged.html",
        "merged.js",
        lang,
        data,
        metrics=[table.metric for table in tables],
        ranks=len({rank for table in tables for rank in table.ranks}),
        values=max(len(table.names) for table in tables),
        paths=paths,
    )


def _read_tables(path: Path) -> list[MergedTable]:
    """Return the tables in a file.

    Raises:
        UserError: The file cannot be read, or contains no merged table.
    """
    try:
        if path.suffix == ".xlsx":
            return _join_tables(_read_sheets(path))
        metric = path.stem.removeprefix(MERGED_FILE_PREFIX).removesuffix(f"_{parse_time_stamp(path)}").replace("_", " ")
        return [_read_table(path, metric, _read_csv_rows(path) if path.suffix == ".csv" else _read_json_rows(path))]
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}.", MERGE_FIX) from None
    except (ValueError, KeyError, EOFError, csv.Error) as error:  # zipfile's and xml's errors are ValueErrors
        raise _create_damage_error(path, str(error)) from None


def _create_damage_error(path: Path, reason: str) -> UserError:
    return UserError(f"{path} is not a merged result: {make_printable(reason, 200)}.", MERGE_FIX)


def _read_sheets(path: Path) -> Iterator[MergedTable]:
    import zipfile

    from openpyxl import load_workbook

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            book = load_workbook(io.BytesIO(read_regular_file(path)), read_only=True, data_only=True)
            for sheet in book.worksheets:
                sheet.reset_dimensions()
                yield _read_table(path, sheet.title, sheet.iter_rows(values_only=True))
    except (zipfile.BadZipFile, SyntaxError, TypeError, AttributeError) as error:
        raise _create_damage_error(path, str(error)) from None


def _read_csv_rows(path: Path) -> Iterator[Sequence[Any]]:
    yield from csv.reader(io.StringIO(read_regular_file(path).decode("utf-8-sig"), newline=""))


def _read_json_rows(path: Path) -> Iterator[Sequence[Any]]:
    headers: list[str] = []
    for line in filter(None, read_regular_file(path).decode("utf-8").split("\n")):
        row = json.loads(line)
        if not isinstance(row, dict):
            raise ValueError("a line is not an object")
        if not headers:
            headers = list(row)
            yield headers
        yield [row.get(header) for header in headers]


def _read_table(path: Path, metric: str, rows: Iterator[Sequence[Any]]) -> MergedTable:
    headers = [str(cell) for cell in next(rows, ()) if cell is not None]
    if len(headers) < 2 or headers[0] != NAME_HEADER:
        raise _create_damage_error(path, f"its first column is not {NAME_HEADER}")
    names: list[str] = []
    cells: list[list[float | str | None]] = []
    for row in rows:
        if row and row[0] not in (None, ""):
            names.append(str(row[0]))
            cells.append([_parse_cell(value) for value in (*row, *[None] * len(headers))[1 : len(headers)]])
    return MergedTable(metric, headers[1:], names, cells)


def _parse_cell(value: Any) -> float | str | None:
    if value is None or value == "":
        return None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return number if math.isfinite(number := float(value)) else str(number)
    text = str(value)
    try:
        number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        return text
    return number if math.isfinite(number) else text


def _join_tables(tables: Iterator[MergedTable]) -> list[MergedTable]:
    """Return the tables with the parts of a metric as one."""
    tables_by_metric: dict[str, MergedTable] = {}
    for table in tables:
        metric = table.metric.partition(PART_MARKER)[0]
        first = tables_by_metric.get(metric, MergedTable(metric, table.ranks, (), ()))
        tables_by_metric[metric] = MergedTable(
            metric, first.ranks, (*first.names, *table.names), (*first.cells, *table.cells)
        )
    return list(tables_by_metric.values())
