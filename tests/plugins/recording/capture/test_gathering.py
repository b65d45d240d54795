"""Gathering of the gradients of one call, without any framework: numbers stand for tensors."""

from __future__ import annotations

from typing import Any

from probe_recording.capture.gathering import GradientCollector, GradientGatherer


class Numbers(GradientGatherer):
    def _add_gradient(self, total: Any, gradient: Any) -> Any:
        return gradient if total is None else total + gradient


def gathering(inputs: int) -> tuple[Numbers, list[tuple[Any, ...]]]:
    told: list[tuple[Any, ...]] = []
    return Numbers(lambda *what: told.append(what), inputs), told


def test_an_input_is_told_once_all_its_shares_are_there() -> None:
    calls, told = gathering(2)
    out = calls.output(0, -1)
    first, second = calls.inputs([(0, 1), (1, 0)]), calls.inputs([(1, 1)])
    calls.ready()
    out(5)
    first((1, 2), None)
    assert told == [("input", 0, 5, False), ("output", 0, 2, False)]
    second((9, 30), None)
    assert told[2:] == [("output", 1, 31, True)]


def test_inputs_that_nothing_leads_to_are_told_at_once() -> None:
    calls, told = gathering(2)
    calls.inputs([(0, 0)])
    calls.ready()
    assert told == [("output", 1, None, False)]


def test_an_input_that_is_an_output_has_its_gradient() -> None:
    calls, told = gathering(1)
    out = calls.output(0, 0)
    node = calls.inputs([(0, 0)])  # what another path gives it is part of the same gradient
    calls.ready()
    node((7,), None)
    out(3)
    assert told == [("input", 0, 3, False), ("output", 0, 3, True)]


def test_a_share_may_be_missing() -> None:
    calls, told = gathering(1)
    nodes = [calls.inputs([(0, 0)]) for _ in range(3)]
    for node, given in zip(nodes, ((None,), (4,), ())):
        node(given, None)
    assert told == [("output", 0, 4, True)]
    calls, told = gathering(1)
    calls.inputs([(0, 0)])((None,), None)
    assert told == [("output", 0, None, True)]


def test_a_second_pass_over_a_retained_graph_is_not_told() -> None:
    calls, told = gathering(1)
    node = calls.inputs([(0, 0)])
    node((1,), None)
    node((1,), None)
    assert told == [("output", 0, 1, True)]


def test_a_collector_passes_all_gradients_on_once() -> None:
    received: list[Any] = []
    collector = GradientCollector(
        lambda *gradients: received.append(gradients), outputs=2, inputs=2, copy=lambda number: number * 10
    )
    calls = Numbers(collector, 2)
    out = calls.output(1, -1)
    into = calls.inputs([(0, 0)])
    calls.ready()
    out(5)
    assert received == []
    into((7,), None)
    collector("output", 1, 8, True)  # a second backward pass
    assert received == [([None, 50], [70, None])]
