"""Output formats of probe (xlsx, csv, jsonl, parquet), tables, names of result files, and the merging of results.

Plugins may use what this module exports; each name is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import create_exporter

if TYPE_CHECKING:
    from probe_reporters.messages import NAN, NOT_AVAILABLE, UNSUPPORTED, Text
    from probe_reporters.output import write_table
    from probe_reporters.protocols import AnswerWriter, Highlighter, MergeOption, PageWriter, Reporter, TableWriter
    from probe_reporters.reason_texts import ReasonTexts
    from probe_reporters.specs import HighlightSpec
    from probe_reporters.spreadsheet_text import neutralise, replace_surrogates
    from probe_reporters.table import CellColumn, Table
    from probe_reporters.time_stamps import add_second, claim_time_stamp

__all__ = [
    "NAN",
    "NOT_AVAILABLE",
    "UNSUPPORTED",
    "AnswerWriter",
    "CellColumn",
    "HighlightSpec",
    "Highlighter",
    "MergeOption",
    "PageWriter",
    "ReasonTexts",
    "Reporter",
    "Table",
    "TableWriter",
    "Text",
    "add_second",
    "claim_time_stamp",
    "neutralise",
    "replace_surrogates",
    "write_table",
]

__getattr__ = create_exporter(
    __name__,
    {
        "messages": "NAN NOT_AVAILABLE UNSUPPORTED Text",
        "output": "write_table",
        "protocols": "AnswerWriter Highlighter MergeOption PageWriter Reporter TableWriter",
        "reason_texts": "ReasonTexts",
        "specs": "HighlightSpec",
        "spreadsheet_text": "neutralise replace_surrogates",
        "table": "CellColumn Table",
        "time_stamps": "add_second claim_time_stamp",
    },
)
