"""What probe-reporters contributes."""

from __future__ import annotations

from probe_core.hookspecs import hookimpl
from probe_core.specs import ReporterSpec


@hookimpl
def probe_reporters() -> list[ReporterSpec]:
    """Excel, csv, and JSON lines."""
    return [
        ReporterSpec("xlsx", "Excel workbook", "probe_reporters.xlsx:XlsxReporter", ".xlsx"),
        ReporterSpec("csv", "comma separated values", "probe_reporters.csv:CsvReporter", ".csv"),
        ReporterSpec("jsonl", "a JSON object a row", "probe_reporters.jsonl:JsonlReporter", ".jsonl"),
    ]
