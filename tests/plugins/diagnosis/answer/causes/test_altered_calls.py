"""Calls that were made differently within rounding: causes to know of, and no difference of values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.probe import Probe
from support.runs.answered import answered, back, call, normal, record, statistics

X, Y, Z = (normal(seed=number) for number in range(3))
CHAIN = {f"Torch.f{number}.0.forward": call(X, out=X) for number in range(4)}
NORM = [f"Functional.layer_norm.{number}.forward" for number in range(3)]


def answer(directory: Path, target: Any, golden: Any, task: str = "tensor") -> Any:
    found = answered(directory, target, golden, task).answer
    assert found is not None
    return found


def test_another_argument_within_rounding_is_named_and_the_values_agree(tmp_path: Path, probe: Probe) -> None:
    target, golden = (CHAIN | {NORM[0]: call(X, eps, out=X)} for eps in (1e-6, 1e-5))
    found = answer(tmp_path, target, golden)
    assert found.outcome.value == "AGREE"
    assert found.sentence.endswith(f"; 1 call was made differently: {NORM[0]}")
    (cause,) = found.causes
    assert cause.reason.detail == (
        "was called with a different argument (input.1: 1e-06 against 1e-05), and its outputs agree within rounding"
    )
    assert cause.evidence["argument"] == f"{NORM[0]}.input.1"
    runs = [record(tmp_path / "again" / name, calls) for name, calls in (("t", target), ("g", golden))]
    assert probe("compare", *runs, "-o", tmp_path / "o", "--fail-on", "suspect") == 1


def test_a_backward_call_names_the_other_argument_of_its_forward_call(tmp_path: Path) -> None:
    forward, backward = "Functional.embedding.0.forward", "Functional.embedding.0.backward"
    wrong, right = (
        CHAIN | {forward: call(X, scaled, out=X), backward: back(Y, gradient)}
        for scaled, gradient in ((True, Z), (False, Y))
    )
    found = answer(tmp_path, wrong, right)
    assert found.outcome.value == "DIVERGED"
    (cause,) = found.causes
    assert cause.op == forward and cause.consequences == (backward,)
    assert cause.reason.detail == (
        "was called with a different argument (input.1: True against False), and its outputs agree "
        f"within rounding, but the backward call {backward} returns values that differ"
    )
    assert cause.evidence["argument_values"] == "True against False"
    within = answer(tmp_path / "within", wrong | {backward: back(Y, Y)}, right)
    assert within.outcome.value == "AGREE" and [one.op for one in within.causes] == [forward]


def test_equal_findings_are_folded(tmp_path: Path) -> None:
    target, golden = (CHAIN | {key: call(X, eps, out=X) for key in NORM} for eps in (1e-6, 1e-5))
    found = answer(tmp_path, target, golden)
    assert [(cause.op, cause.same) for cause in found.causes] == [(NORM[0], tuple(NORM[1:]))]


def test_equal_findings_are_folded_where_they_are_the_cause(tmp_path: Path) -> None:
    wrong = [call(one, 0.5, out=other) for one, other in ((X, Y), (Y, Z), (Z, X))]
    right = [call(X, 0.1, out=X) for _ in NORM]
    target, golden = (CHAIN | dict(zip(NORM, calls)) for calls in (wrong, right))
    found = answer(tmp_path, target, golden)
    assert found.outcome.value == "DIVERGED"
    assert [(cause.op, cause.same) for cause in found.causes] == [(NORM[0], tuple(NORM[1:]))]


def test_another_dtype_within_rounding(tmp_path: Path) -> None:
    lower = {**statistics(X), "dtype": "torch.bfloat16"}
    whole = statistics(X)
    low = "Torch.matmul.0.forward"
    before = {key: call(whole, out=whole) for key in CHAIN}
    target, golden = (before | {low: call(whole, out=one)} for one in (lower, whole))
    found = answer(tmp_path, target, golden, "statistics")
    assert found.outcome.value == "AGREE"
    (cause,) = found.causes
    assert cause.op == low
    assert cause.reason.detail == (
        "computes in another dtype (output.0: torch.bfloat16 against torch.float32), and its outputs "
        "agree in their statistics"
    )


def test_a_run_in_another_dtype_from_its_beginning_is_meant_to_be(tmp_path: Path) -> None:
    whole, lower = statistics(X), {**statistics(X), "dtype": "torch.bfloat16"}
    target, golden = ({key: call(one, out=one) for key in CHAIN} for one in (lower, whole))
    found = answer(tmp_path, target, golden, "statistics")
    assert found.outcome.value == "AGREE"
    assert not found.causes


def test_arguments_behind_the_cause_are_not_named_as_made_differently(tmp_path: Path) -> None:
    target, golden = (
        {"Torch.a.0.forward": call(X, out=out)} | CHAIN | {NORM[0]: call(X, eps, out=X)}
        for out, eps in ((Y, 1e-6), (X, 1e-5))
    )
    found = answer(tmp_path, target, golden)
    assert [cause.op for cause in found.causes] == ["Torch.a.0.forward"]


def test_equal_truth_values_do_not_differ(tmp_path: Path) -> None:
    """Nothing that was compared says that what the call returns differs."""
    mask = np.array([True, False])
    target, golden = (CHAIN | {"Tensor.tril.0.forward": call(mask, one, out=mask)} for one in (1, 0))
    for task, how in (("tensor", "within rounding"), ("statistics", "in their statistics")):
        (cause,) = answer(tmp_path / task, target, golden, task).causes
        assert cause.reason.detail.endswith(f", and its outputs agree {how}")


def test_where_a_result_is_stored_is_no_difference(tmp_path: Path) -> None:
    target, golden = (CHAIN | {"Functional.relu.0.forward": call(X, out=X, inplace=one)} for one in (True, False))
    found = answer(tmp_path, target, golden)
    assert found.outcome.value == "AGREE"
    assert not found.causes


MODULE = "Module.m.Linear.forward.0"
LINEAR, ADD = "Functional.linear.0.forward", "Tensor.add.0.forward"


def test_a_bias_that_another_call_adds_is_not_dropped(tmp_path: Path) -> None:
    bias, sum_of_both = normal(seed=5), (X + Y).astype(np.float32)
    behind = call(sum_of_both, Y, out=Z)
    apart = {LINEAR: call(X, Z, out=X), ADD: call(X, bias, out=sum_of_both), "Tensor.add.1.forward": behind}
    whole = {LINEAR: call(X, Z, bias, out=sum_of_both), ADD: behind}
    for name, one in (("target", apart), ("golden", whole)):
        other = whole if one is apart else apart
        found = answer(tmp_path / name, CHAIN | one, CHAIN | other)
        assert found.outcome.value == "AGREE"
        assert not found.causes


def test_a_computation_with_complex_numbers_is_another_one(tmp_path: Path) -> None:
    mul = "Tensor.__mul__.0.forward"
    wide = (X + 1j * Y).astype(np.complex64)
    target = {mul: call(wide, wide, out=wide), ADD: call(wide, out=Z)}
    golden = {mul: call(X, Y, out=X), ADD: call(X, out=Z)}
    found = answer(tmp_path, CHAIN | target, CHAIN | golden)
    assert not any("complex" in cause.reason.detail for cause in found.causes)


@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_another_constant_of_a_mask_is_a_note(task: str, tmp_path: Path) -> None:
    """It hides the same elements, and the row fails by the rule of its table alone."""
    fill = "Tensor.masked_fill.0.forward"
    target, golden = (CHAIN | {fill: call(X, one, out=np.where(X > 0, X, np.float32(one)))} for one in (-1e9, -np.inf))
    found = answer(tmp_path, target, golden, task)
    assert found.outcome.value == "AGREE"
    assert not found.causes
    (note,) = found.notes
    assert note.text.endswith(
        "(input.1: -1000000000.0 against -inf), and its outputs differ at most in masked elements"
    )


@pytest.mark.parametrize(("axes", "outcome"), [((1, -1), 0), ((-1, 1), 0), ((0, -1), 1), ((1, 3), 1)])
def test_an_axis_counted_from_the_end_is_the_same(axes: tuple[int, int], outcome: int, tmp_path: Path) -> None:
    square = normal(4, 4)
    runs = [CHAIN | {"Torch.softmax.0.forward": call(square, one, out=square)} for one in axes]
    assert len(answer(tmp_path, *runs).causes) == outcome


def test_another_argument_behind_values_that_differed_before_is_to_be_looked_at(tmp_path: Path) -> None:
    linear = "Functional.linear.0.forward"
    target, golden = (
        {
            linear: call(start, out=start),
            **CHAIN,
            NORM[0]: call(start, eps, out=start),
            NORM[1]: call(start, eps, out=start),
        }
        for start, eps in ((X, 1e-6), (Y, 1e-5))
    )
    found = answer(tmp_path, target, golden)
    assert found.outcome.value == "DIVERGED" and found.causes[0].op == linear
    assert found.next[-1] == (
        f"Look at {NORM[0]}, too: it was called with a different argument (input.1: 1e-06 against 1e-05), which is a "
        "separate cause unless the program computed this argument from values that differ."
    )
    same = {**target, **{name: call(X, 1e-5, out=X) for name in NORM[:2]}}
    assert not any("too: it was" in line for line in answer(tmp_path / "same", same, golden).next)
