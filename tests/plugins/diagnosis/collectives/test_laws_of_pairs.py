"""Laws of sends and receives, and arguments that do not fit together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.cases import every
from support.runs.collectives import Group, Op, checked, deliver_all_reduce, named, values, world

# -- sends and receives ------------------------------------------------------------------------------------------


@every("send, receive", [("send", "recv"), ("isend", "irecv"), ("send", "irecv"), ("isend", "recv")])
@every("wrong", [None, 0, 2])
def test_what_was_sent_arrives_in_its_order(send: str, receive: str, wrong: int | None) -> None:
    ranks = world(0, 1, 2)
    keys = []
    for number in range(3):
        for to in (1, 2):
            ranks[0].call(send, [values(10 * number + to), to], [values(10 * number + to), to])
    for number in range(3):
        for to in (2, 1):
            arrived = values(10 * number + to + (number == wrong and to == 2))
            key = ranks[to].call(receive, [None, 0], [arrived, 0])
            keys += [(to, key)] if number == wrong and to == 2 else []
    found = checked(ranks)
    assert named(found) == keys and found.kept == 6 - len(keys) and not found.unchecked
    assert all(breach.law == "the values that rank 0 sent" for breach in found.breaches)


@pytest.mark.parametrize("lost", [0, 1])
def test_a_transfer_with_one_side_is_counted(lost: int) -> None:
    ranks = world(0, 1)
    ranks[0].call("send", [values(0), 1], [values(0), 1])
    ranks[1].call("recv", [None, 0], [values(0), 0])
    ranks[lost].found.clear()
    found = checked(ranks)
    assert (found.kept, found.breaches) == (0, [])
    assert found.unchecked == {"the matching send or receive is not known": 1}


def test_what_is_received_from_anyone_is_counted() -> None:
    ranks = world(0, 1)
    ranks[0].call("send", [values(0), 1], [values(0), 1])
    ranks[1].call("recv", [None], [values(0)])
    found = checked(ranks)
    assert not found.breaches and sum(found.unchecked.values()) == 2


def test_what_is_received_from_anyone_shifts_nothing() -> None:
    ranks = world(0, 1)
    for number in range(2):
        ranks[0].call("send", [values(number), 1], [values(number), 1])
    ranks[1].call("recv", [None], [values(0)])
    ranks[1].call("recv", [None, 0], [values(1), 0])
    assert not checked(ranks).breaches


def test_transfers_meet_by_their_tags() -> None:
    ranks = world(0, 1)
    for tag in (1, 2):
        ranks[0].call("isend", [values(tag), 1], [values(tag), 1], tag=tag)
    for tag in (2, 1):
        ranks[1].call("irecv", [None, 0], [values(tag), 0], tag=tag)
    found = checked(ranks)
    assert (found.kept, found.breaches) == (2, [])


# -- arguments that do not fit together --------------------------------------------------------------------------


def unfit_shapes(rank: int) -> tuple[str, list[Any], list[Any]]:
    return "all_reduce", [values(rank, 3 + rank)], [values(rank, 3 + rank)]


def unfit_rows(rank: int) -> tuple[str, list[Any], list[Any]]:
    return "all_to_all_single", [None, values(rank, 5)], [values(rank, 5), values(rank, 5)]


def unfit_sizes(rank: int) -> tuple[str, list[Any], list[Any]]:
    return (
        "all_to_all_single",
        [None, values(rank, 4), [4], [4]],
        [values(rank, 4), values(rank, 4), [4], [4]],
    )


def unfit_bits(rank: int) -> tuple[str, list[Any], list[Any]]:
    return "all_reduce", [values(rank), Op("BAND")], [values(rank), Op("BAND")]


def unfit_pieces(rank: int) -> tuple[str, list[Any], list[Any]]:
    pieces = [values(rank, 2)] * 3
    group = Group((0, 1))
    return "scatter", [None, pieces, 0, group], [values(0, 2), pieces, 0, group]


@pytest.mark.parametrize(
    "made",
    [
        unfit_shapes,
        unfit_rows,
        unfit_pieces,
        pytest.param(unfit_sizes),
        pytest.param(unfit_bits),
    ],
)
def test_arguments_that_do_not_fit_are_counted(
    made: Callable[[int], tuple[str, list[Any], list[Any]]],
) -> None:
    ranks = world(0, 1)
    deliver_all_reduce(ranks, (0, 1), None, {})
    for rank in ranks:
        ranks[rank].call(*made(rank))
    found = checked(ranks)
    assert (found.kept, found.breaches) == (2, []) and sum(found.unchecked.values()) == 2
