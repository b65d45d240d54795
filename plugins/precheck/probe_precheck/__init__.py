"""Pre-check of recorded runs: every API call is run alone and compared with a high-precision reference.

The names that this module exports are the interface for plugins; each is imported on first use. The rules are
in docs/standards.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import exporter

if TYPE_CHECKING:
    from probe_precheck.assignment import Assignment
    from probe_precheck.calls import RecordedCalls, problem_of, rerunnable
    from probe_precheck.checking import INTERNAL, rule_of, runner_of, tables_of
    from probe_precheck.comparison import Compared, compare_rows, compared_cells
    from probe_precheck.csvfile import cell_text, cells, header, lines, read_table
    from probe_precheck.fitting import Given, rule_for, size_of
    from probe_precheck.judging import Judge
    from probe_precheck.memory import OUT_OF_MEMORY, max_call_bytes, max_input_bytes
    from probe_precheck.model import (
        BACKWARD,
        BEYOND_ROUNDING,
        FORWARD,
        NEEDS_NONE,
        NOT_RECORDED,
        Array,
        Call,
        Judged,
        Judgement,
        Message,
        NotRun,
        Numbers,
        Outcome,
        Output,
        Outputs,
        Result,
        Results,
        Skipped,
        Status,
        UnusableCell,
        one_line,
        plain_output,
        unknown_function,
        unlisted,
    )
    from probe_precheck.protocols import (
        Receiver,
        Reference,
        Replayer,
        ResultOption,
        Runner,
        SentRunner,
        SoloRule,
        Standard,
        StatusRule,
    )
    from probe_precheck.rebuild import (
        Range,
        Unbuildable,
        Walk,
        arguments_of,
        common_value,
        described_leaves,
        is_recorded,
        limit_call,
        limit_size,
        need_finite,
        never_random,
        range_of,
        recorded_array,
        seed_at,
        value_of,
    )
    from probe_precheck.replaying import NOTHING_TO_JUDGE, Recomputed, Replay
    from probe_precheck.results import (
        ResultFiles,
        api_of,
        append,
        detail_cells,
        lock,
        opened,
        result_cells,
    )
    from probe_precheck.rules import Rules, package_text
    from probe_precheck.scripts import file_name, literal_of, script_of
    from probe_precheck.settings import (
        PRECISION,
        RELEASES,
        RunnerOptions,
        Settings,
        check_names,
        missing_device,
        release_named,
    )
    from probe_precheck.specs import ReferenceSpec, RunnerSpec, StandardSpec, StatusRuleSpec
    from probe_precheck.supervisor import Job, Lost, Processes, supervise
    from probe_precheck.tables import COMPARE_DETAILS, COMPARE_RESULT, NUMBERS, Column, Tables
    from probe_precheck.translation import counted, in_language
    from probe_precheck.written import (
        Measure,
        WrittenCall,
        WrittenCheck,
        WrittenOutput,
        is_result,
        read_check,
    )
    from probe_precheck.yardstick import Measured, measure, rounding_message, summands

__all__ = [
    "BACKWARD",
    "BEYOND_ROUNDING",
    "COMPARE_DETAILS",
    "COMPARE_RESULT",
    "FORWARD",
    "INTERNAL",
    "NEEDS_NONE",
    "NOTHING_TO_JUDGE",
    "NOT_RECORDED",
    "NUMBERS",
    "OUT_OF_MEMORY",
    "PRECISION",
    "RELEASES",
    "Array",
    "Assignment",
    "Call",
    "Column",
    "Compared",
    "Given",
    "Job",
    "Judge",
    "Judged",
    "Judgement",
    "Lost",
    "Measure",
    "Measured",
    "Message",
    "NotRun",
    "Numbers",
    "Outcome",
    "Output",
    "Outputs",
    "Processes",
    "Range",
    "Receiver",
    "Recomputed",
    "RecordedCalls",
    "Reference",
    "ReferenceSpec",
    "Replay",
    "Replayer",
    "Result",
    "ResultFiles",
    "ResultOption",
    "Results",
    "Rules",
    "Runner",
    "RunnerOptions",
    "RunnerSpec",
    "SentRunner",
    "Settings",
    "Skipped",
    "SoloRule",
    "Standard",
    "StandardSpec",
    "Status",
    "StatusRule",
    "StatusRuleSpec",
    "Tables",
    "Unbuildable",
    "UnusableCell",
    "Walk",
    "WrittenCall",
    "WrittenCheck",
    "WrittenOutput",
    "api_of",
    "append",
    "arguments_of",
    "cell_text",
    "cells",
    "check_names",
    "common_value",
    "compare_rows",
    "compared_cells",
    "counted",
    "described_leaves",
    "detail_cells",
    "file_name",
    "header",
    "in_language",
    "is_recorded",
    "is_result",
    "limit_call",
    "limit_size",
    "lines",
    "literal_of",
    "lock",
    "max_call_bytes",
    "max_input_bytes",
    "measure",
    "missing_device",
    "need_finite",
    "never_random",
    "one_line",
    "opened",
    "package_text",
    "plain_output",
    "problem_of",
    "range_of",
    "read_check",
    "read_table",
    "recorded_array",
    "release_named",
    "rerunnable",
    "result_cells",
    "rounding_message",
    "rule_for",
    "rule_of",
    "runner_of",
    "script_of",
    "seed_at",
    "size_of",
    "summands",
    "supervise",
    "tables_of",
    "unknown_function",
    "unlisted",
    "value_of",
]

__getattr__ = exporter(
    __name__,
    {
        "assignment": "Assignment",
        "calls": "RecordedCalls problem_of rerunnable",
        "checking": "INTERNAL rule_of runner_of tables_of",
        "comparison": "Compared compare_rows compared_cells",
        "csvfile": "cell_text cells header lines read_table",
        "fitting": "Given rule_for size_of",
        "judging": "Judge",
        "memory": "OUT_OF_MEMORY max_call_bytes max_input_bytes",
        "model": "BACKWARD BEYOND_ROUNDING FORWARD NEEDS_NONE NOT_RECORDED Array Call Judged "
        "Judgement Message NotRun Numbers Outcome Output Outputs Result Results Skipped Status UnusableCell "
        "one_line plain_output unknown_function unlisted",
        "protocols": "Receiver Reference Replayer ResultOption Runner SentRunner SoloRule Standard "
        "StatusRule",
        "rebuild": "Range Unbuildable Walk arguments_of common_value described_leaves is_recorded "
        "limit_call limit_size need_finite never_random range_of recorded_array seed_at value_of",
        "replaying": "NOTHING_TO_JUDGE Recomputed Replay",
        "results": "ResultFiles api_of append detail_cells lock opened result_cells",
        "rules": "Rules package_text",
        "scripts": "file_name literal_of script_of",
        "settings": "PRECISION RELEASES RunnerOptions Settings check_names missing_device release_named",
        "specs": "ReferenceSpec RunnerSpec StandardSpec StatusRuleSpec",
        "supervisor": "Job Lost Processes supervise",
        "translation": "counted in_language",
        "tables": "COMPARE_DETAILS COMPARE_RESULT NUMBERS Column Tables",
        "written": "Measure WrittenCall WrittenCheck WrittenOutput is_result read_check",
        "yardstick": "Measured measure rounding_message summands",
    },
)
