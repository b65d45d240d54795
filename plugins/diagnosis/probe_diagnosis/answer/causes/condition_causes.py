"""Differences that conditions explain: another batch, or another random state.

A call that draws from another random state returns other values, and so does every call that receives another batch.
Neither is an error of that call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from probe_core.model import Reason
from probe_core.model.answers import Answer, Finding, Outcome
from probe_diagnosis.answer.causes.compared_runs import ComparedRuns
from probe_diagnosis.conditions.condition_sentences import create_conditions, describe_condition, describe_generators
from probe_diagnosis.conditions.differences import (
    ConditionDifference,
    ConditionKind,
    find_condition_differences,
)
from probe_diagnosis.conditions.file import RunConditions, read_conditions
from probe_diagnosis.conditions.random_states import DrawingCalls, RandomDifference, Since
from probe_diagnosis.difference.reasons import CauseKind
from probe_diagnosis.difference.statement import Statement
from probe_diagnosis.limits import limits
from probe_diagnosis.phases.phases_file import PhasesFile, read_phases
from probe_diagnosis.timeline.compared_calls import Basis
from probe_diagnosis.timeline.rank_facts import RankFacts
from probe_diagnosis.timeline.recorded import find_value

BATCH_OP, RANDOM_OP = "conditions.batch", "conditions.random_state"
"""Names of causes that are conditions, in place of the key of a call."""

INTRODUCED_CODES = frozenset({CauseKind.INTRODUCED.value, CauseKind.GROWN.value, CauseKind.NOT_FINITE.value})
"""Codes of causes that other random numbers of the call explain."""

OUTSIDE_DECISION_CODES = frozenset({CauseKind.ARGUMENT.value, CauseKind.ONE_SIDED.value})
"""Codes of causes that code outside of recorded calls decides; a condition need not be the reason."""

OUTSIDE_RANDOM_CODES = OUTSIDE_DECISION_CODES | {CauseKind.RECEIVED.value}
"""Codes of causes that random numbers drawn outside of recorded calls may explain."""

BATCH_EXPLAINED_CODES = OUTSIDE_RANDOM_CODES | {CauseKind.GRADIENT.value, CauseKind.GROWN.value}
"""Codes of causes that other values of the batch explain."""

BATCH_KINDS = frozenset({ConditionKind.BATCH, ConditionKind.DATA})
"""Kinds of conditions of whole batches."""


@dataclass(frozen=True, slots=True)
class ConditionExplanation:
    """A cause that conditions explain.

    Attributes:
        origin: The finding that explains it.
        further: The other causes, without those that conditions explain.
    """

    origin: Finding
    further: Sequence[Finding]


class ConditionCauses:
    """The conditions of both runs in one step and rank.

    Args:
        facts: The facts about the rank.
        runs: Both runs.

    Attributes:
        differences: The conditions that differ, the most influential first.
        lacking: The runs whose conditions were not recorded.
    """

    def __init__(self, facts: RankFacts, runs: ComparedRuns) -> None:
        self._facts, self._runs = facts, runs
        directories = [run.shown.path.parent for run in runs.both]
        target, golden = (read_conditions(directory) for directory in directories)
        self.lacking = [name for name, item in (("target", target), ("golden", golden)) if item is None]
        conditions = (target or RunConditions(), golden or RunConditions())
        differences = find_condition_differences(*conditions) if not self.lacking else []
        # rows of batches are compared because the batches differ
        self.differences = [item for item in differences if not (runs.are_rows and item.kind in BATCH_KINDS)]
        self._draws = DrawingCalls(*conditions)
        batch = [item for item in self.differences if item.kind is ConditionKind.BATCH]
        phase_files = [read_phases(directory) for directory in directories if batch]
        kinds = [(classify_batch_difference(item, phase_files, facts.ops.noise), item) for item in batch]
        unknown = BatchDifference.UNKNOWN
        others = (BatchDifference.VALUES, BatchDifference.SHAPE, unknown)
        self._values = [item for kind, item in kinds if kind in others]
        self._order = [item for kind, item in kinds if kind in (BatchDifference.ORDER, unknown)]
        rounded = {item.name for kind, item in kinds if kind is BatchDifference.ROUNDING}
        self.differences = [
            item for item in self.differences if not (item.kind is ConditionKind.BATCH and item.name in rounded)
        ]
        states = [item.random for item in self.differences if item.random is not None]
        self._random = sorted(states, key=lambda item: not item.is_seed)

    def add_to_answer(self, answer: Answer, step: str) -> Answer:
        """Return an answer that states the conditions that differ.

        For runs that agree, random states that differ are stated only if they were seeded differently. A batch that
        the program computes after the first cause is a consequence.
        """
        is_agreed = answer.outcome is Outcome.AGREE
        is_consequence = bool(answer.causes) and self._is_before_model(answer.causes[0])
        shown = [
            difference
            for difference in self.differences
            if not (is_agreed and difference.random and not difference.random.is_seed)
            if not (is_consequence and difference.kind is ConditionKind.BATCH)
        ]
        stated = create_conditions(shown, step, self._facts.rank)
        return replace(answer, conditions=stated, unknown_conditions=tuple(self.lacking))

    def explain(self, causes: Sequence[Finding]) -> ConditionExplanation | None:
        """Return the condition that explains the first cause, with the causes that remain; None for none."""
        first = causes[0]
        generators = self._find_generators(first)
        if generators is not None:
            origin = self._create_random_finding(first, *generators)
        elif batch := self._find_explaining_batch(first):
            origin = self._create_batch_finding(first, batch)
        elif first.reason.code in OUTSIDE_RANDOM_CODES and (states := self._find_states_before(first)):
            origin = self._create_received_finding(first, states)
        else:
            return None
        origin = replace(
            origin,
            consequences=(first.op, *first.consequences),
            consequence_count=first.consequence_count + 1,
        )
        remaining = [cause for cause in causes if cause is not first or cause.reason.code in OUTSIDE_DECISION_CODES]
        if origin.op == BATCH_OP:
            remaining = [cause for cause in remaining if cause.reason.code in OUTSIDE_DECISION_CODES]
        return ConditionExplanation(origin, [cause for cause in remaining if self._find_generators(cause) is None])

    def _find_explaining_batch(self, cause: Finding) -> ConditionDifference | None:
        """Return the tensor of the batch that explains a cause; None for none.

        Other values explain what receives them. Values in another order also explain a call that introduces a
        difference, if its inputs were compared by their statistics, which do not show the order.
        """
        if self._is_before_model(cause):
            return None
        is_by_tensor = cause.evidence.get("judged_by") == Basis.TENSOR.text
        if cause.reason.code in BATCH_EXPLAINED_CODES:
            return next(iter([*self._values, *self._order]), None)
        is_blind = cause.reason.code in INTRODUCED_CODES and not is_by_tensor
        return next(iter(self._order), None) if is_blind else None

    def _find_states_before(self, cause: Finding) -> list[RandomDifference]:
        """Return the random states that differ before a call, and may explain what it receives."""
        if cause.reason.code == CauseKind.ARGUMENT.value and self._is_written(cause):
            return [state for state in self._random if state.is_seed]
        numbers = self._facts.ops.numbers_by_key
        number = numbers.get(cause.op, len(numbers))
        return [
            state
            for state in self._random
            if state.is_seed
            or state.since in (Since.START, Since.FORWARD)
            or numbers.get(state.op, len(numbers)) < number
        ]

    def _is_written(self, cause: Finding) -> bool:
        """Return True if the argument that differs is a decimal number of few digits in both runs.

        A number that is drawn from a continuous distribution has about as many digits as float64 can express.
        """
        calls, row = self._facts.ops, str(cause.evidence.get("argument", ""))
        keys = cause.op, calls.golden_ops.get(calls.numbers_by_key.get(cause.op, -1), cause.op)
        numbers = [
            value.statistics.max if (value := find_value(run, key, row.replace(cause.op, key, 1))) is not None else None
            for run, key in zip(self._runs.both, keys)
        ]
        return all(type(number) is float and len(repr(number)) <= limits().max_written_characters for number in numbers)

    def _find_generators(self, cause: Finding) -> tuple[str, str] | None:
        """Return the generators from which a call, or one within a module, drew other numbers in both runs."""
        if cause.reason.code not in INTRODUCED_CODES:
            return None
        calls = self._facts.ops
        number = calls.numbers_by_key.get(cause.op)
        if number is None:
            return None
        generators = self._draws.find_differing_generators(cause.op, calls.golden_ops.get(number, cause.op))
        if generators or not cause.op.startswith("Module."):
            return generators
        for op in self._draws.iterate_ops():
            inner = calls.numbers_by_key.get(op)
            if inner is not None and cause.op in calls.modules[inner]:
                generators = self._draws.find_differing_generators(op, calls.golden_ops.get(inner, op))
                if generators is not None:
                    return generators
        return None

    def _create_random_finding(self, cause: Finding, generator: str, golden_generator: str) -> Finding:
        """Return the finding on the random states from which a call draws."""
        if generator != golden_generator:
            sources = f"from {generator} in the target and from {golden_generator} in the golden"
            clause = f"{cause.op} draws random numbers {sources}"
            finding = self._create_finding(RANDOM_OP, CauseKind.CONDITION, Statement(clause), cause=cause)
            return replace(finding, evidence={"generator": generator, "golden_generator": golden_generator})
        state = next((state for state in self._random if state.generator == generator), None)
        state = state or RandomDifference(generator, (None, None), Since.CALL, cause.op)
        if state.since is Since.DRAW:
            return self._create_draw_finding(cause, state)
        clause = f"{describe_generators(state)}, and {cause.op} draws from it"
        more = f"; the states are equal after {state.after} and differ before {state.op}" if state.after else ""
        return self._create_finding(RANDOM_OP, CauseKind.CONDITION, Statement(clause, more), state, cause)

    def _create_draw_finding(self, cause: Finding, state: RandomDifference) -> Finding:
        """Return the finding on the call after which the states differ first."""
        amount = f"in the {state.only_in} only" if state.only_in else "of another amount in each run"
        clause = f"draws random numbers {amount}, and {cause.op} draws from another random state"
        side = int(state.only_in == "golden")
        finding = self._create_finding(state.op, CauseKind.RANDOM, Statement(clause), state)
        return replace(
            finding, where=self._runs.find_line(state.op, side), modules=self._runs.list_modules(state.op, side)
        )

    def _create_received_finding(self, cause: Finding, states: Sequence[RandomDifference]) -> Finding:
        """Return the finding on random states that differ where code outside of calls decides something."""
        effect = "receives values that differ"
        if cause.reason.code in OUTSIDE_DECISION_CODES:
            effect = cause.brief or cause.reason.detail
        clause = f"{describe_generators(*states)}, and {cause.op} {effect}"
        return self._create_finding(RANDOM_OP, CauseKind.CONDITION, Statement(clause), states[0], cause)

    def _create_batch_finding(self, cause: Finding, batch: ConditionDifference) -> Finding:
        """Return the finding on a batch that differs, and on the random states that differ, too."""
        clause = describe_condition(batch)
        if self._random:
            clause += f"; {describe_generators(*self._random)}, too"
        more = f"; {cause.op} {cause.brief or cause.reason.detail}"
        finding = self._create_finding(BATCH_OP, CauseKind.CONDITION, Statement(clause, more))
        return replace(finding, evidence={"value": batch.name}, where=self._runs.find_entering_line(cause.op))

    def _is_before_model(self, cause: Finding) -> bool:
        """Return True for a cause before the first call within a module; it precedes its first consequence."""
        return any(map(self._facts.ops.is_before_modules, (cause.op, *cause.consequences[:1])))

    def _create_finding(
        self, op: str, kind: CauseKind, statement: Statement, state: RandomDifference | None = None,
        cause: Finding | None = None,
    ) -> Finding:  # fmt: skip
        evidence: dict[str, float | int | str] = {}
        if state is not None:
            evidence["generator"] = state.generator
            seeds = zip(("target_seed", "golden_seed"), state.seeds)
            evidence |= {name: seed for name, seed in seeds if seed is not None}
        return Finding(
            op, "", Reason(kind.value, statement.text), evidence, rank=self._facts.rank,
            where=cause.where if cause is not None else "", brief=statement.brief,
        )  # fmt: skip


class BatchDifference(Enum):
    """Kinds of differences of a tensor of the batch."""

    VALUES = "values"
    ORDER = "order"
    ROUNDING = "rounding"
    SHAPE = "shape"
    UNKNOWN = "unknown"
    """Other values or another order: statistics were not recorded."""


def classify_batch_difference(
    difference: ConditionDifference, phase_files: Sequence[PhasesFile | None], noise: float
) -> BatchDifference:
    """Return how a tensor of the batch differs, by its statistics in the phases of the step.

    Args:
        difference: A difference of the kind ``BATCH``.
        phase_files: The phases of both runs.
        noise: The largest relative difference that is rounding.
    """
    heads = [str(value).rpartition(" ")[0] for value in (difference.target, difference.golden)]
    if heads[0] != heads[1]:
        return BatchDifference.SHAPE
    statistics = [_find_batch_statistics(step_phases, difference.name) for step_phases in phase_files]
    if None in statistics or not any(statistics):
        return BatchDifference.UNKNOWN
    if not all(statistics):
        return BatchDifference.VALUES  # finite in one run only
    pairs = list(zip(*statistics))
    if not heads[0].startswith(("float", "bfloat", "complex")):
        return BatchDifference.ORDER if statistics[0] == statistics[1] else BatchDifference.VALUES
    scale = max(abs(b) for _, b in pairs[:2])
    if any(abs(a - b) > noise * scale for a, b in pairs[:3]):
        return BatchDifference.VALUES
    has_same_extremes = all(a == b for a, b in pairs[:2])  # rounding of an earlier computation changes the extremes
    return BatchDifference.ORDER if has_same_extremes else BatchDifference.ROUNDING


def _find_batch_statistics(step_phases: PhasesFile | None, name: str) -> tuple[float, ...] | None:
    """Return the statistics of a tensor of the batch; empty if they are not finite, None if not known."""
    steps = step_phases.find_phases("batch") if step_phases is not None else []
    value = steps[0].values.get(name) if steps else None
    return value.statistics if value is not None else None
