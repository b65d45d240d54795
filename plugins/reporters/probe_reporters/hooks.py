"""The plugin's hooks: output formats, tables, the option -hl, and the command merge_result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.parameters import Parameter
from probe_core.plugins.specs import (
    AnswerSpec,
    AnswerStage,
    CommandSpec,
    Option,
    OptionSpec,
    OutputSpec,
    ReporterSpec,
    TableSpec,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from probe_reporters.messages import Text

BOM_PARAMETER = Parameter("bom", bool, "begin with a byte order mark, by which Excel recognizes UTF-8; default false")


@hookimpl
def probe_answers() -> list[AnswerSpec]:
    """Return the summary of a comparison of several ranks."""
    factory = "probe_reporters.summary:SummaryAnswerer"
    return [AnswerSpec("summary", "the summary of all ranks", factory, given=AnswerStage.LAST)]


@hookimpl
def probe_options() -> list[OptionSpec]:
    """Return the option of compare that marks rows."""
    return [
        OptionSpec(
            "highlight",
            "marks suspicious rows",
            "probe_reporters.highlighting:set_highlight",
            command="compare",
            options=(Option("highlight", ("-hl", "--highlight"), "Mark suspicious rows red and yellow."),),
            defaults={"highlight": False},
        )
    ]


@hookimpl
def probe_outputs() -> list[OutputSpec]:
    """Return the output of comparisons as tables."""
    return [OutputSpec("tables", "tables in the formats of reporters", "probe_reporters.output:TableOutput")]


@hookimpl
def probe_reporters() -> list[ReporterSpec]:
    """Return the reporters for Excel, csv, JSON lines and Parquet."""
    return [
        ReporterSpec("xlsx", "Excel workbook", "probe_reporters.xlsx:XlsxReporter", ".xlsx", answers=True),
        ReporterSpec(
            "csv", "comma separated values", "probe_reporters.csv:CsvReporter", ".csv", parameters=(BOM_PARAMETER,)
        ),
        ReporterSpec(
            "jsonl", "a JSON object per row", "probe_reporters.jsonl:JsonlReporter", ".jsonl", all_digits=True
        ),
        ReporterSpec(
            "parquet",
            "Parquet file with typed columns; needs pyarrow",
            "probe_reporters.parquet:ParquetReporter",
            ".parquet",
            all_digits=True,
            check="probe_reporters.frame_libraries:import_pyarrow",
        ),
    ]


@hookimpl
def probe_tables() -> list[TableSpec]:
    """Return the tables of the msprobe guides, one for each mode."""
    return [
        TableSpec("tensor", "metrics of tensors", "probe_reporters.tables:get_tensor_columns", "accuracy"),
        TableSpec(
            "statistics", "differences of statistics", "probe_reporters.tables:get_statistics_columns", "statistics"
        ),
        TableSpec("md5", "checksums side by side", "probe_reporters.tables:get_md5_columns", "checksum"),
    ]


@hookimpl
def probe_reasons() -> Mapping[str, Text]:
    """Return the texts of the reason codes of the core."""
    from probe_reporters.reason_texts import REASON_TEXTS

    return REASON_TEXTS


@hookimpl
def probe_commands() -> list[CommandSpec]:
    """Return the commands merge-result and completion."""
    return [
        CommandSpec(
            name="merge-result",
            summary="Merge the results of several ranks, so that each metric shows them side by side.",
            factory="probe_reporters.merge_command:merge_result",
        ),
        CommandSpec(
            name="completion",
            summary="Print or install the script that completes commands in your shell.",
            factory="probe_reporters.completion_command:completion",
        ),
    ]
