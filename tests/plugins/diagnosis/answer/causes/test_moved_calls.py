"""Calls at different places: an order is stated only if the runs disagree on it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from probe_diagnosis.answer.causes.moved_calls import can_precede, find_moved_call
from probe_diagnosis.timeline.call_columns import CallColumns
from probe_diagnosis.timeline.compared_calls import ComparedCall
from probe_diagnosis.timeline.rank_facts import RankFacts
from support.measuring import tensor_value

from probe_core.model import Reason, Record, Side, Slot, Statistics
from probe_core.model.answers import Finding

A, B, MOVED = "Torch.a.0.forward", "Torch.b.0.forward", "Torch.lerp.0.forward"


class StandIn:
    """A run that holds the names of its calls, each with one input of the given size."""

    def __init__(self, *calls: str, size: float) -> None:
        self._calls, self._size = calls, size

    def names(self) -> list[str]:
        return [*self._calls]

    def find(self, op: str) -> int | None:
        return self._calls.index(op) if op in self._calls else None

    def record(self, number: int) -> Record:
        value = tensor_value(Statistics(*[self._size] * 4))
        key = self._calls[number]
        return Record(number, key, (Slot(f"{key}.input.0", Side.INPUT, "0", value),))


def moved(target: list[str], golden: list[str], size: float = 2.0, partners: Any = ()) -> str:
    """The statement on the first call at another place; empty for none."""
    calls = CallColumns.from_calls(ComparedCall(key, ()) for key in target)
    calls.golden_ops.update({calls.numbers_by_key[key]: partner for key, partner in dict(partners).items()})
    facts = RankFacts(0, calls, target_only={MOVED: None}, golden_only={MOVED: None})
    runs: Any = SimpleNamespace(
        both=(StandIn(*target, size=size), StandIn(*golden, size=1.0)),
        list_modules=lambda op: (),
        find_line=lambda op: "",
    )
    finding = find_moved_call(facts, runs)
    return "" if finding is None else finding.reason.detail


@pytest.mark.parametrize(
    ("target", "golden", "start"),
    [
        ([MOVED, A, B], [A, B, MOVED], f"is called before {A} in the target and after it in the golden"),
        ([A, B, MOVED], [MOVED, A, B], f"is called after {B} in the target and before it in the golden"),
        ([A, MOVED, B], [A, B, MOVED], f"is called before {B} in the target and after it in the golden"),
        ([A, MOVED, B], [A, MOVED, B], ""),
        ([A, B, MOVED], [A, B, MOVED], ""),
    ],
)
def test_an_order_is_stated_if_the_runs_disagree_on_it(target: list[str], golden: list[str], start: str) -> None:
    assert moved(target, golden).startswith(start) and bool(moved(target, golden)) is bool(start)


def test_calls_that_receive_the_same_values_are_not_stated() -> None:
    assert moved([MOVED, A], [A, MOVED], size=1.0) == ""


def test_an_anchor_is_found_under_its_name_in_the_golden() -> None:
    statement = moved([MOVED, A], [B, MOVED], partners={A: B})
    assert statement.startswith(f"is called before {A} in the target and after it in the golden")


@pytest.mark.parametrize(
    ("target", "golden", "expected"),
    [
        ([A, MOVED, B], [A, B, MOVED], False),  # both follow A, so they may follow from it
        ([MOVED, A, B], [A, B, MOVED], True),
        ([A, B, MOVED], [MOVED, A, B], True),  # the golden made it before A, the target did not
    ],
)
def test_a_moved_call_precedes_a_difference_if_it_does_in_a_run(
    target: list[str], golden: list[str], expected: bool
) -> None:
    runs: Any = SimpleNamespace(both=(StandIn(*target, size=1.0), StandIn(*golden, size=1.0)))
    assert can_precede(Finding(MOVED, "", Reason("order", ""), {"golden_op": MOVED}), (A, A), runs) is expected
