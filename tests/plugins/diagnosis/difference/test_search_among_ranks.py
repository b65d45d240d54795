"""The search of the first difference among ranks that communicate."""

from __future__ import annotations

import pytest
from probe_diagnosis.difference.search import search
from probe_diagnosis.timeline.compared_calls import ComparedCall
from support.cases import every
from support.runs.ops import (
    ALL,
    BAD,
    BEHIND,
    FAULT,
    FROM_ROOT,
    GOOD,
    TO_ROOT,
    UNSET,
    Valued,
    argument,
    call,
    named,
    told,
    torch,
    value,
    why,
    within,
)

# -- making ops --------------------------------------------------------------------------------


def send(to: int, times: Valued = 0, api: str = "send") -> ComparedCall:
    return call(api, [times], [], root=to, peers=[(to, True)])


def receive(source: int, times: Valued = 0, api: str = "recv") -> ComparedCall:
    return call(api, [UNSET], [times], root=source, peers=[(source, False)])


# -- ranks that do not communicate -----------------------------------------------------------------


def test_independent_faults_are_all_named_earliest_first() -> None:
    late = [GOOD, GOOD, torch("late", [0], [FAULT])]
    early = [torch("early", [0], [FAULT])]
    assert named(late, early, [GOOD], [GOOD, *early]) == [(1, "early"), (3, "early"), (0, "late")]


def test_a_fault_of_all_ranks_is_named_on_all() -> None:
    reduce = call("all_reduce", [FAULT], [FAULT])
    assert named(*[[GOOD, BAD, reduce, BEHIND]] * 4) == [(rank, "bad") for rank in range(4)]


def test_calls_before_count_first() -> None:
    """Ops before the first communication are earlier than those behind, however long those are."""
    barrier = call("barrier", [], [])
    assert named([GOOD] * 9 + [BAD, barrier], [barrier, torch("soon", [0], [FAULT])]) == [
        (0, "bad"), (1, "soon"),
    ]  # fmt: skip


# -- in a group ------------------------------------------------------------------------------------


AFTER = torch("after", [0], [FAULT])
"""A fault that no value on record explains, behind a communication call."""


@every("api", ALL)
def test_a_fault_reaches_everyone_through_a_collective(api: str) -> None:
    faulty = [BAD, call(api, [FAULT], [FAULT]), BEHIND]
    others = [GOOD, call(api, [0], [FAULT]), BEHIND, AFTER]
    for place in range(3):
        ranks = [others] * 3
        ranks[place] = faulty
        assert named(*ranks) == [(place, "bad")]


@every("api", ALL)
def test_a_collective_that_delivers_wrong_values_is_named(api: str) -> None:
    wrong = [GOOD, call(api, [0], [FAULT]), BEHIND]
    right = [GOOD, call(api, [0], [0]), GOOD]
    assert named(wrong, wrong) == [(0, api), (1, api)]
    assert named(right, wrong) == [(1, api)]
    assert why(right, wrong).startswith(
        "delivers values that differ, although no difference was found in the sent values ("
    )


def test_a_single_rank_does_not_know_what_others_sent() -> None:
    """The members of the default group are not recorded."""
    assert "; the ranks that may have sent them were not compared in this call (" in why(
        [GOOD, call("all_reduce", [0], [FAULT])]
    )
    assert "rank 1 may have sent them" in why([GOOD, call("all_reduce", [0], [FAULT], group=(0, 1))])


def test_a_collective_whose_own_input_differs_out_of_nowhere() -> None:
    assert named([call("all_reduce", [FAULT], [FAULT])], [call("all_reduce", [0], [FAULT]), BEHIND]) == [
        (0, "all_reduce")
    ]  # fmt: skip
    assert "receives values that differ" in why(
        [call("all_reduce", [FAULT], [FAULT])], [call("all_reduce", [0], [FAULT])]
    )


def test_another_argument_of_a_collective_is_part_of_the_evidence() -> None:
    """Sum on one side, mean on the other."""
    wrong = [call("all_reduce", [0, argument()], [FAULT])]
    assert "was called with a different argument (input.1: 1.05 against 1.0)" in why(
        wrong, [call("all_reduce", [0], [0])]
    )


def test_large_numbers_that_cancel_out_in_a_sum_are_no_fault() -> None:
    sent, got = value(0.5, scale=1e3), value(500.0, scale=1.0)
    assert named(*[[call("all_reduce", [sent], [got])]] * 2) == []


def test_rounding_that_a_sum_adds_up_names_nothing() -> None:
    assert named(*[[torch("a", [0], [0.5]), call("all_reduce", [0.5], [4.5]), torch("b", [4.5], [9])]] * 8) == []


@pytest.mark.parametrize("api", FROM_ROOT)
def test_only_the_root_of_a_broadcast_or_scatter_is_learnt_from(api: str) -> None:
    def at(times: float, got: float) -> ComparedCall:
        return call(api, [times], [got], root=1)

    behind = [at(0, FAULT), BEHIND, AFTER]
    assert named(behind, [BAD, at(FAULT, FAULT)], behind) == [(1, "bad")]
    assert named([at(0, 0), AFTER], [at(0, 0)], [BAD, at(FAULT, 0), GOOD]) == [(2, "bad"), (0, "after")]


@pytest.mark.parametrize("api", FROM_ROOT)
def test_what_lay_in_the_way_of_a_broadcast_is_not_judged(api: str) -> None:
    assert named([call(api, [0], [0], root=0)], [call(api, [FAULT], [0], root=0), GOOD]) == []


@pytest.mark.parametrize("api", TO_ROOT)
def test_only_the_root_of_a_reduce_or_gather_learns(api: str) -> None:
    def at(times: float, got: float) -> ComparedCall:
        return call(api, [times], [got], root=1)

    assert named([BAD, at(FAULT, 0)], [at(0, FAULT), BEHIND, AFTER], [at(0, 0), AFTER]) == [
        (0, "bad"), (2, "after"),
    ]  # fmt: skip
    assert named([at(0, 0), AFTER], [BAD, at(FAULT, FAULT)]) == [(1, "bad"), (0, "after")]


@pytest.mark.parametrize("api", TO_ROOT)
def test_what_a_reduce_leaves_on_other_ranks_is_not_judged(api: str) -> None:
    assert named([call(api, [0], [FAULT], root=1)], [call(api, [0], [0], root=1)]) == []


@pytest.mark.parametrize("api", FROM_ROOT + TO_ROOT)
def test_a_rooted_call_that_delivers_wrong_values_is_named_where_they_arrive(api: str) -> None:
    place = 0 if api in FROM_ROOT else 1
    ranks = [[call(api, [0], [0], root=1)] for _ in range(2)]
    ranks[place] = [call(api, [0], [FAULT], root=1), BEHIND]
    assert named(*ranks) == [(place, api)]


def test_a_barrier_carries_no_values() -> None:
    barrier = call("barrier", [], [])
    assert named([BAD, barrier, BEHIND], [GOOD, barrier, GOOD, AFTER]) == [(0, "bad"), (1, "after")]


def test_faults_stay_in_their_groups() -> None:
    def ranks(api: str) -> list[list[ComparedCall]]:
        first, second = (0, 2), (1, 3)
        return [
            [BAD, call(api, [FAULT], [FAULT], first), BEHIND],
            [GOOD, call(api, [0], [0], second), AFTER],
            [GOOD, call(api, [0], [FAULT], first), BEHIND],
            [GOOD, call(api, [0], [0], second), GOOD],
        ]  # fmt: skip

    assert named(*ranks("all_reduce")) == [(0, "bad"), (1, "after")]


def test_a_fault_wanders_from_group_to_group() -> None:
    assert named(
        [BAD, call("all_reduce", [FAULT], [FAULT], [0, 1])],
        [call("all_reduce", [0], [FAULT], [0, 1]), call("all_gather", [FAULT], [FAULT], [1, 2])],
        [call("all_gather", [0], [FAULT], [1, 2]), call("broadcast", [FAULT], [FAULT], [2, 3], root=2)],
        [call("broadcast", [0], [FAULT], [2, 3], root=2), BEHIND],
    ) == [(0, "bad")]


def test_the_first_call_meets_the_first_and_the_second_the_second() -> None:
    """A fault between two calls reaches the others through the second; another before that is independent."""
    first, second = call("all_reduce"), call("all_reduce", number=1)
    wrong = call("all_reduce", [FAULT], [FAULT], number=1), call("all_reduce", [0], [FAULT], number=1)
    assert named([first, BAD, wrong[0]], [first, wrong[1], BEHIND]) == [(0, "bad")]
    assert named([first, BAD, wrong[0]], [first, AFTER, wrong[0], BEHIND]) == [(0, "bad"), (1, "after")]
    assert named([first, second], [first, second]) == []


def test_two_calls_in_two_orders() -> None:
    """Groups of their own need not be entered in one order by all ranks."""
    assert named(
        [call("all_reduce", [0], [0], [0, 1]), call("all_gather", [0], [FAULT], [0, 2])],
        [call("all_reduce", [0], [0], [0, 1])],
        [BAD, call("all_gather", [FAULT], [FAULT], [0, 2])],
    ) == [(2, "bad")]


def test_a_group_of_one() -> None:
    assert named([call("all_reduce", [0], [FAULT], [0])], [call("all_reduce", [0], [0], [1])]) == [
        (0, "all_reduce")
    ]  # fmt: skip
    assert named([call("all_reduce", [0], [0])]) == []


# -- between two ranks -----------------------------------------------------------------------------


P2P = pytest.mark.parametrize("apis_of", [("send", "recv"), ("isend", "irecv"), ("send", "irecv")])


@P2P
def test_a_fault_is_sent_and_received(apis_of: tuple[str, str]) -> None:
    gives, takes = apis_of
    for at_fault, other in ((0, 1), (1, 0)):
        ranks = {
            at_fault: [BAD, send(other, FAULT, gives), GOOD],
            other: [GOOD, receive(at_fault, FAULT, takes), BEHIND, AFTER],
        }
        assert told(ranks) == [(at_fault, "bad")]


@P2P
def test_a_sender_learns_nothing_of_its_receiver(apis_of: tuple[str, str]) -> None:
    gives, takes = apis_of
    ranks = [send(1, 0, gives), GOOD, AFTER], [BAD, receive(0, 0, takes)]
    assert named(*ranks) == [(1, "bad"), (0, "after")]


def test_a_receiver_knows_what_its_sender_knew_then() -> None:
    """A fault behind the send does not explain the receiver's."""
    assert named([send(1), BAD], [receive(0), GOOD, AFTER]) == [(0, "bad"), (1, "after")]


@P2P
def test_a_transfer_that_delivers_wrong_values_is_named_where_they_arrive(apis_of: tuple[str, str]) -> None:
    gives, takes = apis_of
    assert named([send(1, 0, gives)], [receive(0, FAULT, takes), BEHIND]) == [(1, takes)]


def test_a_send_whose_input_differs_out_of_nowhere() -> None:
    assert named([send(1, FAULT)], [receive(0, FAULT), BEHIND]) == [(0, "send")]


def test_sends_and_receives_meet_in_order() -> None:
    sender = [send(1), BAD, send(1, FAULT)]
    assert named(sender, [receive(0), AFTER, receive(0, FAULT)]) == [(0, "bad"), (1, "after")]
    assert named(sender, [receive(0), receive(0, FAULT), AFTER]) == [(0, "bad")]


def test_ranks_that_send_to_each_other_first() -> None:
    assert named([BAD, send(1, FAULT), receive(1)], [send(0), receive(0, FAULT), BEHIND]) == [(0, "bad")]


def test_a_fault_goes_down_a_pipeline() -> None:
    stages = 6
    ranks = [[BAD, send(1, FAULT)]]
    ranks += [[receive(rank - 1, FAULT), BEHIND, send(rank + 1, FAULT)] for rank in range(1, stages - 1)]
    ranks += [[receive(stages - 2, FAULT), BEHIND]]
    assert named(*ranks) == [(0, "bad")]
    assert told(dict(reversed(list(enumerate(ranks))))) == [(0, "bad")]


def ring(rank: int, size: int, sent: float = 0, number: int = 0) -> ComparedCall:
    """Each sends to the next and receives from the one before; what arrives is not on record."""
    peers = [((rank + 1) % size, True), ((rank - 1) % size, False)]
    return call("batch_isend_irecv", [sent, UNSET], [], peers=peers, number=number)


def test_a_list_of_sends_and_receives() -> None:
    """A fault reaches the next rank in the first round, and the one behind in the second."""
    first = [
        [BAD, ring(0, 3, FAULT), GOOD],
        [GOOD, ring(1, 3), BEHIND, AFTER],
        [GOOD, ring(2, 3), AFTER],
    ]
    assert named(*first) == [(0, "bad"), (2, "after")]
    second = [[*ops[:2], ring(rank, 3, FAULT if rank < 2 else 0), AFTER] for rank, ops in enumerate(first)]
    assert named(*second) == [(0, "bad")]


def test_values_that_a_list_of_receives_delivered_wrong_are_named_where_they_are_taken_in() -> None:
    assert named([ring(0, 2), GOOD], [ring(1, 2), BEHIND]) == [(1, "behind")]


def test_a_receive_from_anyone_learns_from_its_sender() -> None:
    anyone = call("recv", [UNSET], [FAULT])
    assert named([BAD, send(1, FAULT)], [anyone, BEHIND]) == [(0, "bad")]


# -- what is missing -------------------------------------------------------------------------------


def test_values_of_a_rank_that_was_not_compared() -> None:
    """Nobody knows whether they were sent wrong, and that is said."""
    for ops in (
        [call("all_gather", [0], [FAULT], [0, 1, 5])],
        [call("broadcast", [0], [FAULT], [0, 1, 5], root=5)],
        [receive(5, FAULT)],
        [call("reduce", [0], [FAULT], [0, 1, 5], root=0)],
    ):
        other = [] if len(ops[0].communication.group) == 0 else [call(short_api(ops[0]), [0], [0], [0, 1, 5], ops[0].communication.root)]  # type: ignore[union-attr]  # fmt: skip
        (node,) = search({0: [*ops, BEHIND], 1: other}).first
        assert (node.rank, node.call) == (0, ops[0])
        assert "rank 5 may have sent them, and was not compared" in node.why


def short_api(facts: ComparedCall) -> str:
    assert facts.communication is not None
    return facts.communication.api.name


def test_a_rank_that_was_not_compared_and_sent_what_agrees() -> None:
    assert named([call("all_gather", [0], [0], [0, 5]), receive(5), send(5), GOOD]) == []
    assert named([send(5), BAD]) == [(0, "bad")]


def test_ranks_may_have_any_numbers() -> None:
    reduce = call("all_reduce", [0], [FAULT], [3, 11])
    assert told({11: [BAD, call("all_reduce", [FAULT], [FAULT], [3, 11])], 3: [reduce, BEHIND]}) == [(11, "bad")]
    assert told({7: [call("all_reduce", [0], [0], [0, 1])]}) == [], "numbered otherwise than we know"


@pytest.mark.parametrize(
    "ranks",
    [
        [[receive(1), GOOD], [GOOD]],
        [[receive(1), receive(1)], [send(0)]],
        [[receive(1), GOOD], [receive(0), GOOD]],
        [[call("all_reduce"), GOOD], [GOOD]],
        [[call("all_reduce"), call("all_gather")], [call("all_gather"), call("all_reduce")]],
        [[call("all_reduce"), receive(1)], [send(0), receive(0)]],
        [[call("barrier", group=[0, 1])], [], [call("barrier", group=[0, 1, 2])]],
        [[ring(0, 2)], []],
        [[ring(0, 3)], [ring(1, 3)], [receive(0)]],
        [[send(0)], [receive(1)]],
        [[call("batch_isend_irecv", [], [], peers=[(1, False), (1, False)])], [send(0)]],
    ],
)  # fmt: skip
def test_the_search_ends_whatever_is_missing(ranks: list[list[ComparedCall]]) -> None:
    with within(5):
        assert named(*ranks) == []
        assert named(*[[*ops, BAD] for ops in ranks]) != []


def test_a_send_that_is_missing_makes_no_other_call_wrong() -> None:
    """Rank 0 is at fault and reaches rank 1 through the sum, whatever it waited for in between."""
    ranks = [
        [BAD, receive(1), call("all_reduce", [FAULT], [FAULT])],
        [GOOD, call("all_reduce", [0], [FAULT]), BEHIND],
    ]
    assert named(*ranks) == [(0, "bad")]
