"""The search for the first difference over all ranks: what it names, and that it always ends."""

from __future__ import annotations

import json
import math
import random
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from probe_diagnosis.collectives.calls import Call, Flow, Peer, apis, call_of
from probe_diagnosis.difference.facts import DIFFERS, SAME, UNJUDGED, Apart, OpFacts
from probe_diagnosis.difference.rank_file import items_at, read
from probe_diagnosis.difference.search import Node, first_differences
from probe_recording.reading.leaves import record_of
from support.measuring import PROPERTY

from probe_core.model import Side

NOISE, COARSE, JUMP = 2.0**-17, 2.0**-5, 10.0
FAULT = 1e4
"""A difference, in multiples of what rounding explains."""


# -- making ops --------------------------------------------------------------------------------


def value(times: float = 0.0, *, scale: float = 1.0, noise: float = NOISE, **fields: Any) -> Apart:
    """A tensor that is ``times`` what rounding explains apart."""
    state = DIFFERS if times > 1 else SAME
    plain = {"row": "", "side": Side.INPUT, "why": f"rms {times:g} apart" if times > 1 else ""}
    return Apart(state=state, distance=times * (noise or 1.0) * scale, scale=scale, noise=noise, jump=JUMP,
                 **{**plain, **fields})  # fmt: skip


def unlike(**fields: Any) -> Apart:
    """A tensor that differs, which is no matter of size: a checksum, nan at other places."""
    return Apart("", Side.INPUT, DIFFERS, math.inf, 1.0, why="checksum a against b")._replace(**fields)


def argument(differs: bool = True) -> Apart:
    """A scalar argument."""
    scalar = Apart("", Side.INPUT, SAME, 0.0, 1.0, is_scalar=True)
    return scalar._replace(state=DIFFERS, distance=math.inf, why="1.05 against 1.0") if differs else scalar


UNSET = Apart("", Side.INPUT, UNJUDGED, why="not computed yet")

Valued = Any
"""A value, or how many times what rounding explains it is apart."""


def op(
    name: str, inputs: Sequence[Valued] = (0,), outputs: Sequence[Valued] = (0,), **fields: Any
) -> OpFacts:
    """An op with these inputs and outputs."""
    values = []
    for side, found in ((Side.INPUT, inputs), (Side.OUTPUT, outputs)):
        for place, one in enumerate(found):
            made = one if isinstance(one, Apart) else value(one)
            values.append(made._replace(row=f"{name}.{side.value}.{place}", side=side))
    return OpFacts(name, tuple(values), **fields)


def torch(
    name: str, inputs: Sequence[Valued] = (0,), outputs: Sequence[Valued] = (0,), **fields: Any
) -> OpFacts:
    return op(f"Torch.{name}.0.forward", inputs, outputs, **fields)


def call(
    api: str, inputs: Sequence[Valued] = (0,), outputs: Sequence[Valued] = (0,), group: Sequence[int] = (),
    root: int | None = None, peers: Sequence[tuple[int, bool]] = (), number: int = 0,
) -> OpFacts:  # fmt: skip
    found = Call(apis()[api], tuple(group), root, tuple(Peer(*peer) for peer in peers))
    return op(f"Distributed.{api}.{number}.forward", inputs, outputs, call=found)


def send(to: int, times: Valued = 0, api: str = "send") -> OpFacts:
    return call(api, [times], [], root=to, peers=[(to, True)])


def receive(source: int, times: Valued = 0, api: str = "recv") -> OpFacts:
    return call(api, [UNSET], [times], root=source, peers=[(source, False)])


def named(*ranks: Sequence[OpFacts]) -> list[tuple[int, str]]:
    """What is named among ranks 0, 1, …: rank and name, earliest first."""
    return told(dict(enumerate(ranks)))


def told(ranks: dict[int, Sequence[OpFacts]]) -> list[tuple[int, str]]:
    return [(node.rank, short(node)) for node in first_differences(ranks)]


def short(node: Node) -> str:
    """``relu`` of ``Torch.relu.0.forward``; other names whole."""
    parts = node.facts.op.split(".")
    return parts[1] if parts[0] in ("Torch", "Distributed") else node.facts.op


def why(*ranks: Sequence[OpFacts]) -> str:
    """Why the one op that is named is named."""
    (node,) = first_differences(dict(enumerate(ranks)))
    return node.why


BAD = torch("bad", [0], [FAULT])
BEHIND = torch("behind", [FAULT], [FAULT])
GOOD = torch("good")


# -- one rank ----------------------------------------------------------------------------------


def test_without_difference_nothing_is_named() -> None:
    assert named() == named([]) == named([GOOD, GOOD]) == []
    assert named([op("Torch.a.0.forward", [], [])]) == []


def test_the_op_whose_inputs_agree_and_whose_outputs_do_not() -> None:
    ops = [GOOD, BAD, BEHIND, GOOD]
    assert named(ops) == [(0, "bad")]
    assert why(ops) == "returns values that differ, although its inputs agree (output.0: rms 10000 apart)"


def test_the_worst_output_is_told() -> None:
    assert "output.1: rms 10000 apart" in why([torch("two", [0], [20, FAULT, 30])])


def test_an_op_without_inputs() -> None:
    assert named([torch("arange", [], [FAULT]), BEHIND]) == [(0, "arange")]


def test_another_argument_is_part_of_the_evidence() -> None:
    ops = [torch("mul", [0, argument()], [FAULT]), BEHIND]
    assert named(ops) == [(0, "mul")]
    assert why(ops).startswith("was called with a different argument (input.1: 1.05 against 1.0) and returns")


def test_an_argument_that_changes_nothing_is_not_named() -> None:
    assert named([torch("relu", [0, argument()], [0]), GOOD]) == []
    assert why([torch("mul", [0, argument(False)], [FAULT])]).startswith("returns values that differ")


def test_values_that_differ_out_of_nowhere_are_named_where_they_are_taken_in() -> None:
    ops = [GOOD, torch("linear", [0, FAULT], [FAULT]), BEHIND]
    assert named(ops) == [(0, "linear")]
    assert why(ops).startswith(
        "takes in values that differ, and no earlier difference explains them (input.1: "
    )


def test_only_the_first_of_two_faults_of_one_rank() -> None:
    """The second may be an effect of the first in ways that are not on record."""
    assert named([BAD, GOOD, torch("second", [0], [FAULT])]) == [(0, "bad")]


def test_values_that_cannot_be_judged_say_nothing() -> None:
    assert named([torch("empty", [], [UNSET]), torch("view", [UNSET], [UNSET])]) == []
    assert named([torch("copy_", [UNSET, 0], [0])]) == []
    assert named([torch("copy_", [UNSET, 0], [FAULT])]) == [(0, "copy_")]


@pytest.mark.parametrize("factor", [2, 5, 9.9])
def test_rounding_that_builds_up_slowly_names_nothing(factor: float) -> None:
    sizes = [0.3 * factor**step for step in range(20)]
    assert named([torch("step", [one], [other]) for one, other in pairwise(sizes)]) == []


def test_a_jump_out_of_what_has_built_up_is_named() -> None:
    built_up = [torch("slow", [0.5], [2]), torch("slow", [2], [8])]
    assert named([*built_up, torch("jump", [8], [79])]) == []
    assert named([*built_up, torch("jump", [8], [81]), BEHIND]) == [(0, "jump")]


def test_exactly_what_rounding_explains_is_not_named() -> None:
    assert named([torch("at", [0], [1])]) == []
    assert named([torch("over", [0], [1 + 2**-40])]) == [(0, "over")]


def test_the_coarsest_dtype_so_far_says_what_rounding_explains() -> None:
    """What went through bfloat16 stays as coarse in float32."""
    fine = torch("fine", [0], [FAULT / 10])
    assert named([fine]) == [(0, "fine")]
    coarse = torch("coarse", [0], [value(noise=COARSE)])
    assert named([coarse, fine]) == []
    assert named([coarse, torch("fault", [0], [2 * COARSE / NOISE])]) == [(0, "fault")]


def test_what_is_no_matter_of_size_is_named_once() -> None:
    sums = [torch("first", [0], [unlike()]), torch("next", [unlike()], [unlike()])]
    assert named(sums) == [(0, "first")]
    assert named([torch("takes", [unlike()], [unlike()]), *sums]) == [(0, "takes")]


def test_nan_out_of_values_within_rounding_is_named() -> None:
    assert named([torch("a", [0.5], [0.9]), torch("log", [0.9], [unlike()])]) == [(0, "log")]


def test_a_difference_of_large_numbers_is_no_fault() -> None:
    """Rounding of the inputs is what the output is made of."""
    assert named([torch("sub", [value(0.5, scale=1e6)], [value(500.0, scale=1e-2)])]) == []


def test_nor_is_it_one_for_the_ops_behind() -> None:
    """x - mean(x), as every LayerNorm has it."""
    small = value(500.0, scale=1e-2)
    ops = [torch("sub", [value(0.5, scale=1e6)], [small]), torch("mul", [small, 0], [small])]
    assert named(ops) == []


def test_nor_where_the_golden_is_zero() -> None:
    zero = value(scale=0.0)._replace(distance=0.5 * NOISE, state=DIFFERS)
    assert named([torch("sub", [0.5, 0.5], [zero]), torch("mul", [zero], [zero])]) == []


def test_a_large_mask_does_not_hide_a_fault_of_softmax() -> None:
    """Scores masked with -10000 have a scale that the probabilities have nothing to do with."""
    scores, wrong = value(scale=5e3), value(0.02 / NOISE, scale=0.1)
    assert named([torch("softmax", [scores], [wrong]), torch("matmul", [wrong, 0], [FAULT])]) == [
        (0, "softmax")
    ]  # fmt: skip


def test_whole_numbers_that_differ_are_named_beside_floats() -> None:
    """One of 4096 token ids is another one."""
    ids = value(noise=0.0, scale=29_000.0)._replace(distance=1 / 64, state=DIFFERS, why="ids apart")
    ops = [torch("embedding", [0, ids], [FAULT]), BEHIND]
    assert named(ops) == [(0, "embedding")]
    assert "takes in values that differ" in why(ops)


def test_truth_values_that_differ_are_named() -> None:
    mask = value(noise=0.0)._replace(distance=0.5, state=DIFFERS)
    assert named([torch("eq", [0], [mask]), torch("where", [mask, 0], [FAULT])]) == [(0, "eq")]


# -- modules and gradients -------------------------------------------------------------------------

MODULE = "Module.layer.Layer.forward.0"


def test_a_call_and_not_the_module_around_it() -> None:
    inner = torch("linear", [0], [FAULT], within=(MODULE,))
    around = op(MODULE, [0], [FAULT])
    assert named([inner, around]) == named([around, inner]) == [(0, "linear")]


def test_the_innermost_of_modules() -> None:
    deep = "Module.layer.0.Linear.forward.0"
    modules = [op(MODULE, [0], [FAULT]), op(deep, [0], [FAULT], within=(MODULE,))]
    assert named(modules) == named(modules[::-1]) == [(0, deep)]
    inner = torch("linear", [0], [FAULT], within=(deep, MODULE))
    assert named([*modules, inner]) == named([inner, *modules[::-1]]) == [(0, "linear")]


def test_the_place_in_a_module_is_told_as_in_a_call() -> None:
    assert why([op(MODULE, [0], [FAULT])]).endswith("(output.0: rms 10000 apart)")


def test_a_module_that_no_call_within_explains() -> None:
    inner = torch("linear", [0], [0.5], within=(MODULE,))
    around = op(MODULE, [0], [FAULT])
    assert named([around, inner]) == named([inner, around]) == [(0, MODULE)]


def test_a_call_behind_the_module_is_not_named_for_it() -> None:
    assert named([op(MODULE, [0], [FAULT]), torch("relu", [0], [FAULT])]) == [(0, MODULE)]


def test_a_module_around_a_call_that_delivers_the_fault_of_another_rank() -> None:
    inner = call("all_reduce", [0], [FAULT])
    inner = OpFacts(inner.op, inner.values, inner.call, (MODULE,))
    assert named([op(MODULE, [0], [FAULT]), inner], [BAD, call("all_reduce", [FAULT], [FAULT])]) == [
        (1, "bad")
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["Module.l.Linear.parameters_grad", "Module.l.Linear.parameters_grad.0"])
def test_gradients_are_made_last_wherever_they_are_recorded(name: str) -> None:
    gradient = op(name, [], [FAULT])
    assert named([gradient, BAD, BEHIND]) == named([BAD, BEHIND, gradient]) == [(0, "bad")]
    assert named([gradient, GOOD]) == [(0, name)]
    assert why([gradient, GOOD]).startswith("differs, and no earlier difference explains it (")


def test_gradients_of_a_rank_that_learnt_of_a_fault() -> None:
    gradient = op("Module.l.Linear.parameters_grad", [], [FAULT])
    reduce = call("all_reduce", [0], [FAULT])
    assert named([gradient, reduce], [BAD, call("all_reduce", [FAULT], [FAULT])]) == [(1, "bad")]


# -- ranks that do not communicate -----------------------------------------------------------------


def test_independent_faults_are_all_named_earliest_first() -> None:
    late = [GOOD, GOOD, torch("late", [0], [FAULT])]
    early = [torch("early", [0], [FAULT])]
    assert named(late, early, [GOOD], [GOOD, *early]) == [(1, "early"), (3, "early"), (0, "late")]


def test_a_fault_of_all_ranks_is_named_on_all() -> None:
    reduce = call("all_reduce", [FAULT], [FAULT])
    assert named(*[[GOOD, BAD, reduce, BEHIND]] * 4) == [(rank, "bad") for rank in range(4)]


def test_calls_before_count_first() -> None:
    """What comes before the first communication is earlier than what comes behind, however long that is."""
    barrier = call("barrier", [], [])
    assert named([GOOD] * 9 + [BAD, barrier], [barrier, torch("soon", [0], [FAULT])]) == [
        (0, "bad"), (1, "soon"),
    ]  # fmt: skip


# -- in a group ------------------------------------------------------------------------------------

ALL = sorted(name for name, api in apis().items() if api.flow is Flow.ALL)
FROM_ROOT = sorted(name for name, api in apis().items() if api.flow is Flow.FROM_ROOT)
TO_ROOT = sorted(name for name, api in apis().items() if api.flow is Flow.TO_ROOT)
AFTER = torch("after", [0], [FAULT])
"""A fault that no value on record explains, behind a communication call."""


@pytest.mark.parametrize("api", ALL)
def test_a_fault_reaches_everyone_through_a_collective(api: str) -> None:
    faulty = [BAD, call(api, [FAULT], [FAULT]), BEHIND]
    others = [GOOD, call(api, [0], [FAULT]), BEHIND, AFTER]
    for place in range(3):
        ranks = [others] * 3
        ranks[place] = faulty
        assert named(*ranks) == [(place, "bad")]


@pytest.mark.parametrize("api", ALL)
def test_a_collective_that_delivers_wrong_values_is_named(api: str) -> None:
    wrong = [GOOD, call(api, [0], [FAULT]), BEHIND]
    right = [GOOD, call(api, [0], [0]), GOOD]
    assert named(wrong, wrong) == [(0, api), (1, api)]
    assert named(right, wrong) == [(1, api)]
    assert why(right, wrong).startswith(
        "delivers values that differ, although no difference was found in what was sent ("
    )


def test_a_collective_whose_own_input_differs_out_of_nowhere() -> None:
    assert named([call("all_reduce", [FAULT], [FAULT])], [call("all_reduce", [0], [FAULT]), BEHIND]) == [
        (0, "all_reduce")
    ]  # fmt: skip
    assert "takes in values that differ" in why(
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
    assert (
        named(*[[torch("a", [0], [0.5]), call("all_reduce", [0.5], [4.5]), torch("b", [4.5], [9])]] * 8) == []
    )


@pytest.mark.parametrize("api", FROM_ROOT)
def test_only_the_root_of_a_broadcast_or_scatter_is_learnt_from(api: str) -> None:
    def at(times: float, got: float) -> OpFacts:
        return call(api, [times], [got], root=1)

    behind = [at(0, FAULT), BEHIND, AFTER]
    assert named(behind, [BAD, at(FAULT, FAULT)], behind) == [(1, "bad")]
    assert named([at(0, 0), AFTER], [at(0, 0)], [BAD, at(FAULT, 0), GOOD]) == [(2, "bad"), (0, "after")]


@pytest.mark.parametrize("api", FROM_ROOT)
def test_what_lay_in_the_way_of_a_broadcast_is_not_judged(api: str) -> None:
    assert named([call(api, [0], [0], root=0)], [call(api, [FAULT], [0], root=0), GOOD]) == []


@pytest.mark.parametrize("api", TO_ROOT)
def test_only_the_root_of_a_reduce_or_gather_learns(api: str) -> None:
    def at(times: float, got: float) -> OpFacts:
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
    def ranks(api: str) -> list[list[OpFacts]]:
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
    """What goes wrong behind the send does not explain what the receiver does."""
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


def ring(rank: int, size: int, sent: float = 0, number: int = 0) -> OpFacts:
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
        other = [] if len(ops[0].call.group) == 0 else [call(short_api(ops[0]), [0], [0], [0, 1, 5], ops[0].call.root)]  # type: ignore[union-attr]  # fmt: skip
        (node,) = first_differences({0: [*ops, BEHIND], 1: other})
        assert (node.rank, node.facts) == (0, ops[0])
        assert "rank 5 may have sent them, and was not compared" in node.why


def short_api(facts: OpFacts) -> str:
    assert facts.call is not None
    return facts.call.api.name


def test_a_rank_that_was_not_compared_and_sent_what_agrees() -> None:
    assert named([call("all_gather", [0], [0], [0, 5]), receive(5), send(5), GOOD]) == []
    assert named([send(5), BAD]) == [(0, "bad")]


def test_ranks_may_have_any_numbers() -> None:
    reduce = call("all_reduce", [0], [FAULT], [3, 11])
    assert told({11: [BAD, call("all_reduce", [FAULT], [FAULT], [3, 11])], 3: [reduce, BEHIND]}) == [
        (11, "bad")
    ]
    assert told({7: [call("all_reduce", [0], [0], [0, 1])]}) == [], "numbered otherwise than we know"


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fail instead of hanging."""

    def late(*_: Any) -> None:
        raise AssertionError(f"no end within {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


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
def test_the_search_ends_whatever_is_missing(ranks: list[list[OpFacts]]) -> None:
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


# -- what a call is, by its record -------------------------------------------------------------------


def recorded(api: str, *inputs: Any, **keywords: Any) -> Call:
    """The call that a record of ``api`` with these arguments is."""
    fields = {"input_args": list(inputs), "input_kwargs": keywords, "output": []}
    found = call_of(record_of(0, f"Distributed.{api}.0.forward", fields))
    assert found is not None
    return found


TENSOR = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": 1.0}
GROUP = {"type": "torch.ProcessGroup", "group_ranks": [4, 5, 6]}


def number(value: int) -> dict[str, Any]:
    return {"type": "int", "value": value}


def test_the_group_of_a_call() -> None:
    assert recorded("all_reduce", TENSOR).group == ()
    assert recorded("all_reduce", TENSOR, group=None).group == ()
    assert recorded("all_reduce", TENSOR, group=GROUP).group == (4, 5, 6)
    assert recorded("all_reduce", TENSOR, {"type": "str", "value": "SUM"}, GROUP).group == (4, 5, 6)
    assert recorded("barrier", GROUP).group == (4, 5, 6)


@pytest.mark.parametrize(("api", "name"), [("broadcast", "src"), ("scatter", "src"), ("reduce", "dst"),
                                           ("gather", "dst")])  # fmt: skip
def test_the_root_of_a_call(api: str, name: str) -> None:
    place = apis()[api].arguments.index(name)
    assert recorded(api, TENSOR, **{name: number(2)}).root == 2
    assert recorded(api, *[TENSOR] * place, number(2)).root == 2
    assert recorded(api, TENSOR, **{f"group_{name}": number(2)}, group=GROUP).root == 6
    assert recorded(api, TENSOR, **{name: None, f"group_{name}": number(0)}, group=GROUP).root == 4
    assert recorded(api, TENSOR).root == 0
    assert recorded(api, TENSOR, group=GROUP).root == 4


def test_the_peers_of_a_transfer() -> None:
    assert recorded("send", TENSOR, number(3)).peers == (Peer(3, True),)
    assert recorded("isend", TENSOR, dst=number(3)).peers == (Peer(3, True),)
    assert recorded("recv", TENSOR, number(3)).peers == (Peer(3, False),)
    assert recorded("irecv", TENSOR, group_src=number(1), group=GROUP).peers == (Peer(5, False),)

    def transfer(name: str, peer: int) -> dict[str, Any]:
        return {"class_type": "torch.distributed.P2POp", "op": name, "tensor": TENSOR, "peer": peer,
                "tag": 0, "group_id": "0"}  # fmt: skip

    assert recorded("batch_isend_irecv", [transfer("isend", 1), transfer("irecv", 3)]).peers == (
        Peer(1, True), Peer(3, False),
    )  # fmt: skip


@pytest.mark.parametrize(
    "key",
    [
        "Torch.all_reduce.0.forward",
        "Distributed.nope.0.forward",
        "Distributed",
        "Distributed.all_reduce.0.backward",
        "Module.Distributed.all_reduce.0.forward",
    ],
)
def test_records_that_are_no_communication(key: str) -> None:
    assert call_of(record_of(0, key, {"output": []})) is None


# -- random programs -------------------------------------------------------------------------------


@dataclass
class Event:
    """What happens at one moment of a program: an op of one rank, or a call that several make together."""

    api: str
    ranks: tuple[int, ...]
    root: int = 0
    group: tuple[int, ...] = ()
    reads: tuple[int, ...] = ()
    writes: int = 0


VARIABLES = 3
COLLECTIVES = ["all_reduce", "all_gather", "broadcast", "scatter", "reduce", "gather", "barrier"]


def program(rng: random.Random, world: int, length: int) -> list[Event]:
    """What a program does, in an order in which it could happen."""
    events = []
    for _ in range(length):
        kind = rng.choice(["compute"] * 4 + ["collective", "transfer", "ring"])
        chosen = {
            "reads": tuple(rng.randrange(VARIABLES) for _ in range(rng.randint(1, 2))),
            "writes": rng.randrange(VARIABLES),
        }
        if kind == "compute" or world == 1:
            events.append(Event("compute", (rng.randrange(world),), **chosen))
            continue
        ranks = tuple(sorted(rng.sample(range(world), rng.randint(2, world))))
        if kind == "collective":
            group = () if len(ranks) == world and rng.random() < 0.5 else ranks
            root = rng.choice(ranks)
            events.append(Event(rng.choice(COLLECTIVES), ranks, root, group, **chosen))
        elif kind == "transfer":
            events.append(Event("send", tuple(rng.sample(ranks, 2)), **chosen))
        else:
            events.append(Event("batch_isend_irecv", ranks, **chosen))
    return events


@dataclass
class Machine:
    """Runs a program twice in one go, with faults and without, and records how far values are apart.

    Cause and effect are followed by the values themselves and by what each rank has heard of; neither
    looks at how the search goes about it.
    """

    world: int
    faults: dict[int, int]
    growth: float = 1.0
    ops: dict[int, list[OpFacts]] = field(default_factory=dict)
    memory: dict[int, list[float]] = field(default_factory=dict)
    heard: dict[int, set[int]] = field(default_factory=dict)
    culprits: list[tuple[int, str]] = field(default_factory=list)

    def run(self, events: Sequence[Event]) -> None:
        for rank in range(self.world):
            self.ops[rank] = []
            self.memory[rank] = [0.1] * VARIABLES
            self.heard[rank] = set()
        for moment, event in enumerate(events):
            {"compute": self.compute, "send": self.send, "batch_isend_irecv": self.ring}.get(
                event.api, self.collective
            )(moment, event, self.faults.get(moment))

    def read(self, rank: int, event: Event) -> list[float]:
        return [self.memory[rank][place] for place in event.reads]

    def record(self, rank: int, facts: OpFacts) -> None:
        self.ops[rank].append(facts)

    def blame(self, rank: int, moment: int, name: str) -> None:
        """A fault happens on a rank: it is to be named unless the rank has heard of another."""
        if not self.heard[rank]:
            self.culprits.append((rank, name))
        self.heard[rank] = self.heard[rank] | {moment}

    def compute(self, moment: int, event: Event, fault: int | None) -> None:
        (rank,) = event.ranks
        name = f"Torch.op.{moment}.forward"
        taken = self.read(rank, event)
        given = min(max(taken) * self.growth, FAULT)
        if fault is not None:
            given = max(given, FAULT)
            self.blame(rank, moment, name)
        self.memory[rank][event.writes] = given
        self.record(rank, op(name, taken, [given]))

    def collective(self, moment: int, event: Event, fault: int | None) -> None:
        flow = apis()[event.api].flow
        sent = {rank: self.read(rank, event)[0] for rank in event.ranks}
        heard = {rank: set(self.heard[rank]) for rank in event.ranks}
        for rank in event.ranks:
            sources = {Flow.ALL: event.ranks, Flow.FROM_ROOT: (event.root,), Flow.NONE: ()}.get(
                flow, event.ranks if rank == event.root else ()
            )
            name = f"Distributed.{event.api}.{moment}.forward"
            got = max((sent[source] for source in sources), default=None)
            for source in sources:
                self.heard[rank] = self.heard[rank] | heard[source]
            if got is not None:
                if fault == rank:
                    got = max(got, FAULT)
                    self.blame(rank, moment, name)
                self.memory[rank][event.writes] = got
            call_ = Call(apis()[event.api], event.group, event.root)
            outputs = [got] if got is not None else []
            self.record(rank, op(name, [sent[rank]] if flow is not Flow.NONE else [], outputs, call=call_))

    def send(self, moment: int, event: Event, fault: int | None) -> None:
        source, drain = event.ranks
        sent = self.read(source, event)[0]
        got = sent
        self.heard[drain] = self.heard[drain] | self.heard[source]
        name = f"Distributed.recv.{moment}.forward"
        if fault == drain:
            got = FAULT
            self.blame(drain, moment, name)
        self.memory[drain][event.writes] = got
        to, origin = Call(apis()["send"], (), drain, (Peer(drain, True),)), Peer(source, False)
        self.record(source, op(f"Distributed.send.{moment}.forward", [sent], [], call=to))
        self.record(drain, op(name, [UNSET], [got], call=Call(apis()["recv"], (), source, (origin,))))

    def ring(self, moment: int, event: Event, fault: int | None) -> None:
        heard = {rank: set(self.heard[rank]) for rank in event.ranks}
        sent = {rank: self.read(rank, event)[0] for rank in event.ranks}
        for place, rank in enumerate(event.ranks):
            after, before = event.ranks[(place + 1) % len(event.ranks)], event.ranks[place - 1]
            self.heard[rank] = self.heard[rank] | heard[before]
            self.memory[rank][event.writes] = sent[before]
            peers = (Peer(after, True), Peer(before, False))
            found = Call(apis()["batch_isend_irecv"], (), None, peers)
            name = f"Distributed.batch_isend_irecv.{moment}.forward"
            self.record(rank, op(name, [sent[rank], UNSET], [], call=found))


def can_fail(event: Event) -> list[int]:
    """The ranks on which a fault of an event would show in what it gives out."""
    flow = Flow.NONE if event.api == "compute" else apis()[event.api].flow
    if event.api == "compute" or flow is Flow.ALL or flow is Flow.FROM_ROOT:
        return list(event.ranks)
    if event.api == "send":
        return [event.ranks[1]]
    return [event.root] if flow is Flow.TO_ROOT else []


def machine(seed: int, world: int, length: int, count: int, growth: float = 1.0) -> Machine:
    """A random program that ran with ``count`` faults."""
    rng = random.Random(seed)
    events = program(rng, world, length)
    places = [(moment, rank) for moment, event in enumerate(events) for rank in can_fail(event)]
    faults = dict(rng.sample(places, min(count, len(places))))
    made = Machine(world, faults, growth)
    made.run(events)
    return made


def full(ranks: dict[int, Sequence[OpFacts]]) -> list[tuple[int, str]]:
    with within(20):
        return [(node.rank, node.facts.op) for node in first_differences(ranks)]


SEEDS = st.integers(0, 2**32)
WORLDS = st.integers(1, 8)


@PROPERTY
@given(SEEDS, WORLDS, st.integers(0, 60))
def test_a_program_without_fault_names_nothing(seed: int, world: int, length: int) -> None:
    assert full(machine(seed, world, length, 0).ops) == []


@PROPERTY
@given(SEEDS, WORLDS, st.integers(1, 60), st.floats(1, 9.9))
def test_a_program_that_rounds_names_nothing(seed: int, world: int, length: int, growth: float) -> None:
    """Each op makes of rounding a few times as much."""
    assert full(machine(seed, world, length, 0, growth).ops) == []


@PROPERTY
@given(SEEDS, WORLDS, st.integers(1, 60))
def test_the_one_fault_of_a_program_is_named_and_nothing_else(seed: int, world: int, length: int) -> None:
    made = machine(seed, world, length, 1)
    assert full(made.ops) == made.culprits
    assert len(made.culprits) == len(made.faults)


@PROPERTY
@given(SEEDS, WORLDS, st.integers(1, 60), st.integers(2, 6))
def test_faults_that_have_not_heard_of_each_other_are_all_named(
    seed: int, world: int, length: int, count: int
) -> None:
    made = machine(seed, world, length, count)
    assert sorted(full(made.ops)) == sorted(made.culprits)


@PROPERTY
@given(SEEDS, WORLDS, st.integers(1, 60), st.integers(0, 3))
def test_the_search_ends_on_records_that_end_too_early(
    seed: int, world: int, length: int, count: int
) -> None:
    """A rank names one op at most, and one of those on its record."""
    made = machine(seed, world, length, count)
    rng = random.Random(seed)
    cut = {rank: ops[: rng.randint(0, len(ops))] for rank, ops in made.ops.items()}
    found = full(cut)
    assert len({rank for rank, _ in found}) == len(found)
    assert all(name in [facts.op for facts in cut[rank]] for rank, name in found)


@PROPERTY
@given(SEEDS, WORLDS, st.integers(1, 60), st.integers(0, 3))
def test_the_search_ends_on_records_with_holes(seed: int, world: int, length: int, count: int) -> None:
    made = machine(seed, world, length, count)
    rng = random.Random(seed)
    holed = {rank: [facts for facts in ops if rng.random() < 0.8] for rank, ops in made.ops.items()}
    found = full(holed)
    assert len({rank for rank, _ in found}) == len(found)
    if not count:
        assert found == []


@PROPERTY
@given(SEEDS, st.integers(2, 8), st.integers(1, 60))
def test_ranks_that_were_not_compared_make_no_other_guilty(seed: int, world: int, length: int) -> None:
    """Without fault nothing is named, whoever is missing; with one, it is named if its rank is there."""
    rng = random.Random(seed)
    there = rng.sample(range(world), rng.randint(1, world))
    clean = machine(seed, world, length, 0)
    assert full({rank: clean.ops[rank] for rank in there}) == []
    made = machine(seed, world, length, 1)
    found = full({rank: made.ops[rank] for rank in there})
    ours = [culprit for culprit in made.culprits if culprit[0] in there]
    assert [one for one in found if one in ours] == ours


def test_many_ranks_and_calls_take_little_time() -> None:
    made = machine(7, 64, 4_000, 1)
    with within(20):
        assert full(made.ops) == made.culprits


def test_what_stands_for_no_stack_is_none(tmp_path: Path) -> None:
    """The table's column says N/A, in this row and that; a row with frames gives them."""
    values = {"state": "differs", "distance": 1.0, "scale": 1.0, "noise": 0.0, "jump": 10.0, "scalar": False,
              "why": ""}  # fmt: skip
    rows = [
        {"NPU Name": f"op.output.{n}", "Bench Name": "N/A", "state": "output", "difference": values} | stack
        for n, stack in enumerate(({"NPU_Stack_Info": "N/A"}, {}, {"NPU_Stack_Info": ["line 1", "line 2"]}))
    ]
    path = tmp_path / "compare_result_rank0_1.json"
    path.write_text(json.dumps({"op": {"is_same": False, "op_items": rows}}))
    (facts,) = read(path)
    items = items_at(path, facts.place)
    assert [item.stack for item in items] == [(), (), ("line 1", "line 2")]
    assert [item.apart for item in items] == list(facts.values)
