"""Pre-check of recorded runs: every API call is run alone and compared with a high-precision reference.

The names that this module exports are the interface for plugins; each is imported on first use. The rules are
in docs/standards.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import exporter

if TYPE_CHECKING:
    from probe_precheck.calls import RecordedCalls, rerunnable
    from probe_precheck.checking import runner_of
    from probe_precheck.fitting import Given, rule_for, size_of
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
        limit_size,
        most_bytes,
        need_finite,
        never_random,
        range_of,
        recorded_array,
        seed_at,
        value_of,
    )
    from probe_precheck.replaying import NOTHING_TO_JUDGE, Recomputed, Replay
    from probe_precheck.rules import Rules, package_text
    from probe_precheck.scripts import file_name, literal_of, script_of
    from probe_precheck.settings import RunnerOptions, Settings, missing_device, release_named
    from probe_precheck.specs import ReferenceSpec, RunnerSpec, StandardSpec, StatusRuleSpec
    from probe_precheck.supervisor import Job, Lost, Processes, supervise
    from probe_precheck.tables import COMPARE_DETAILS, NUMBERS, Column
    from probe_precheck.written import (
        Measure,
        WrittenCall,
        WrittenCheck,
        WrittenOutput,
        is_result,
        read_check,
    )

__all__ = [
    "BACKWARD",
    "BEYOND_ROUNDING",
    "COMPARE_DETAILS",
    "FORWARD",
    "NEEDS_NONE",
    "NOTHING_TO_JUDGE",
    "NOT_RECORDED",
    "NUMBERS",
    "Array",
    "Call",
    "Column",
    "Given",
    "Job",
    "Judged",
    "Judgement",
    "Lost",
    "Measure",
    "Message",
    "NotRun",
    "Numbers",
    "Outcome",
    "Output",
    "Outputs",
    "Processes",
    "Range",
    "Recomputed",
    "RecordedCalls",
    "Reference",
    "ReferenceSpec",
    "Replay",
    "Replayer",
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
    "Unbuildable",
    "UnusableCell",
    "Walk",
    "WrittenCall",
    "WrittenCheck",
    "WrittenOutput",
    "arguments_of",
    "common_value",
    "described_leaves",
    "file_name",
    "is_recorded",
    "is_result",
    "limit_size",
    "literal_of",
    "missing_device",
    "most_bytes",
    "need_finite",
    "never_random",
    "one_line",
    "package_text",
    "plain_output",
    "range_of",
    "read_check",
    "recorded_array",
    "release_named",
    "rerunnable",
    "rule_for",
    "runner_of",
    "script_of",
    "seed_at",
    "size_of",
    "supervise",
    "unknown_function",
    "unlisted",
    "value_of",
]

__getattr__ = exporter(
    __name__,
    {
        "calls": "RecordedCalls rerunnable",
        "checking": "runner_of",
        "fitting": "Given rule_for size_of",
        "model": "BACKWARD BEYOND_ROUNDING FORWARD NEEDS_NONE NOT_RECORDED Array Call Judged Judgement "
        "Message NotRun Numbers Outcome Output Outputs Results Skipped Status UnusableCell one_line "
        "plain_output unknown_function unlisted",
        "protocols": "Reference Replayer ResultOption Runner SentRunner SoloRule Standard StatusRule",
        "rebuild": "Range Unbuildable Walk arguments_of common_value described_leaves is_recorded "
        "limit_size most_bytes need_finite never_random range_of recorded_array "
        "seed_at value_of",
        "replaying": "NOTHING_TO_JUDGE Recomputed Replay",
        "rules": "Rules package_text",
        "scripts": "file_name literal_of script_of",
        "settings": "RunnerOptions Settings missing_device release_named",
        "specs": "ReferenceSpec RunnerSpec StandardSpec StatusRuleSpec",
        "supervisor": "Job Lost Processes supervise",
        "tables": "COMPARE_DETAILS NUMBERS Column",
        "written": "Measure WrittenCall WrittenCheck WrittenOutput is_result read_check",
    },
)
