"""Upstream findings are named before a difference: arguments, gradients, places, phases of the step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from probe_recording.step_facts.step_phases import STEP_PHASES_FILE
from support.runs.answered import Calls, answered, back, call, compared, normal, record, statistics

from probe_core.model.answers import Answer

X, Y, Z = (normal(seed=number) for number in range(3))
ADD, BACK, GRADIENT = "Torch.add.0.forward", "Torch.add.0.backward", "Module.m.Linear.parameters_grad"
CHAIN = {f"Torch.f{number}.0.forward": call(X, out=X) for number in range(6)}
UPDATE = "Tensor.mul_.0.forward"


def trained(array: Any, *, requires_grad: bool) -> dict[str, Any]:
    """The statistics of a tensor that requires a gradient or not."""
    return {**statistics(array), "requires_grad": requires_grad}


def answer(directory: Path, target: Calls, golden: Calls, task: str = "tensor") -> Answer:
    found = answered(directory, target, golden, task).answer
    assert found is not None
    return found


# -- arguments ---------------------------------------------------------------------------------------


def test_the_earliest_forward_call_with_the_argument_is_named(tmp_path: Path) -> None:
    """The backward pass meets the last of these calls first."""
    keys = [f"Functional.embedding.{number}" for number in range(2)]
    wrong, right = (
        CHAIN
        | {f"{key}.forward": call(X, scaled, out=X) for key in keys}
        | {f"{key}.backward": back(Y, gradient) for key in reversed(keys)}
        for scaled, gradient in ((True, Z), (False, Y))
    )
    (cause,) = answer(tmp_path, wrong, right).causes
    assert (cause.op, cause.row) == (f"{keys[0]}.forward", f"{keys[0]}.forward.input.1")
    assert cause.same == (f"{keys[1]}.forward",) and cause.consequences[0] == f"{keys[1]}.backward"


# -- gradients of one run ------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["target", "golden"])
def test_a_tensor_without_a_gradient_explains_the_backward_pass(side: str, tmp_path: Path) -> None:
    runs = [
        CHAIN
        | {ADD: call(trained(X, requires_grad=True), trained(Y, requires_grad=own == side), out=X)}
        | {BACK: back(X, Y if own == side else Z)}
        for own in ("target", "golden")
    ]
    found = answer(tmp_path, *runs, "statistics")
    assert found.outcome.value == "DIVERGED"
    (cause,) = found.causes
    assert (cause.op, cause.row, cause.reason.code) == (ADD, f"{ADD}.input.1", "gradient graph")
    assert cause.evidence["requires_grad_in"] == side
    assert cause.reason.detail == (
        f"receives a tensor that requires a gradient in the {side} only (input.1), and {BACK} returns values "
        "that differ"
    )


def test_a_gradient_of_one_run_only_is_no_agreement(tmp_path: Path) -> None:
    target, golden = (
        CHAIN | {ADD: call(X, trained(Y, requires_grad=requires_grad), out=X), BACK: back(X, X)}
        for requires_grad in (False, True)
    )
    found = answer(tmp_path, target, golden | {GRADIENT: {"weight": [Z]}}, "statistics")
    assert found.outcome.value == "DIVERGED"
    (cause,) = found.causes
    assert cause.op == ADD and cause.reason.detail == (
        "receives a tensor that requires a gradient in the golden only (input.1), and "
        f"{GRADIENT} is recorded in the golden only"
    )


def test_a_backward_call_of_one_run_only_agrees_if_the_gradients_of_parameters_agree(tmp_path: Path) -> None:
    """The runs compute an expression in different ways, and the same gradients of its parameters."""
    target, golden = (
        CHAIN
        | {ADD: call(X, trained(Y, requires_grad=requires_grad), out=X), BACK: back(X, X)}
        | {GRADIENT: {"weight": [statistics(Z)]}}
        for requires_grad in (False, True)
    )
    found = answer(tmp_path, target, golden | {"Torch.mul.0.backward": back(Y, Y)}, "statistics")
    assert found.outcome.value == "AGREE"


def test_an_argument_of_the_differing_call_counts_more_than_a_gradient(tmp_path: Path) -> None:
    target, golden = (
        CHAIN | {ADD: call(X, trained(Y, requires_grad=flag), out=X), BACK: back(X, X), "Torch.exp.0.forward":
                 call(X, factor, out=out)}
        for flag, factor, out in ((False, 2.0, Y), (True, 1.0, X))
    )  # fmt: skip
    assert answer(tmp_path, target, golden, "statistics").causes[0].op == "Torch.exp.0.forward"


def test_a_withdrawn_difference_explains_the_gradients_of_its_module(tmp_path: Path) -> None:
    """A layer that is initialised with zeros hides a wrong scale from its gradient, not from its parameters."""
    module, scale = "Module.m.LoRA.backward.0", "Torch.mul.0.backward"
    construct = {scale: module}
    target, golden = (
        CHAIN | {scale: back(X, gradient), module: back(X, X), "Module.m.b.Linear.parameters_grad": {"weight": [g]}}
        for gradient, g in ((Y * 3, Z * 3), (Y, Z))
    )
    found = answered(tmp_path, target, golden, construct=construct).answer
    assert found is not None and found.outcome.value == "DIVERGED"
    assert found.causes[0].op == scale and "Linear.parameters_grad" in found.causes[0].consequences[0]


# -- places ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_first", [True, False])
def test_calls_at_another_place_with_other_values_are_named(is_first: bool, tmp_path: Path) -> None:
    """An average of weights is updated before the optimizer in one run, and after it in the other."""
    update = {"Torch.lerp.0.forward": call(X, Z, out=Y)}
    late = {"Torch.lerp.0.forward": call(Y, X, out=Z)}
    target, golden = {**update, **CHAIN}, {**CHAIN, **late}
    runs = (target, golden) if is_first else (golden, target)
    found = answer(tmp_path, *runs)
    assert found.outcome.value == "DIVERGED"
    cause = found.causes[0]
    assert (cause.op, cause.reason.code) == ("Torch.lerp.0.forward", "order")
    words, anchor = ("before", "after"), "Torch.f0.0.forward" if is_first else "Torch.f5.0.forward"
    first, second = words if is_first else reversed(words)
    assert cause.reason.detail == (
        f"is called {first} {anchor} in the target and {second} it in the golden, where the call receives "
        "other values (input.0)"
    )


def test_calls_at_another_place_with_the_same_values_are_none(tmp_path: Path) -> None:
    update = {"Torch.lerp.0.forward": call(X, Z, out=Y)}
    found = answer(tmp_path, {**update, **CHAIN}, {**CHAIN, **update})
    assert found.outcome.value == "AGREE" and not found.causes


# -- phases of the step ------------------------------------------------------------------------------------


def phases(lr: float, state: dict[str, Any]) -> list[dict[str, Any]]:
    """The phases of a step of an optimizer."""
    leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": 1.0, "Min": 0.0, "Mean": 0.5,
            "Norm": 1.0}  # fmt: skip
    groups = [{"settings": {"lr": lr}, "parameters": ["a"]}]
    facts: dict[str, Any] = {"optimizer": "Adam"}
    return [
        {"phase": phase, "number": 0, "stack": [], "facts": facts | more, "values": values}
        for phase, more, values in (
            ("gradient", {}, {"a": leaf}), ("settings", {"groups": groups}, {}), ("applied", {}, {"a": leaf}),
            ("parameters_before", {}, {"a": leaf}), ("state_before", {}, {name: leaf for name in state}),
            ("parameters_after", {}, {"a": {**leaf, "Norm": 1.0 + lr}}),
        )
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("lr", "state", "detail"),
    [
        (
            0.5,
            {"a.exp_avg": 1},
            "Adam steps with lr 0.5 against 0.1, and leaves other parameters",
        ),
        (0.1, {}, "the state of Adam holds a.exp_avg in the golden only"),
    ],
)
def test_phases_explain_the_calls_of_an_optimizer(
    lr: float, state: dict[str, Any], detail: str, tmp_path: Path
) -> None:
    construct = {UPDATE: "optimizer"}
    runs = []
    for name, own, held, out in (("t", lr, state, Y), ("g", 0.1, {"a.exp_avg": 1}, X)):
        calls = CHAIN | {BACK: back(X, X), UPDATE: call(X, own, out=out)}
        runs.append(record(tmp_path / name, calls, construct=construct))
        content = {"schema": 2, "framework": "pytorch", "not_captured": {}, "phases": phases(own, held)}
        (tmp_path / name / STEP_PHASES_FILE).write_text(json.dumps(content))
    found = compared(tmp_path, *runs).answer
    assert found is not None and found.outcome.value == "DIVERGED"
    (cause,) = found.causes
    assert cause.reason.detail.startswith(detail) and cause.consequences == (UPDATE,)
    assert found.next == ()


# -- calls that are made differently -----------------------------------------------------------------------


def test_agreement_counts_no_argument_that_differs(tmp_path: Path) -> None:
    target, golden = (CHAIN | {ADD: call(X, number, out=X)} for number in (5, 4))
    found = answer(tmp_path, target, golden)
    assert found.sentence == (
        "AGREE: equal in all 14 other values that both runs recorded; 1 call was made differently: Torch.add.0.forward"
    )


def test_agreement_names_a_tensor_that_requires_a_gradient_in_one_run(tmp_path: Path) -> None:
    target, golden = (CHAIN | {ADD: call(trained(X, requires_grad=flag), out=X)} for flag in (True, False))
    found = answer(tmp_path, target, golden, "statistics")
    assert found.outcome.value == "AGREE" and found.sentence.endswith(
        "1 call was made differently: Torch.add.0.forward"
    )
    (cause,) = found.causes
    assert cause.reason == (
        "made differently",
        "receives a tensor that requires a gradient in the target only (input.0)",
    )


def test_all_arguments_that_differ_are_named(tmp_path: Path) -> None:
    target, golden = (
        CHAIN | {ADD: call(X, *arguments, out=out)} for arguments, out in (((5, "a", 1, 2), Y), ((4, "b", 2, 3), X))
    )
    found = answer(tmp_path, target, golden)
    assert "(input.1: 5 against 4; input.2: 'a' against 'b'; input.3: 1 against 2; 1 more differ)" in found.sentence


def test_a_tensor_without_a_gradient_explains_no_update_if_no_gradient_is_missing(tmp_path: Path) -> None:
    construct = {UPDATE: "optimizer"}
    runs = []
    for name, flag, values in (("t", False, Y), ("g", True, X)):
        leaf = trained(X, requires_grad=flag)
        calls = CHAIN | {ADD: call(leaf, out=X), BACK: back(X, X), UPDATE: call(values, out=values)}
        runs.append(record(tmp_path / name, calls, "statistics", construct))
    found = compared(tmp_path, *runs).answer
    assert found is not None and found.causes[0].op == UPDATE
