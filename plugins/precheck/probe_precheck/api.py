"""The public names of probe-precheck, each imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import create_exporter

if TYPE_CHECKING:
    from probe_precheck.model import (
        Array,
        Call,
        Judgement,
        Message,
        NotRun,
        Outcome,
        Output,
        Outputs,
        OutputVerdict,
        Skipped,
        Status,
    )
    from probe_precheck.protocols import Reference, Runner, Standard, StatusRule
    from probe_precheck.rebuild import (
        ArgumentConverter,
        Unbuildable,
        derive_seed,
        get_arguments,
        parse_tensor,
        read_range,
        rebuild_plain_value,
    )
    from probe_precheck.runner_options import RunnerOptions
    from probe_precheck.scripts import make_file_name
    from probe_precheck.specs import JudgedOutputs, ReferenceSpec, RunnerSpec, StandardSpec, StatusRuleSpec
    from probe_precheck.tables import CsvColumn

__all__ = [
    "ArgumentConverter",
    "Array",
    "Call",
    "CsvColumn",
    "JudgedOutputs",
    "Judgement",
    "Message",
    "NotRun",
    "Outcome",
    "Output",
    "OutputVerdict",
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
    "derive_seed",
    "get_arguments",
    "make_file_name",
    "parse_tensor",
    "read_range",
    "rebuild_plain_value",
]

__getattr__ = create_exporter(
    __name__,
    {
        "model": "Array Call Judgement Message NotRun Outcome Output OutputVerdict Outputs Skipped Status",
        "protocols": "Reference Runner Standard StatusRule",
        "rebuild": "ArgumentConverter Unbuildable derive_seed get_arguments parse_tensor read_range "
        "rebuild_plain_value",
        "runner_options": "RunnerOptions",
        "scripts": "make_file_name",
        "specs": "JudgedOutputs ReferenceSpec RunnerSpec StandardSpec StatusRuleSpec",
        "tables": "CsvColumn",
    },
)
