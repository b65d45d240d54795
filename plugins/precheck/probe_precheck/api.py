"""The public names of probe-precheck, each imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import create_exporter

if TYPE_CHECKING:
    from probe_precheck.model import (
        Array,
        Call,
        Judged,
        Judgement,
        Message,
        NotRun,
        Outcome,
        Output,
        Outputs,
        Skipped,
        Status,
    )
    from probe_precheck.protocols import Reference, Runner, Standard, StatusRule
    from probe_precheck.rebuild import Unbuildable, Walk, arguments_of, common_value, range_of, seed_at, value_of
    from probe_precheck.scripts import file_name
    from probe_precheck.settings import RunnerOptions
    from probe_precheck.specs import ReferenceSpec, RunnerSpec, StandardSpec, StatusRuleSpec
    from probe_precheck.tables import Column

__all__ = [
    "Array",
    "Call",
    "Column",
    "Judged",
    "Judgement",
    "Message",
    "NotRun",
    "Outcome",
    "Output",
    "Outputs",
    "Reference",
    "ReferenceSpec",
    "Runner",
    "RunnerOptions",
    "RunnerSpec",
    "Skipped",
    "Standard",
    "StandardSpec",
    "Status",
    "StatusRule",
    "StatusRuleSpec",
    "Unbuildable",
    "Walk",
    "arguments_of",
    "common_value",
    "file_name",
    "range_of",
    "seed_at",
    "value_of",
]

__getattr__ = create_exporter(
    __name__,
    {
        "model": "Array Call Judged Judgement Message NotRun Outcome Output Outputs Skipped Status",
        "protocols": "Reference Runner Standard StatusRule",
        "rebuild": "Unbuildable Walk arguments_of common_value range_of seed_at value_of",
        "scripts": "file_name",
        "settings": "RunnerOptions",
        "specs": "ReferenceSpec RunnerSpec StandardSpec StatusRuleSpec",
        "tables": "Column",
    },
)
