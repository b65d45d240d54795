"""Differences that conditions explain: another batch, or another random state.

A call that draws from another random state returns other values, as it should, and so does every call that
receives another batch. Neither is an error of that call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from probe_core.model import Reason
from probe_core.model.answers import Answer, Finding, Outcome
from probe_diagnosis.answer.runs import Runs
from probe_diagnosis.conditions.differences import (
    ConditionDifference,
    ConditionKind,
    condition_differences,
)
from probe_diagnosis.conditions.file import RunConditions, read_conditions
from probe_diagnosis.conditions.random_states import Draws, RandomDifference, Since
from probe_diagnosis.conditions.sentences import condition_sentence, conditions_of, random_subject
from probe_diagnosis.difference.reasons import Cause
from probe_diagnosis.difference.statement import Statement
from probe_diagnosis.phases.ladder_file import LadderFile, read_ladder
from probe_diagnosis.timeline.rank_facts import RankFacts
from probe_diagnosis.timeline.views import Basis

BATCH_OP, RANDOM_OP = "conditions.batch", "conditions.random_state"
"""Names of causes that are conditions, in place of the key of a call."""

INTRODUCED = frozenset({Cause.INTRODUCED.value, Cause.GROWN.value, Cause.NOT_FINITE.value})
"""Codes of causes that a call draws other random numbers for."""

DECIDED = frozenset({Cause.ARGUMENT.value, Cause.ONE_SIDED.value})
"""Codes of causes that code outside of recorded calls decides; a condition need not be the reason."""

FROM_OUTSIDE = DECIDED | {Cause.TAKEN_IN.value}
"""Codes of causes that code outside of recorded calls may have drawn random numbers for."""

FROM_BATCH = FROM_OUTSIDE | {Cause.GRADIENT.value, Cause.GROWN.value}
"""Codes of causes that other values of the batch explain."""

OF_BATCHES = frozenset({ConditionKind.BATCH, ConditionKind.DATA})
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
        differences: The conditions that differ, those first that may change numbers most.
        lacking: The runs whose conditions were not recorded.
    """

    def __init__(self, facts: RankFacts, runs: Runs) -> None:
        self._facts, self._runs = facts, runs
        directories = [run.shown.path.parent for run in runs.both]
        target, golden = (read_conditions(directory) for directory in directories)
        self.lacking = [name for name, one in (("target", target), ("golden", golden)) if one is None]
        known = (target or RunConditions(), golden or RunConditions())
        differences = condition_differences(*known) if not self.lacking else []
        # rows of batches are compared because the batches differ
        self.differences = [one for one in differences if not (runs.are_rows and one.kind in OF_BATCHES)]
        self._draws = Draws(*known)
        batch = [one for one in self.differences if one.kind is ConditionKind.BATCH]
        ladders = [read_ladder(directory) for directory in directories if batch]
        kinds = [(batch_difference(one, ladders, facts.ops.noise), one) for one in batch]
        unknown = BatchDifference.UNKNOWN
        others = (BatchDifference.VALUES, BatchDifference.SHAPE, unknown)
        self._values = [one for kind, one in kinds if kind in others]
        self._order = [one for kind, one in kinds if kind in (BatchDifference.ORDER, unknown)]
        rounded = {one.name for kind, one in kinds if kind is BatchDifference.ROUNDING}
        self.differences = [
            one for one in self.differences if not (one.kind is ConditionKind.BATCH and one.name in rounded)
        ]
        states = [one.random for one in self.differences if one.random is not None]
        self._random = sorted(states, key=lambda one: not one.is_seed)

    def state_in(self, answer: Answer, step: str) -> Answer:
        """Return an answer that states the conditions that differ.

        Random states that differ are no news of runs that agree, unless they were seeded differently.
        """
        is_agreed = answer.outcome is Outcome.AGREE
        shown = [one for one in self.differences if not (is_agreed and one.random and not one.random.is_seed)]
        stated = conditions_of(shown, step, self._facts.rank)
        return replace(answer, conditions=stated, unknown_conditions=tuple(self.lacking))

    def explain(self, causes: Sequence[Finding]) -> ConditionExplanation | None:
        """Return the condition that explains the first cause, with the causes that remain; None for none."""
        first = causes[0]
        generator = self._generator(first)
        if generator:
            origin = self._random_origin(first, generator)
        elif batch := self._batch_of(first):
            origin = self._batch_origin(first, batch)
        elif first.reason.code in FROM_OUTSIDE and (states := self._random_before(first)):
            origin = self._received_origin(first, states)
        else:
            return None
        origin = replace(
            origin,
            consequences=(first.op, *first.consequences),
            consequence_count=first.consequence_count + 1,
        )
        remaining = [one for one in causes if one is not first or one.reason.code in DECIDED]
        if origin.op == BATCH_OP:
            remaining = [one for one in remaining if one.reason.code in DECIDED]
        return ConditionExplanation(origin, [one for one in remaining if not self._generator(one)])

    def _batch_of(self, cause: Finding) -> ConditionDifference | None:
        """Return the tensor of the batch that explains a cause; None for none.

        Other values explain what receives them. Values in another order also explain a call that introduces a
        difference, if its inputs were compared by their statistics, which do not show the order.
        """
        if self._is_before_model(cause):
            return None
        is_by_tensor = cause.evidence.get("judged_by") == Basis.TENSOR.text
        if cause.reason.code in FROM_BATCH:
            return next(iter([*self._values, *self._order]), None)
        is_blind = cause.reason.code in INTRODUCED and not is_by_tensor
        return next(iter(self._order), None) if is_blind else None

    def _random_before(self, cause: Finding) -> list[RandomDifference]:
        """Return the random states that differ before a call."""
        numbers = self._facts.ops.numbers
        place = numbers.get(cause.op, len(numbers))
        return [
            one
            for one in self._random
            if one.is_seed
            or one.since in (Since.START, Since.FORWARD)
            or numbers.get(one.op, len(numbers)) < place
        ]

    def _generator(self, cause: Finding) -> str:
        """Return the generator from which a call, or one within a module, drew in another state."""
        if cause.reason.code not in INTRODUCED:
            return ""
        calls = self._facts.ops
        number = calls.numbers.get(cause.op)
        if number is None:
            return ""
        generator = self._draws.differing_generator(cause.op, calls.goldens.get(number, cause.op))
        if generator or not cause.op.startswith("Module."):
            return generator
        for op in self._draws.ops():
            inner = calls.numbers.get(op)
            if inner is not None and cause.op in calls.within[inner]:
                return self._draws.differing_generator(op, calls.goldens.get(inner, op))
        return ""

    def _random_origin(self, cause: Finding, generator: str) -> Finding:
        """Return the finding on the random state from which a call draws."""
        one = next((one for one in self._random if one.generator == generator), None)
        one = one or RandomDifference(generator, (None, None), Since.CALL, cause.op)
        if one.since is Since.DRAW:
            return self._drawing_call(cause, one)
        clause = f"{random_subject(one)}, and {cause.op} draws from it"
        place = f"; the states are equal after {one.after} and differ before {one.op}" if one.after else ""
        return self._finding(RANDOM_OP, Cause.CONDITION, Statement(clause, place), one, cause)

    def _drawing_call(self, cause: Finding, one: RandomDifference) -> Finding:
        """Return the finding on the call after which the states differ first."""
        amount = f"in the {one.only_in} only" if one.only_in else "of another amount in each run"
        clause = f"draws random numbers {amount}, and {cause.op} draws from another random state"
        side = int(one.only_in == "golden")
        finding = self._finding(one.op, Cause.RANDOM, Statement(clause), one)
        return replace(
            finding, where=self._runs.where(one.op, side), modules=self._runs.modules(one.op, side)
        )

    def _received_origin(self, cause: Finding, states: Sequence[RandomDifference]) -> Finding:
        """Return the finding on random states that differ where code outside of calls decides something."""
        effect = "receives values that differ"
        if cause.reason.code in DECIDED:
            effect = cause.brief or cause.reason.detail
        clause = f"{random_subject(*states)}, and {cause.op} {effect}"
        return self._finding(RANDOM_OP, Cause.CONDITION, Statement(clause), states[0], cause)

    def _batch_origin(self, cause: Finding, batch: ConditionDifference) -> Finding:
        """Return the finding on a batch that differs, and on the random states that differ, too."""
        clause = condition_sentence(batch)
        if self._random:
            clause += f"; {random_subject(*self._random)}, too"
        more = f"; {cause.op} {cause.brief or cause.reason.detail}"
        finding = self._finding(BATCH_OP, Cause.CONDITION, Statement(clause, more))
        return replace(finding, evidence={"value": batch.name})

    def _is_before_model(self, cause: Finding) -> bool:
        """Return True for a call outside of modules before the first call within one."""
        calls = self._facts.ops
        number = calls.numbers.get(cause.op)
        first = next((place for place in range(len(calls)) if calls.within[place]), None)
        return number is not None and first is not None and number < first

    def _finding(
        self, op: str, kind: Cause, statement: Statement, one: RandomDifference | None = None,
        cause: Finding | None = None,
    ) -> Finding:  # fmt: skip
        evidence: dict[str, float | int | str] = {}
        if one is not None:
            evidence["generator"] = one.generator
            seeds = zip(("target_seed", "golden_seed"), one.seeds)
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


def batch_difference(
    one: ConditionDifference, ladders: Sequence[LadderFile | None], noise: float
) -> BatchDifference:
    """Return how a tensor of the batch differs, by its statistics in the phases of the step.

    Args:
        one: A difference of the kind ``BATCH``.
        ladders: The phases of both runs.
        noise: The largest relative difference that is rounding.
    """
    heads = [str(value).rpartition(" ")[0] for value in (one.target, one.golden)]
    if heads[0] != heads[1]:
        return BatchDifference.SHAPE
    statistics = [_batch_statistics(ladder, one.name) for ladder in ladders]
    if None in statistics or not any(statistics):
        return BatchDifference.UNKNOWN
    if not all(statistics):
        return BatchDifference.VALUES  # finite in one run only
    pairs = list(zip(*statistics))
    if not heads[0].startswith(("float", "bfloat", "complex")):
        return BatchDifference.ORDER if statistics[0] == statistics[1] else BatchDifference.VALUES
    if all(a == b for a, b in pairs[:2]):
        return BatchDifference.ORDER  # noise of an earlier computation would change the extremes as well
    scale = max(abs(b) for _, b in pairs[:2])
    is_rounding = all(abs(a - b) <= noise * scale for a, b in pairs[:3])
    return BatchDifference.ROUNDING if is_rounding else BatchDifference.VALUES


def _batch_statistics(ladder: LadderFile | None, name: str) -> tuple[float, ...] | None:
    """Return the statistics of a tensor of the batch; empty if they are not finite, None if not known."""
    steps = ladder.of("batch") if ladder is not None else []
    value = steps[0].values.get(name) if steps else None
    return value.statistics if value is not None else None
