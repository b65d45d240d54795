"""Counts of the calls that ranks exchange."""

from __future__ import annotations

from probe_diagnosis.api import CallDepth
from probe_page.ranks import find_exchanges


def all_reduce(number: int, distance: float, group: tuple[int, ...] = ()) -> CallDepth:
    name = f"Distributed.all_reduce.{number}.forward"
    return CallDepth(name, distance, 0.0, "all_reduce", group=group, is_collective=True)


def test_a_collective_call_of_all_ranks_counts_once() -> None:
    ranks = {rank: [all_reduce(0, 0.0), all_reduce(1, 0.5), all_reduce(2, rank == 3)] for rank in range(4)}
    exchanges = find_exchanges({"step0": ranks}, "step0")
    assert exchanges is not None
    (exchange,) = exchanges.groups.values()
    assert (exchange.count, exchange.differing, exchange.names) == (3, 2, "all_reduce")


def test_a_rank_whose_record_is_shorter_lowers_no_count() -> None:
    ranks = {0: [all_reduce(0, 0.0, (0, 1))], 1: [all_reduce(0, 0.0, (0, 1)), all_reduce(1, 0.5, (0, 1))]}
    exchanges = find_exchanges({"": ranks}, "")
    assert exchanges is not None
    assert {key: (one.count, one.differing) for key, one in exchanges.groups.items()} == {
        ("all_reduce", "0, 1"): (2, 1)
    }
