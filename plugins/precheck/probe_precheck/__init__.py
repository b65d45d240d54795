"""The pre-check: every recorded API is run alone and held against a high-precision reference.

What this module exports is what plugins build on; each name is imported when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from probe_precheck.fitting import Given, rule_for, size_of
    from probe_precheck.model import (
        BACKWARD,
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
        Skipped,
        Status,
        UnusableCell,
        one_line,
    )
    from probe_precheck.protocols import Reference, Runner, SoloRule, Standard, StatusRule
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
        range_of,
        recorded_array,
        seed_at,
        value_of,
    )
    from probe_precheck.rules import Rules, package_text
    from probe_precheck.scripts import file_name, literal_of, script_of
    from probe_precheck.settings import RunnerOptions
    from probe_precheck.specs import ReferenceSpec, RunnerSpec, StandardSpec, StatusRuleSpec
    from probe_precheck.tables import COMPARE_DETAILS, NUMBERS, Column

__all__ = [
    "BACKWARD",
    "COMPARE_DETAILS",
    "FORWARD",
    "NEEDS_NONE",
    "NOT_RECORDED",
    "NUMBERS",
    "Array",
    "Call",
    "Column",
    "Given",
    "Judged",
    "Judgement",
    "Message",
    "NotRun",
    "Numbers",
    "Outcome",
    "Output",
    "Outputs",
    "Range",
    "Reference",
    "ReferenceSpec",
    "Rules",
    "Runner",
    "RunnerOptions",
    "RunnerSpec",
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
    "arguments_of",
    "common_value",
    "described_leaves",
    "file_name",
    "is_recorded",
    "limit_size",
    "literal_of",
    "most_bytes",
    "one_line",
    "package_text",
    "range_of",
    "recorded_array",
    "rule_for",
    "script_of",
    "seed_at",
    "size_of",
    "value_of",
]

_MODULES = ("specs", "model", "tables", "rules", "fitting", "settings", "protocols", "scripts", "rebuild")
"""Where the names are: what imports little comes first, for all are searched in turn."""


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in _MODULES:
            found = getattr(import_module(f"{__name__}.{module}"), name, None)
            if found is not None:
                globals()[name] = found
                return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
