"""The phases of a step: they refine the causes that the search found, or are a cause if it found none.

The search covers calls. The step phases cover what happens between calls: reduction, unscaling, clipping, and steps of
optimizers that were not recorded as calls. The step phases never replace a cause (docs/diagnosis.md#step-phases).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from probe_core.model import Reason
from probe_core.model.answers import Finding
from probe_core.store.names import is_backward, is_gradient, parse_module_key
from probe_diagnosis.answer.causes.compared_runs import ComparedRuns
from probe_diagnosis.answer.causes.findings import extend_statement
from probe_diagnosis.answer.causes.replaced_calls import find_uncompared_calls
from probe_diagnosis.difference.nodes import Node
from probe_diagnosis.difference.reason_statement import PHASES_INTRO
from probe_diagnosis.difference.reasons import CauseKind
from probe_diagnosis.limits import limits
from probe_diagnosis.phases.phase_differences import AFTER_BACKWARD, UNTIL_BACKWARD, PhaseDifference
from probe_diagnosis.phases.phase_search import PhaseSearch
from probe_diagnosis.phases.phases_file import Number, PhasesFile, read_phases
from probe_diagnosis.phases.reference_phases import ReferencePhases
from probe_diagnosis.timeline.order import count_optimizer_steps
from probe_diagnosis.timeline.rank_facts import RankFacts

KIND = "phase"
"""Kind of a cause that the step phases alone show."""

REFINABLE_CAUSES = frozenset({CauseKind.RECEIVED, CauseKind.GRADIENT, CauseKind.GROWN})
"""Causes of the walk that name no call as the origin."""


class PhaseComparison:
    """The step phases of both runs.

    Args:
        facts: The facts about the rank.
        runs: Both runs.
        carried: The coarsest rounding of earlier steps, which parameters carry into this one.
        reference: The phases of a more precise run, which may excuse those of the target.
    """

    def __init__(
        self, facts: RankFacts, runs: ComparedRuns, carried: float = 0.0, reference: PhasesFile | None = None
    ) -> None:
        self._facts = facts
        # statistics of whole batches do not describe single rows
        phase_files = [None if runs.are_rows else read_phases(run.shown.path.parent) for run in runs.both]
        target, golden = phase_files
        self._numbers = facts.ops.numbers_by_key
        self._last_backward_call = max(np.flatnonzero(facts.ops.is_backward).tolist(), default=len(facts.ops))
        self._step_counts = count_optimizer_steps(facts.ops) or [0]
        self._both = None if target is None or golden is None else (target, golden)
        self._search = PhaseSearch(target, golden, facts.ops.noise, carried) if target and golden else None
        self._steps = list(self._search.iterate_differences()) if self._search is not None else []
        if target and golden and reference is not None:
            phases = ReferencePhases(target, golden, reference, facts.ops.noise, carried)
            self._steps = [step for step in self._steps if not phases.excuses(step)]
        self._runs = runs

    def find_refinement(self, node: Node) -> PhaseDifference | None:
        """Return the phase of the step that refines a cause without an origin; None for none."""
        op = node.call.op
        if is_gradient(op):
            return self._find_tied_parameter(node)
        if node.reason.cause not in REFINABLE_CAUSES:
            return None
        steps = (step for step in self._steps if step.is_effective and self._precedes(step, op))
        if self._facts.ops.is_before_modules(op):
            steps = (step for step in steps if step.step_phase.name != "batch")  # the batch is computed after the call
        return next((step for step in steps if not self._is_explained(step)), None)

    def _find_tied_parameter(self, node: Node) -> PhaseDifference | None:
        """Return that the parameter of a gradient that differs is tied to another parameter in one run only."""
        module, row = parse_module_key(node.call.op), node.reason.value.row
        if self._search is None or module is None:
            return None
        parameter = row.removeprefix(f"{node.call.op}.").partition(".")[0]
        return self._search.find_tied_parameter(f"{module.path}.{parameter}".lstrip("."))

    def add_lost_updates(self, altered_calls: Sequence[Finding]) -> list[Finding]:
        """Return calls with different arguments; to the first of another dtype, add lost updates."""
        whole = list(altered_calls)
        step = next((step for step in self._steps if "unchanged" in step.evidence), None)
        index = next((n for n, cause in enumerate(whole) if _is_recast(cause)), None)
        if step is not None and index is not None:
            whole[index] = add_phase_evidence(whole[index], step, is_stated=False)
        return whole

    def find_lone_phase(self, op: str = "", *, effective: bool) -> list[Finding]:
        """Return the first phase of the step that differs, for a search that found no call.

        Args:
            op: A call, to return only a phase that precedes it.
            effective: True for what changes values beyond rounding, False for what does not.
        """
        steps = [
            step
            for step in self._steps
            if step.part == AFTER_BACKWARD and step.is_effective is effective and (not op or self._precedes(step, op))
        ]
        return [self._create_finding(step) for step in steps if not self._is_explained(step)][:1]

    def find_other_loss(self) -> list[Finding]:
        """Return the first backward pass that starts from another value."""
        step = None if self._search is None else self._search.find_other_loss()
        return [] if step is None else [self._create_finding(step)]

    def find_changed_buffers(self, modules: Sequence[str], explained_multiple: float = 1.0) -> PhaseDifference | None:
        """Return that buffers of the innermost of ``modules`` agree before the step and differ after it, or None.

        The model itself may not be recorded, so calls outside of modules belong to it.
        """
        module = parse_module_key(modules[0]) if modules else None
        if self._search is None or (modules and module is None):
            return None
        return self._search.find_changed_buffers(module.path if module else "", explained_multiple)

    def find_lone_buffers(self) -> list[Finding]:
        """Return that buffers agree before the step and differ entirely after it."""
        step = None
        if self._search is not None:
            step = self._search.find_changed_buffers(None, limits().min_vanishing_multiple)
        return [] if step is None else [self._create_finding(step)]

    def find_setting(self) -> list[Finding]:
        """Return the first setting of an optimizer that differs and changes values."""
        steps = [step for step in self._steps if step.step_phase.name == "settings" and step.is_effective]
        return [self._create_finding(step) for step in steps if not self._is_explained(step)][:1]

    def find_phases_after_backward(self, op: str = "") -> list[Finding]:
        """Return what differs after a backward pass, unless something before explains it.

        These are phases that change values, and settings of optimizers.

        Args:
            op: A call, to return only phases that precede it.
        """
        return [
            self._create_finding(step)
            for step in self._steps
            if step.part == AFTER_BACKWARD and not self._is_explained(step)
            if step.is_effective or step.step_phase.name == "settings"
            if not op or self._precedes(step, op)
        ]

    def _create_finding(self, step: PhaseDifference) -> Finding:
        return Finding(
            step.step_phase.key, "", Reason(KIND, step.statement.text), _build_evidence(step),
            where=step.where or step.step_phase.where, rank=self._facts.rank, brief=step.statement.brief,
        )  # fmt: skip

    def is_rounding_before(self) -> bool:
        """Return True if only parameters whose update is rounding differ before the step."""
        return self._search is not None and self._search.is_rounding_before()

    def collect_carried_statistics(self) -> set[tuple[Number, ...]]:
        """Return the statistics of ``Search.list_unsettled_values``."""
        if self._search is None:
            return set()
        return {value.statistics for value in self._search.list_unsettled_values()}

    def are_gradients_same(self) -> bool:
        """Return True if the steps of optimizers take gradients that agree, in both runs."""
        return self._search is not None and self._search.are_gradients_same()

    def are_parameters_same(self) -> bool:
        """Return True if all steps of optimizers were captured in both runs, and leave equal parameters."""
        return self._search is not None and self._search.are_parameters_same()

    def find_excused_calls(self) -> tuple[set[str], set[str]]:
        """Return for both runs the calls after the backward pass that only that run made.

        They are those of optimizers that compute the same by other calls, if the phases of the step show that
        they do; else none.
        """
        excused_calls: tuple[set[str], set[str]] = set(), set()
        if self._search is None or not self._search.is_same_to_the_end():
            return excused_calls
        for side, alone in enumerate(find_uncompared_calls(self._facts)):
            run = self._runs.both[side]
            names = run.names()
            last = max((n for n, key in enumerate(names) if is_backward(key)), default=len(names))
            excused_calls[side].update(key for key in names[last + 1 :] if key in alone)
        return excused_calls

    @property
    def loses_gradients(self) -> bool:
        """True if gradients that arrive at parameters differ, or only one run has them."""
        return any(
            step.step_phase.name == "gradient" and not self._is_explained(step)
            for step in self._steps
            if step.part == AFTER_BACKWARD
        )

    @property
    def is_effective(self) -> bool:
        """True if a phase of the step differs in values."""
        return any(step.is_effective for step in self._steps)

    def describe_missing_phases(self) -> list[str]:
        """Return a sentence for each run that lacks phases that the other has."""
        if self._both is None:
            return []
        sentences = []
        for side, phase_file, other_file in (("target", *self._both), ("golden", *self._both[::-1])):
            reasons: dict[str, list[str]] = {}
            for phase, reason in phase_file.not_captured.items():
                if other_file.find_phases(phase):
                    reasons.setdefault(reason, []).append(phase)
            sentences += [
                f"the phases {', '.join(phases)} of the {side} were not captured: {reason}"
                for reason, phases in reasons.items()
            ]
        return sentences

    def is_after_backward(self, op: str) -> bool:
        """Return True for a call after the last backward pass, or after the first call of an optimizer."""
        number = self._numbers.get(op, -1)
        return not is_gradient(op) and (number > self._last_backward_call or self._step_counts[number] > 0)

    def _precedes(self, step: PhaseDifference, op: str) -> bool:
        """Return True for a phase before a call; of a step of an optimizer without calls, it is not known exactly."""
        if step.part == UNTIL_BACKWARD:
            return True
        number = self._numbers.get(op, -1)
        has_all_steps = self._search is not None and self._step_counts[-1] == self._search.step_count
        earlier_steps = self._step_counts[number] if has_all_steps else 0
        return number > self._last_backward_call or step.optimizer_step < earlier_steps

    def _is_explained(self, step: PhaseDifference) -> bool:
        """Return True for a phase after the backward pass, if anything before it differs."""
        return step.part == AFTER_BACKWARD and any(earlier_step.part == UNTIL_BACKWARD for earlier_step in self._steps)


def add_phase_evidence(cause: Finding, step: PhaseDifference, *, is_stated: bool) -> Finding:
    """Return a cause with what a phase of the step shows.

    Args:
        cause: The cause.
        step: What the phase shows.
        is_stated: True if the statement of the cause contains it.
    """
    evidence = {**cause.evidence, **_build_evidence(step), "phases": step.statement.text}
    stated_cause = cause if is_stated else extend_statement(cause, step.statement.prepend(f"; {PHASES_INTRO}"))
    return replace(stated_cause, evidence=evidence)


def _is_recast(cause: Finding) -> bool:
    """Return True for a call that computes in another dtype than its partner."""
    is_of_kind = cause.reason.code == CauseKind.ALTERED_CALL.value
    return is_of_kind and not {"argument", "target_dtype"} & cause.evidence.keys()


def _build_evidence(step: PhaseDifference) -> dict[str, float | int | str]:
    where = step.where or step.step_phase.where
    name: dict[str, float | int | str] = {"step_phase": f"{step.step_phase.name}.{step.step_phase.number}"}
    return name | ({"step_phase_where": where} if where else {}) | dict(step.evidence)
