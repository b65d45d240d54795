"""Buffers that differ after a step: the effect of a call that loss and gradients do not show.

Buffers, such as the running statistics of a batch normalization or the codebook of a quantizer, are a part of the model
that its outputs in the same step need not show (docs/diagnosis.md#step-phases).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from probe_core.model import Reason
from probe_core.model.answers import Finding
from probe_core.store.names import is_module
from probe_diagnosis.answer.causes.compared_runs import ComparedRuns
from probe_diagnosis.answer.causes.phase_comparison import PhaseComparison, add_phase_evidence
from probe_diagnosis.answer.causes.traced_call import GOLDEN, TARGET, build_call_evidence, describe_unpaired_call
from probe_diagnosis.difference.nodes import Node
from probe_diagnosis.difference.reasons import CauseKind
from probe_diagnosis.limits import limits
from probe_diagnosis.timeline.rank_facts import RankFacts


def changes_buffers(node: Node, step_phases: PhaseComparison) -> bool:
    """Return True if buffers of the module around a call differ after the step, by clearly more than rounding."""
    return step_phases.find_changed_buffers(node.call.modules, limits().min_grown_multiple) is not None


def find_causes_in_buffers(
    facts: RankFacts, runs: ComparedRuns, step_phases: PhaseComparison, altered_calls: Sequence[Finding]
) -> list[Finding]:
    """Return the causes of buffers that differ after the step.

    They are the calls of their modules with different arguments, or else the first call of their modules that only one
    run makes, or else the buffers themselves if they differ entirely.

    Args:
        facts: The facts about the calls of the rank.
        runs: Both runs.
        step_phases: The phases of the step.
        altered_calls: Calls with different arguments whose values agree.
    """
    causes = []
    for cause in altered_calls:
        step = step_phases.find_changed_buffers(cause.modules) if "argument" in cause.evidence else None
        if step is not None:
            causes.append(add_phase_evidence(cause, step, is_stated=False))
    return causes or _find_unpaired_call(facts, runs, step_phases) or step_phases.find_lone_buffers()


def _find_unpaired_call(facts: RankFacts, runs: ComparedRuns, step_phases: PhaseComparison) -> list[Finding]:
    """Return the first call that only one run makes in a module whose buffers differ clearly."""
    calls: list[list[str]] = [[], []]
    for side, keys in enumerate((facts.target_only, facts.golden_only)):
        changing = (
            key
            for key in keys
            if not is_module(key)
            and step_phases.find_changed_buffers(runs.list_modules(key, side), limits().min_grown_multiple)
        )
        calls[side] = [*islice(changing, 1)]
    if not any(calls):
        return []
    side = TARGET if calls[TARGET] else GOLDEN
    op, modules = calls[side][0], runs.list_modules(calls[side][0], side)
    clause = describe_unpaired_call(side, calls[GOLDEN] if all(calls) else (), is_in_both=False)
    cause = Finding(
        op, "", Reason(CauseKind.ONE_SIDED.value, clause), build_call_evidence(calls), "", modules,
        runs.find_line(op, side), rank=facts.rank,
    )  # fmt: skip
    step = step_phases.find_changed_buffers(modules, limits().min_grown_multiple)
    return [cause if step is None else add_phase_evidence(cause, step, is_stated=False)]
