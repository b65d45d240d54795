"""Hooks of the pre-check: runners of recorded calls, their references, and the rules that judge them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.plugins.hookspecs import hookspec

if TYPE_CHECKING:
    from probe_precheck.specs import ReferenceSpec, RunnerSpec, StandardSpec, StatusRuleSpec

KINDS = {
    "references": "probe_precheck.specs:ReferenceSpec",
    "runners": "probe_precheck.specs:RunnerSpec",
    "status_rules": "probe_precheck.specs:StatusRuleSpec",
    "standards": "probe_precheck.specs:StandardSpec",
}
TRIALS = {
    "references": "probe_precheck.testing:check_reference",
    "runners": "probe_precheck.testing:check_closed_runner",
    "status_rules": "probe_precheck.testing:check_status_rule",
    "standards": "probe_precheck.testing:check_standard",
}


@hookspec
def probe_references() -> list[ReferenceSpec]:  # type: ignore[empty-body]
    """Return high-precision references of APIs; called when a pre-check is planned.

    Example::

        return [ReferenceSpec(name="exp", summary="exp in float64", api="Torch.exp",
                              factory="my_package.references:Exp")]
    """


@hookspec
def probe_runners() -> list[RunnerSpec]:  # type: ignore[empty-body]
    """Return runners, which run the recorded calls of a framework alone; called when a pre-check is planned.

    Example::

        return [RunnerSpec(name="mine", summary="runs calls of my framework", framework="mine",
                           factory="my_package.runner:Runner")]
    """


@hookspec
def probe_status_rules() -> list[StatusRuleSpec]:  # type: ignore[empty-body]
    """Return first stages, which determine the status of each output; called when a pre-check is planned.

    Example::

        return [StatusRuleSpec(name="mine", summary="my rule", framework="mine",
                               factory="my_package.rule:Rule")]
    """


@hookspec
def probe_standards() -> list[StandardSpec]:  # type: ignore[empty-body]
    """Return precision standards, which measure and judge outputs; called when a pre-check is planned.

    Example::

        return [StandardSpec(name="mine", summary="my team's bound", label="mine",
                             apis="my_package:apis.yaml", factory="my_package.bound:Bound")]
    """
