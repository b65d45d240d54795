"""The files of the older tools' tables: csv, and workbooks of ptdbg_ascend 6.0."""

from __future__ import annotations

import csv
import math
from pathlib import Path

from probe_reporters.api import Reporter, neutralise

from probe_core.files.atomic import write_atomically
from probe_core.model import Cell
from probe_core.plugins.manager import Manager
from probe_core.plugins.specs import ReporterSpec
from probe_legacy.compare.dump import LegacyTable

DIGITS = 16
"""Significant digits of the numbers in a workbook of 6.0."""


def write_csv(path: Path, table: LegacyTable) -> None:
    """Write a table as the tools did: NaN is an empty cell; formulas are neutralized."""
    with (
        write_atomically(path, f"The table {path.name}") as temporary,
        temporary.open("w", encoding="utf-8", newline="") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(table.columns)
        writer.writerows([[_convert_cell(value) for value in cells] for cells in table.rows])


def _convert_cell(value: object) -> object:
    if isinstance(value, float) and math.isnan(value):
        return ""
    return neutralise(value) if isinstance(value, str) else value


def write_workbook(path: Path, table: LegacyTable, manager: Manager) -> None:
    """Write a table as a workbook with its colors.

    Raises:
        UserError: No distribution that writes workbooks is installed, or the file cannot be written.
    """
    reporter: Reporter = manager.find("reporters", "xlsx", ReporterSpec).make()
    with write_atomically(path, f"The table {path.name}") as temporary:
        writer = reporter.open(temporary, table.columns, len(table.rows))
        try:
            for place, cells in enumerate(table.rows):
                writer.write([_convert_sheet_cell(value) for value in cells], table.colors.get(place))
            writer.close()
        except BaseException:
            writer.abandon()
            raise


def _convert_sheet_cell(value: object) -> Cell:
    """Return a cell as 6.0 wrote it: numbers of 16 digits; all else, NaN and infinities too, as text."""
    if isinstance(value, bool | int):
        return value
    if not isinstance(value, float):
        return str(value)
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else f"{value}\t"
