"""The events of one rank in one step of two runs, as detectors see them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from probe_core.exports import add_alias
from probe_core.model import Value
from probe_core.model.columns import Array
from probe_core.model.run import Run
from probe_diagnosis.timeline.call_columns import CallColumns
from probe_diagnosis.timeline.compared_calls import ComparedCall, ValueComparison
from probe_diagnosis.timeline.one_run import collect_run_facts
from probe_diagnosis.timeline.rank_facts import RankFacts
from probe_diagnosis.timeline.recorded import find_value


@dataclass(frozen=True, slots=True)
class Detection:
    """A statement of a detector on a call.

    Attributes:
        op: The key of the call, such as ``Functional.relu.0.forward``.
        statement: A clause whose subject is the call: ``returns zeros only``.
        value: The name of the row that shows it; empty if the whole call does.
        evidence: The numbers and texts behind the statement, by name.
    """

    op: str
    statement: str
    value: str = ""
    evidence: Mapping[str, float | int | str] = field(default_factory=dict)


class Detector(Protocol):
    """A search for one kind of cause."""

    def detect(self, timeline: Timeline) -> Iterable[Detection]:
        """Yield what was found on one rank in one step."""


class Timeline:
    """The events of one rank in one step of two runs, or of one run (``of_run``).

    Args:
        facts: The calls with the differences of their values.
        target: The run under test.
        golden: The reference.
        step: The directory of the step; empty if there is only one.

    Attributes:
        rank: The number of the rank.
        step: The directory of the step; empty if there is only one.
        target: The run under test.
        golden: The reference; the target itself if there is only one run.
    """

    def __init__(self, facts: RankFacts, target: Run, golden: Run, step: str = "") -> None:
        self._facts = facts
        self.rank, self.step = facts.rank, step
        self.target, self.golden = target, golden

    @classmethod
    def from_run(cls, run: Run, rank: int, is_wanted: Array, is_unknown: Array, step: str = "") -> Timeline:
        """Return the timeline of one run, in which wanted values take the place of values that differ.

        Args:
            run: The run.
            rank: The number of the rank.
            is_wanted: True for each line of ``run.values`` that a search looks for.
            is_unknown: True for lines of which it is not known if they are wanted.
            step: The directory of the step; empty if there is only one.
        """
        return cls(collect_run_facts(run, rank, is_wanted, is_unknown), run, run, step)

    @property
    def columns(self) -> CallColumns:
        """The calls in the order of the record, as columns."""
        return self._facts.ops

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {self._facts.ops.keys[number]: place for place, number in enumerate(self._facts.ops.effect_order)}

    def calls(self, api: str = "") -> Iterator[ComparedCall]:
        """Yield the calls of the target in the order of their effects, with the differences of their values.

        Modules come after the calls within them, and gradients of parameters after the backward pass.

        Args:
            api: Yield only calls whose key contains this name between dots, such as ``relu``.
        """
        keys = self._facts.ops.keys
        for number in self._facts.ops.effect_order:
            if not api or api in keys[number].split("."):
                yield self._facts.ops[number]

    def get_position(self, op: str) -> int:
        """Return the position of a call in the order of ``calls``; -1 if the target does not make it."""
        return self._positions.get(op, -1)

    def values(self, call: ComparedCall, difference: ValueComparison) -> tuple[Value | None, Value | None]:
        """Return the recorded values of both runs that a difference is about."""
        key = call.golden_op or call.op
        row = key + difference.row.removeprefix(call.op)
        return find_value(self.target, call.op, difference.row), find_value(self.golden, key, row)

    def only_in(self, *, target: bool) -> tuple[str, ...]:
        """Return the keys of the calls that only the target, or only the golden, makes."""
        return tuple(self._facts.target_only if target else self._facts.golden_only)


add_alias(Timeline, "place", "get_position")
