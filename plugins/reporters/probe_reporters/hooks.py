"""What probe-reporters contributes."""

from __future__ import annotations

from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.specs import CommandSpec, ReporterSpec


@hookimpl
def probe_reporters() -> list[ReporterSpec]:
    """Excel, csv, and JSON lines."""
    return [
        ReporterSpec("xlsx", "Excel workbook", "probe_reporters.xlsx:XlsxReporter", ".xlsx"),
        ReporterSpec("csv", "comma separated values", "probe_reporters.csv:CsvReporter", ".csv"),
        ReporterSpec(
            "jsonl", "a JSON object a row", "probe_reporters.jsonl:JsonlReporter", ".jsonl", all_digits=True
        ),
    ]


@hookimpl
def probe_commands() -> list[CommandSpec]:
    """Merging the results of several ranks."""
    return [
        CommandSpec(
            name="merge_result",
            summary="Merge the results of several ranks, all ranks of a metric side by side.",
            factory="probe_reporters.merge_command:merge_result",
        )
    ]
