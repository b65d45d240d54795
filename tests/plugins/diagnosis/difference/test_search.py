"""The search of the first difference on one rank, in modules and gradients."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from probe_diagnosis.difference.nodes import RankHistory
from probe_diagnosis.difference.search import search
from probe_diagnosis.timeline.compared_calls import Basis, ComparedCall, ValueComparison, ValueState
from support.runs.ops import (
    BAD,
    BEHIND,
    COARSE,
    FAULT,
    GOOD,
    NOISE,
    UNSET,
    argument,
    call,
    named,
    op,
    torch,
    value,
    why,
)

from probe_core.model import Side

# -- making ops --------------------------------------------------------------------------------


def unlike(**fields: Any) -> ValueComparison:
    """A tensor that differs, which is no matter of size: a checksum, nan at other places."""
    return ValueComparison("", Side.INPUT, ValueState.DIFFERS, math.inf, 1.0, evidence="checksum a against b")._replace(
        **fields
    )


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
    assert why(ops).startswith("receives values that differ, and no earlier difference explains them (input.1: ")


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
    """Values that went through bfloat16 stay as coarse in float32."""
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
    """X - mean(x), as every LayerNorm has it."""
    small = value(500.0, scale=1e-2)
    ops = [torch("sub", [value(0.5, scale=1e6)], [small]), torch("mul", [small, 0], [small])]
    assert named(ops) == []


def test_nor_where_the_golden_is_zero() -> None:
    zero = value(scale=0.0)._replace(distance=0.5 * NOISE, state=ValueState.DIFFERS)
    assert named([torch("sub", [0.5, 0.5], [zero]), torch("mul", [zero], [zero])]) == []


def test_a_large_mask_does_not_hide_a_fault_of_softmax() -> None:
    """Scores masked with -10000 have a scale that the probabilities have nothing to do with."""
    scores, wrong = value(scale=5e3), value(0.02 / NOISE, scale=0.1)
    assert named([torch("softmax", [scores], [wrong]), torch("matmul", [wrong, 0], [FAULT])]) == [
        (0, "softmax")
    ]  # fmt: skip


def test_whole_numbers_that_differ_are_named_beside_floats() -> None:
    """One of 4096 token ids is another one."""
    differing = {"distance": 1 / 64, "jump": 0.0, "state": ValueState.DIFFERS, "evidence": "ids apart"}
    ids = value(noise=0.0, scale=29_000.0)._replace(**differing)
    ops = [torch("embedding", [0, ids], [FAULT]), BEHIND]
    assert named(ops) == [(0, "embedding")]
    assert "receives values that differ" in why(ops) and "input.1: ids apart" in why(ops)


def test_truth_values_that_differ_are_named() -> None:
    mask = value(noise=0.0)._replace(distance=0.5, state=ValueState.DIFFERS)
    assert named([torch("eq", [0], [mask]), torch("where", [mask, 0], [FAULT])]) == [(0, "eq")]


# -- modules and gradients -------------------------------------------------------------------------


MODULE = "Module.layer.Layer.forward.0"


def test_a_call_and_not_the_module_around_it() -> None:
    inner = torch("linear", [0], [FAULT], modules=(MODULE,))
    around = op(MODULE, [0], [FAULT])
    assert named([inner, around]) == named([around, inner]) == [(0, "linear")]


def test_the_innermost_of_modules() -> None:
    deep = "Module.layer.0.Linear.forward.0"
    modules = [op(MODULE, [0], [FAULT]), op(deep, [0], [FAULT], modules=(MODULE,))]
    assert named(modules) == named(modules[::-1]) == [(0, deep)]
    inner = torch("linear", [0], [FAULT], modules=(deep, MODULE))
    assert named([*modules, inner]) == named([inner, *modules[::-1]]) == [(0, "linear")]


def test_the_place_in_a_module_is_told_as_in_a_call() -> None:
    assert why([op(MODULE, [0], [FAULT])]).endswith("(output.0: rms 10000 apart)")


def test_a_module_that_no_call_within_explains() -> None:
    inner = torch("linear", [0], [0.5], modules=(MODULE,))
    around = op(MODULE, [0], [FAULT])
    assert named([around, inner]) == named([inner, around]) == [(0, MODULE)]


def test_a_call_behind_the_module_is_not_named_for_it() -> None:
    assert named([op(MODULE, [0], [FAULT]), torch("relu", [0], [FAULT])]) == [(0, MODULE)]


def test_a_module_around_a_call_that_delivers_the_fault_of_another_rank() -> None:
    inner = call("all_reduce", [0], [FAULT])
    inner = ComparedCall(inner.op, inner.values, inner.communication, (MODULE,))
    assert named([op(MODULE, [0], [FAULT]), inner], [BAD, call("all_reduce", [FAULT], [FAULT])]) == [
        (1, "bad")
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["Module.l.Linear.parameters_grad", "Module.l.Linear.parameters_grad.0"])
def test_gradients_are_made_last_wherever_they_are_recorded(name: str) -> None:
    gradient = op(name, [], [FAULT])
    assert named([gradient, BAD, BEHIND]) == named([BAD, BEHIND, gradient]) == [(0, "bad")]
    assert named([gradient, GOOD]) == [(0, name)]
    assert why([gradient, GOOD]).startswith("differs, and no earlier difference explains it (")


@pytest.mark.parametrize(
    ("before", "end"),
    [
        (torch("mul", [0, argument()], [0.5]), "the different argument of the earlier call Torch.mul.0.forward may"),
        (torch("mul", [0, argument()], [0]), "no earlier difference explains it"),
        (torch("mul", [0, argument(False)], [0.5]), "no earlier difference explains it"),
        (torch("mul", [0, argument()], [0.5], is_shifted=True), "no earlier difference explains it"),
    ],
)
def test_another_argument_whose_effect_is_within_rounding_may_cause_a_gradient(before: ComparedCall, end: str) -> None:
    gradient = op("Module.l.Linear.parameters_grad", [], [FAULT])
    assert why([before, gradient]).startswith(f"differs, and {end}")


def test_another_argument_of_another_rank_may_cause_a_gradient() -> None:
    made, reduce = torch("mul", [0, argument()], [0.5]), call("all_reduce", [0.5], [0.5])
    ranks = [reduce, op("Module.l.Linear.parameters_grad", [], [FAULT])], [made, reduce]
    assert "the different argument of the earlier call Torch.mul.0.forward may have caused it" in why(*ranks)


def test_gradients_of_a_rank_that_learnt_of_a_fault() -> None:
    gradient = op("Module.l.Linear.parameters_grad", [], [FAULT])
    reduce = call("all_reduce", [0], [FAULT])
    assert named([gradient, reduce], [BAD, call("all_reduce", [FAULT], [FAULT])]) == [(1, "bad")]


def test_a_gradient_that_is_zero_in_theory_beside_others() -> None:
    """The gradient of a bias in front of a normalization is rounding of sums as large as the weight's gradient."""
    taken = value(0.3, scale=1e-4)
    weight, bias = value(0.3), value(FAULT, scale=1e-5)
    backward = op("Functional.conv2d.0.backward", [taken], [weight, bias])
    assert named([GOOD, backward]) == []
    assert named([GOOD, op(backward.op, [taken], [value(FAULT), bias])]) == [(0, backward.op)]


@pytest.mark.parametrize("divisor", [1, 2**16, 24.540071])
def test_a_gradient_that_is_zero_in_theory_is_no_difference_where_it_is_received(divisor: int) -> None:
    """The total norm of all gradients receives it beside others, also unscaled or clipped."""
    distance, scale = 0.7e-5, 1e-5  # 92,000 times its own rounding, and less than the rounding of the weight
    taken = ValueComparison("", Side.OUTPUT, ValueState.DIFFERS, distance, scale, NOISE)
    gradients = op("Module.conv.Conv2d.parameters_grad", [], [value(20), taken])
    received = taken._replace(side=Side.INPUT, distance=distance / divisor * (1 + 4e-7), scale=scale / divisor)
    grows = [torch("exp", [0], [0.5]), torch("sin", [0.5], [4]), op("Functional.conv2d.0.backward", [4], [20])]
    assert named([*grows, gradients, torch("_foreach_norm", [received], [])]) == []
    assert named([*grows, gradients, torch("_foreach_norm", [FAULT], [])]) == [(0, "_foreach_norm")]


def test_known_values_explain_what_calls_after_the_backward_pass_receive() -> None:
    norm = torch("_foreach_norm", [FAULT], [FAULT])
    known = {(difference.distance, difference.scale) for difference in norm.values}
    assert [node.call.op for node in search({0: [norm]}, known).first] == [norm.op]
    assert not search({0: [norm]}, known, follows_backward=True).first


def test_known_gradient_is_known_after_it_was_clipped() -> None:
    """Clipping keeps the relative distance within the rounding of the values."""
    gradient = ValueComparison("", Side.INPUT, ValueState.DIFFERS, 1.748558e-07, 2.184724e-03, NOISE, jump=10)
    clipped = gradient._replace(distance=1.349254e-07, scale=1.686330e-03)
    other = gradient._replace(distance=3e-07)
    known = {(gradient.distance, gradient.scale)}
    assert not search({0: [torch("lerp_", [clipped], [])]}, known, follows_backward=True).first
    assert search({0: [torch("lerp_", [other], [])]}, known, follows_backward=True).first


def test_a_gradient_behind_weights_that_are_zero_restores_what_the_model_did_not_pass_on() -> None:
    """The output of a layer whose weights are zero agrees; the gradient of its weights does not."""
    model, neck = "Module.model.Net.forward.0", "Module.model.neck.Neck.forward.0"
    wrong = torch("interpolate", [0], [FAULT], modules=(neck, model))
    outputs = [op(neck, [0], [FAULT], modules=(model,)), op(model, [0], [0], outputs_agree=True)]
    gradient = op("Module.model.head.Linear.parameters_grad", [], [FAULT])
    assert named([GOOD, wrong, *outputs, gradient]) == [(0, "interpolate")]


def test_what_grows_within_a_module_that_agrees_has_gone() -> None:
    """An equivalent replacement, of which no call by itself introduces the difference."""
    inner = [torch("exp", [0], [0.8], modules=(MODULE,)), torch("log", [0.8], [5], modules=(MODULE,))]
    assert [node.call.op for node in search({0: inner}).grown] == ["Torch.log.0.forward"]
    found = search({0: [*inner, op(MODULE, [0], [0], outputs_agree=True)]})
    assert not found.grown and not found.first
    later = op("Torch.sin.0.forward", [FAULT], [FAULT])
    assert named([*inner, op(MODULE, [0], [0], outputs_agree=True), later]) == [(0, "sin")]


def test_a_module_is_not_named_for_a_difference_that_grew_within_it() -> None:
    """A choice by comparing, such as routing, that rounding decides otherwise."""
    chosen = value(noise=0.0)._replace(state=ValueState.DIFFERS, distance=1.0)
    inner = [
        torch("topk", [0.5], [0.5, chosen], modules=(MODULE,)),
        torch("index", [0.5], [5], modules=(MODULE,)),
    ]
    found = search({0: [*inner, op(MODULE, [0.5], [FAULT])]})
    assert not found.first
    assert [node.call.op for node in found.grown] == ["Torch.topk.0.forward"]
    assert named([op(MODULE, [0.5], [FAULT])]) == [(0, MODULE)]


def by_statistics(times: float) -> ValueComparison:
    return value(times, basis=Basis.STATISTICS)


def test_statistics_hide_a_part_of_what_the_inputs_differ_by() -> None:
    """Inputs whose norms differ by s may differ by sqrt(2 s), here 512 times what rounding explains."""
    assert named([torch("a", [by_statistics(0.0)], [by_statistics(200.0)])]) == [(0, "a")]
    assert named([torch("a", [by_statistics(1.0)], [by_statistics(500.0)])]) == []
    assert named([torch("a", [by_statistics(1.0)], [by_statistics(520.0)])]) == [(0, "a")]
    assert named([torch("a", [1.0], [500.0])]) == [(0, "a")]


def test_gradients_are_compared_with_the_largest_difference_before_them() -> None:
    gradients = op("Module.l.Linear.parameters_grad", [], [40])
    assert named([torch("a", [0.5], [4.5]), gradients]) == []
    assert named([torch("a", [0.5], [0.5]), gradients]) == [(0, gradients.op)]


@pytest.mark.parametrize("times, first", [(0.5, []), (5.0, []), (FAULT, [(0, "a")])])
def test_the_rounding_of_earlier_steps_explains_inputs(times: float, first: list[tuple[int, str]]) -> None:
    past = RankHistory(largest_multiple=1.0, noise=NOISE)
    nodes = search({0: [torch("a", [times], [times])]}, histories={0: past}).first
    assert [(node.rank, node.call.op.split(".")[1]) for node in nodes] == first
    assert (past.largest_multiple, past.noise, past.has_reported) == (1.0, NOISE, False)


@pytest.mark.parametrize("inputs, first", [([0.0], []), ([], [(0, "where")])])
def test_integers_may_be_chosen_by_values_that_rounding_decides(
    inputs: list[float], first: list[tuple[int, str]]
) -> None:
    """Statistics of the mask are equal, although other elements are set."""
    places = value(noise=0.0, basis=Basis.STATISTICS)._replace(state=ValueState.DIFFERS, distance=3.0)
    where = torch("where", [by_statistics(times) for times in inputs], [places])
    assert named([torch("router", [0.0], [0.5]), where]) == first
    assert named([torch("router", [0.0], [0.0]), where]) == [(0, "where")]


# -- differences that an optimizer carried from earlier steps ----------------------------------------------

BIAS = value(FAULT)
KNOWN = {0: [(BIAS.distance, BIAS.scale)]}
PAST = {0: RankHistory(largest_multiple=1.0, noise=NOISE)}


def after_steps(*ops: ComparedCall) -> list[str]:
    found = search({0: ops}, histories=PAST, carried=KNOWN)
    return [node.call.op.split(".")[1] for node in [*found.first, *found.grown]]


def test_what_is_computed_from_carried_rounding_is_not_named() -> None:
    keys, scores = torch("keys", [0, BIAS], [300]), torch("scores", [0, 300], [400])
    softmax = torch("softmax", [400], [0.5])
    assert [node.call.op for node in search({0: [keys]}, histories=PAST).first] == [keys.op]
    assert after_steps(keys, scores, softmax) == []
    assert after_steps(keys, scores, softmax, torch("bad", [0.5], [FAULT])) == ["bad"]


def test_an_input_beside_carried_rounding_counts() -> None:
    assert after_steps(torch("keys", [0, BIAS, 2 * FAULT], [300])) == ["keys"]


def test_an_argument_beside_carried_rounding_counts() -> None:
    assert after_steps(torch("keys", [BIAS, argument()], [3 * FAULT])) == ["keys"]


def test_a_backward_call_is_not_computed_from_carried_parameters_alone() -> None:
    assert after_steps(op("Torch.keys.0.backward", [BIAS], [300])) == ["keys"]


@pytest.mark.parametrize("has_gradients, named_ops", [(True, ["mul"]), (False, [])])
def test_an_optimizer_is_judged_by_the_gradients_that_it_receives(has_gradients: bool, named_ops: list[str]) -> None:
    """The gradient of a bias of keys is rounding: it differs from itself by far more than others do."""
    bias = value(FAULT, scale=1e-5)
    backward = op("Torch.linear.0.backward", [0], [0.1, bias])
    gradients = op("Module.l.Linear.parameters_grad", [], [0.1, bias])
    step = torch("mul", [500], [500], modules=("optimizer",))
    found = search({0: [backward, *([gradients] if has_gradients else []), step]})
    assert [node.call.op.split(".")[1] for node in found.first] == named_ops
