"""Findings upstream of the first cause that explain it, although they change no value at their own call.

A forward call with another argument may show in its backward call only, a setting of an optimizer in the
calls of its step, and a tensor without a gradient in the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain

from probe_core.model import Reason
from probe_core.model.answers import Finding
from probe_core.store.names import is_backward, is_gradient
from probe_diagnosis.answer.causes.compared_runs import ComparedRuns
from probe_diagnosis.answer.causes.findings import create_finding, extend_statement, strip_numbers
from probe_diagnosis.answer.causes.step_effect import StepEffect
from probe_diagnosis.difference.differing_values import describe_difference, describe_values
from probe_diagnosis.difference.nodes import Node
from probe_diagnosis.difference.reasons import CauseKind, OutputAgreement
from probe_diagnosis.difference.statement import Statement
from probe_diagnosis.timeline.compared_calls import ComparedCall, ValueComparison
from probe_diagnosis.timeline.coverage import ONE_NONE
from probe_diagnosis.timeline.order import OPTIMIZER
from probe_diagnosis.timeline.rank_facts import RankFacts
from probe_diagnosis.timeline.recorded import find_value
from probe_diagnosis.timeline.value_table import REQUIRES_OTHER_GRADIENT

SIDES = ("target", "golden")


class UpstreamSearch:
    """Search for the finding that explains the first cause.

    Args:
        facts: The facts about the rank.
        runs: Both runs.
        phases: What differs in the phases of the step after the backward pass.
        effective: The first of these that changes values; empty for none.
        losses: The first backward pass that starts from another value; empty for none.
        altered_calls: The calls with a different argument whose values agree.
        is_after_backward: True if the call of the first cause is after a backward pass.
        loses_gradients: True if a phase shows gradients that only one run has or that differ.
    """

    def __init__(
        self,
        facts: RankFacts,
        runs: ComparedRuns,
        phases: Sequence[Finding],
        effective: Sequence[Finding],
        losses: Sequence[Finding],
        altered_calls: Sequence[Node],
        *,
        is_after_backward: bool,
        loses_gradients: bool,
    ) -> None:
        self._facts = facts
        self._runs = runs
        self._phases = phases
        self._effective = effective
        self._losses = losses
        self._is_after_backward = is_after_backward
        self._phases_lose_gradients = loses_gradients
        self._made = {node.call.op: node for node in altered_calls if node.reason.argument is not None}

    def explain(self, cause: Finding, node: Node) -> Finding | None:
        """Return the finding that explains the first cause; None if there is none.

        Args:
            cause: The first cause.
            node: The call that it is about.
        """
        sources: tuple[Callable[[Finding, Node], Finding | None], ...] = (
            self._explain_by_forward_call, self._explain_by_argument, self._explain_by_graph, self._explain_by_loss,
            self._explain_by_phase,
        )  # fmt: skip
        return next(filter(None, (source(cause, node) for source in sources)), None)

    def exclude_origin(self, origin: Finding, findings: Sequence[Finding]) -> list[Finding]:
        """Return the findings that are neither the origin nor calls of the step of its optimizer."""
        is_phase = origin.op in {candidate.op for candidate in self._phases}
        return [
            candidate
            for candidate in findings
            if candidate.op not in (origin.op, *origin.same, *origin.consequences[:1])
            and get_forward_name(candidate.op) not in (origin.op, *origin.same)
            and not (is_phase and _is_in_optimizer_step(candidate, origin))
        ]

    def _explain_by_forward_call(self, cause: Finding, node: Node) -> Finding | None:
        """Return the forward call of a backward call that introduces a difference, if an argument differs."""
        altered = self._made.get(get_forward_name(node.call.op))
        if altered is None or node.reason.cause not in (CauseKind.INTRODUCED, CauseKind.NOT_FINITE):
            return None
        first, *alike = [
            candidate for candidate in self._made.values() if _get_argument_key(candidate) == _get_argument_key(altered)
        ]
        assert first.reason.argument is not None
        reason = replace(first.reason, value=first.reason.argument)
        origin = create_finding(replace(first, reason=reason), self._runs.find_line)
        origin = replace(origin, same=tuple(candidate.call.op for candidate in alike))
        more = Statement(f", but the backward call {cause.op} {_describe_effect(node)}")
        return _attach_consequence(cause, extend_statement(origin, more))

    def _explain_by_argument(self, cause: Finding, node: Node) -> Finding | None:
        """Return an earlier call with another argument that may have caused the difference."""
        altered = self._made.get(node.reason.changed_call) or self._find_altered_call_within(node)
        if altered is None:
            return None
        origin = create_finding(altered, self._runs.find_line)
        more = Statement(f", but {cause.op} downstream of it differs by more than rounding explains")
        return _attach_consequence(cause, extend_statement(origin, more))

    def _find_altered_call_within(self, node: Node) -> Node | None:
        """Return the first call within a module with another argument whose outputs were not compared; else None."""
        if node.reason.cause is not CauseKind.INTRODUCED:
            return None
        return next(
            (
                altered
                for altered in self._made.values()
                if node.call.op in altered.call.modules
                and altered.reason.output_agreement is OutputAgreement.NOT_COMPARED
            ),
            None,
        )

    def _explain_by_loss(self, cause: Finding, node: Node) -> Finding | None:
        """Return the backward pass that starts from another value, for a gradient that no other call explains."""
        op = node.call.op
        is_received = node.reason.cause in (CauseKind.RECEIVED, CauseKind.GRADIENT) and cause.op == op
        if not self._losses or not is_received or not (is_backward(op) or is_gradient(op)):
            return None
        return _attach_consequence(cause, self._losses[0])

    def _explain_by_phase(self, cause: Finding, node: Node) -> Finding | None:
        """Return the phase of the step after the backward pass that explains a call after that pass.

        A phase explains the calls of the step that it belongs to. One that changes values also explains calls
        that receive values that differ, or values that were not compared.
        """
        if not self._is_after_backward:
            return None
        phases: Sequence[Finding] = [phase for phase in self._phases if _is_in_optimizer_step(cause, phase)]
        if not phases and (node.reason.cause is CauseKind.RECEIVED or node.reason.inputs.not_compared):
            phases = self._effective
        origin = next(iter(phases), None)
        return None if origin is None else _attach_consequence(cause, origin)

    def _explain_by_graph(self, cause: Finding, node: Node) -> Finding | None:
        """Return the first call with a tensor that only one run follows for gradients.

        It explains what differs in the backward pass and after it.
        """
        op = node.call.op
        is_affected = is_backward(op) or is_gradient(op) or (self._is_after_backward and self._loses_gradients())
        origin = self.find_graph_difference() if is_affected and node.reason.argument is None else None
        if origin is None:
            return None
        return _attach_consequence(
            cause, extend_statement(origin, Statement(f", and {cause.op} {_describe_effect(node)}"))
        )

    def _loses_gradients(self) -> bool:
        """Return True if one run lacks gradients that the other has."""
        is_none = self._facts.tally.lacking[ONE_NONE] > 0
        return is_none or any(self._list_lone_gradients()) or self._phases_lose_gradients

    def _list_lone_gradients(self) -> list[list[str]]:
        """Return for each run the calls of the backward pass and the gradients that only that run has."""
        sides = (self._facts.target_only, self._facts.golden_only)
        return [[key for key in keys if is_backward(key) or is_gradient(key)] for keys in sides]

    def find_lone_gradients(self) -> list[Finding]:
        """Return the cause of gradients that only one run has if all other values agree; empty for none.

        Calls of the backward pass that only one run makes are none if the loss and all gradients of parameters agree:
        the runs compute the same gradients in different ways.
        """
        alone = self._list_lone_gradients()
        graph = self.find_graph_difference()
        if graph is None or not any(alone):
            return []
        if not any(map(is_gradient, chain(*alone))) and StepEffect(self._facts.ops).are_ends_same():
            return []
        side = int(not alone[0])
        more = Statement(f", and {alone[side][0]} is recorded in the {SIDES[side]} only")
        return [extend_statement(graph, more)]

    def find_graph_difference(self) -> Finding | None:
        """Return the first call with a tensor that requires a gradient in one run only; None for none.

        A tensor counts only if a gradient arrives at its call in that run: a parameter that is moved to
        another device requires one as well.
        """
        calls = self._facts.ops
        has_other = calls.has_any(calls.table.lines["flags"] & REQUIRES_OTHER_GRADIENT > 0)
        if not has_other.any():
            return None
        has_backward = any(calls.is_backward)
        for number in calls.effect_order:
            if not has_other[number] or calls.is_backward[number]:
                continue
            call = calls[number]
            value = next(candidate for candidate in call.values if candidate.requires_other_gradient)
            of_target = find_value(self._runs.both[0], call.op, value.row)
            side = 0 if of_target is not None and of_target.requires_grad else 1
            key = calls.golden_ops.get(number, call.op) if side else call.op
            backward = self._runs.both[side].find(key.replace(".forward", ".backward"))
            if backward is not None or not has_backward:
                return self._create_graph_finding(call, value, SIDES[side])
        return None

    def _create_graph_finding(self, call: ComparedCall, value: ValueComparison, with_gradient: str) -> Finding:
        """Return the finding on a tensor of a call that requires a gradient in one run only."""
        path = value.row.removeprefix(f"{call.op}.")
        name = self._runs.argument_name(call.op, path)
        verb = "receives" if value.side.is_source else "returns"
        shown = f"{name}, {path}" if name else path
        clause = f"{verb} a tensor that requires a gradient in the {with_gradient} only"
        statement = Statement(clause, "", shown)
        evidence: dict[str, float | int | str] = {"value": value.row, "requires_grad_in": with_gradient}
        return Finding(
            call.op, value.row, Reason(CauseKind.GRAPH.value, statement.text), evidence, value.position,
            call.modules, self._runs.find_line(call.op), rank=self._facts.rank, brief=statement.brief,
        )  # fmt: skip


def get_forward_name(op: str) -> str:
    """Return the name of the forward call of a backward call; empty for any other call."""
    return f"{head}.forward" if (head := op.removesuffix(".backward")) != op else ""


def _get_argument_key(node: Node) -> tuple[str, str, str]:
    """Return the API of a call, and its argument that differs with both values."""
    argument = node.reason.argument
    assert argument is not None
    return strip_numbers(node.call.op), argument.row.removeprefix(node.call.op), argument.evidence


def _describe_effect(node: Node) -> str:
    """Return a clause on what differs in a call; its subject is the call."""
    if node.reason.cause is CauseKind.RECEIVED:
        return f"receives {describe_values(node.reason.value)}"
    value = node.reason.value
    return (
        describe_difference(value) if node.reason.cause is CauseKind.GRADIENT else f"returns {describe_values(value)}"
    )


def _is_in_optimizer_step(cause: Finding, phase: Finding) -> bool:
    """Return True for a call that the step of an optimizer makes, or the line of code of a phase."""
    return OPTIMIZER in cause.modules or (bool(cause.where) and cause.where == phase.where)


def _attach_consequence(cause: Finding, origin: Finding) -> Finding:
    """Return the origin of a cause, which becomes the first of its consequences."""
    return replace(
        origin,
        evidence={**cause.evidence, **origin.evidence},
        consequences=(cause.op, *cause.consequences),
        consequence_count=cause.consequence_count + 1,
    )
