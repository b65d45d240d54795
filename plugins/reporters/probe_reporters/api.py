"""The public names of probe-reporters, each imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import create_exporter

if TYPE_CHECKING:
    from probe_reporters.merge import MergeConfig, merge_results
    from probe_reporters.messages import NAN, NOT_AVAILABLE, Text
    from probe_reporters.output import write_table
    from probe_reporters.protocols import AnswerWriter, Highlighter, MergeOption, PageWriter, Reporter, TableWriter
    from probe_reporters.reason_texts import ReasonTexts
    from probe_reporters.results import MERGED_FILE_PREFIX
    from probe_reporters.specs import HighlightSpec
    from probe_reporters.spreadsheet_text import neutralise, replace_surrogates
    from probe_reporters.table import CellColumn, Table
    from probe_reporters.time_stamps import add_second, claim_time_stamp

__all__ = [
    "MERGED_FILE_PREFIX",
    "NAN",
    "NOT_AVAILABLE",
    "AnswerWriter",
    "CellColumn",
    "HighlightSpec",
    "Highlighter",
    "MergeConfig",
    "MergeOption",
    "PageWriter",
    "ReasonTexts",
    "Reporter",
    "Table",
    "TableWriter",
    "Text",
    "add_second",
    "claim_time_stamp",
    "merge_results",
    "neutralise",
    "replace_surrogates",
    "write_table",
]

__getattr__ = create_exporter(
    __name__,
    {
        "merge": "MergeConfig merge_results",
        "messages": "NAN NOT_AVAILABLE Text",
        "output": "write_table",
        "protocols": "AnswerWriter Highlighter MergeOption PageWriter Reporter TableWriter",
        "results": "MERGED_FILE_PREFIX",
        "reason_texts": "ReasonTexts",
        "specs": "HighlightSpec",
        "spreadsheet_text": "neutralise replace_surrogates",
        "table": "CellColumn Table",
        "time_stamps": "add_second claim_time_stamp",
    },
)
