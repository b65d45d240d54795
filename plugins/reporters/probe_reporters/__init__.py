"""Output formats of probe (xlsx, csv, jsonl, parquet), tables, names of result files, and the merging of results.

Plugins may use what this module exports; each name is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import create_exporter

if TYPE_CHECKING:
    from probe_reporters.output import write_table as write_table
    from probe_reporters.protocols import AnswerWriter as AnswerWriter
    from probe_reporters.protocols import MergeOption as MergeOption
    from probe_reporters.protocols import PageWriter as PageWriter
    from probe_reporters.protocols import Reporter as Reporter
    from probe_reporters.protocols import TableWriter as TableWriter
    from probe_reporters.reason_texts import ReasonTexts as ReasonTexts
    from probe_reporters.spreadsheet_text import neutralise as neutralise
    from probe_reporters.spreadsheet_text import replace_surrogates as replace_surrogates
    from probe_reporters.table import CellColumn as CellColumn
    from probe_reporters.table import Table as Table
    from probe_reporters.time_stamps import add_second as add_second
    from probe_reporters.time_stamps import claim_time_stamp as claim_time_stamp


__getattr__ = create_exporter(
    __name__,
    {
        "output": "write_table",
        "protocols": "AnswerWriter MergeOption PageWriter Reporter TableWriter",
        "reason_texts": "ReasonTexts",
        "spreadsheet_text": "neutralise replace_surrogates",
        "table": "CellColumn Table",
        "time_stamps": "add_second claim_time_stamp",
    },
)
