"""Statements that the summary made of runs of which they were not true: each must not be made again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.runs.answered import answered, back, call, causes, compared, normal, record

X, Y, Z = normal(seed=1), normal(seed=2), normal(seed=3)
INTRODUCED = "returns values that differ, although its inputs agree"
OUT_OF_NOWHERE = "receives values that differ, and no earlier difference explains them"
ADD, MUL, EXP = "Torch.add.0.forward", "Torch.mul.0.forward", "Torch.exp.0.forward"


@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_a_tensor_that_is_scaled_by_four_does_not_agree(task: str, tmp_path: Path) -> None:
    """Its cosine is 1, so that no rule of the table minds."""
    target = {ADD: call(4 * X, out=X + 1), MUL: call(X + 1, out=Y)}
    golden = {ADD: call(X, out=Y), MUL: call(Y, out=X)}
    found = answered(tmp_path, target, golden, task)
    assert causes(found)[0][0] == ADD
    assert "agree" not in causes(found)[0][1]
    assert causes(found)[0][1] == OUT_OF_NOWHERE


def test_a_scaled_input_is_named_and_not_the_call_behind_it(tmp_path: Path) -> None:
    target = {MUL: call(X, out=4 * X), EXP: call(4 * X, out=np.exp(4 * X))}
    golden = {MUL: call(X, out=X), EXP: call(X, out=np.exp(X))}
    assert causes(answered(tmp_path, target, golden)) == [(MUL, INTRODUCED)]


def test_rows_that_fail_carry_their_drift(tmp_path: Path) -> None:
    """A call whose output fails as much as its input does is no cause, and what was before it is."""
    noise = normal(seed=3)
    off = X + 0.02 * noise
    target = {MUL: call(X, out=off), ADD: call(off, out=5 * off + noise), EXP: call(5 * off + noise, out=Y)}
    golden = {MUL: call(X, out=X), ADD: call(X, out=5 * X), EXP: call(5 * X, out=X)}
    found = answered(tmp_path, target, golden)
    assert causes(found) == [(MUL, INTRODUCED)]


def test_nothing_is_claimed_of_shifted_calls_before(tmp_path: Path) -> None:
    """The target makes one call more, so that its calls may be paired with the wrong ones."""
    relu = [f"Torch.relu.{number}.forward" for number in range(3)]
    target = {key: call(n * X, out=n * X) for n, key in enumerate(relu, 1)} | {MUL: call(Y, out=2 * Y)}
    golden = {key: call(n * X, out=n * X) for n, key in enumerate(relu[:2], 2)} | {MUL: call(X, out=2 * X)}
    found = answered(tmp_path, target, golden)
    (cause,) = found.suspects
    assert cause.op == MUL
    assert "no earlier difference" not in cause.why
    assert "no recorded call returned them" in cause.why


MASK = np.where(np.triu(np.ones((8, 8)), 1) > 0, np.float32(-3.4e38), np.float32(0)).astype(np.float32)
TABLE = normal(8, 8, seed=4)
BESIDE = {
    "mask": MASK,
    "positions": np.arange(50_000, 50_064).reshape(8, 8),
    "rotary table": np.float32(1e4) * np.abs(TABLE),
}


@pytest.mark.parametrize("name", list(BESIDE))
def test_a_large_input_hides_no_error_of_a_module(name: str, tmp_path: Path) -> None:
    hidden, beside = normal(8, 8, seed=5), BESIDE[name]
    wrong, right = hidden * np.float32(1.001), hidden
    module, behind = "Module.attention.Attention.forward.0", "Module.mlp.Mlp.forward.0"
    target = {module: call(hidden, beside, out=wrong), behind: call(wrong, out=wrong)}
    golden = {module: call(hidden, beside, out=right), behind: call(right, out=right)}
    found = answered(tmp_path, target, golden)
    assert causes(found) == [(module, INTRODUCED)]


def test_a_mask_does_not_make_the_inputs_of_softmax_equal(tmp_path: Path) -> None:
    """Elements that a mask leaves are judged by themselves."""
    scores = normal(8, 8, seed=6)
    before, softmax = "Torch.matmul.0.forward", "Functional.softmax.0.forward"

    def softmaxed(values: Any) -> Any:
        grown = np.exp(values - values.max(-1, keepdims=True))
        return (grown / grown.sum(-1, keepdims=True)).astype(np.float32)

    runs = []
    for factor in (1.5, 1):
        values = (factor * scores).astype(np.float32)
        masked = np.where(MASK < 0, MASK, values)
        calls = {before: call(scores, scores, out=values), ADD: call(values, MASK, out=masked)}
        runs.append(calls | {softmax: call(masked, out=softmaxed(masked))})
    only = [{softmax: run[softmax]} for run in runs]
    found = causes(answered(tmp_path / "1", *only))
    assert "inputs agree" not in found[0][1]
    assert found == [(softmax, OUT_OF_NOWHERE)]
    assert causes(answered(tmp_path / "2", *runs)) == [(before, INTRODUCED)]


def test_an_earlier_drift_comes_before_a_row_that_fails(tmp_path: Path) -> None:
    """A wrong factor of 0.8 % fails no row; the call that makes a failing row of it is a consequence."""
    off = (X * np.float32(1.008)).astype(np.float32)
    target = {MUL: call(X, out=off), ADD: call(off, out=off - X), EXP: call(off - X, out=Y)}
    golden = {MUL: call(X, out=X), ADD: call(X, out=X - X * np.float32(1 + 1e-4)), EXP: call(X, out=X)}
    assert causes(answered(tmp_path, target, golden))[0] == (MUL, INTRODUCED)


def test_drift_of_backward_calls_is_looked_at(tmp_path: Path) -> None:
    calls = {MUL: call(X, out=Y)}
    target = calls | {"Torch.mul.0.backward": back(X, Y * np.float32(1.008))}
    golden = calls | {"Torch.mul.0.backward": back(X, Y)}
    assert causes(answered(tmp_path, target, golden)) == [("Torch.mul.0.backward", INTRODUCED)]


def test_calls_of_an_optimizer_come_after_the_backward_pass(tmp_path: Path) -> None:
    """A gradient that drifts, and no row of the backward pass fails; the update of it does."""
    off = (Y * np.float32(1.008)).astype(np.float32)
    update = "Tensor.add_.0.forward"
    target = {MUL: call(X, out=Y), "Torch.mul.0.backward": back(X, off), update: call(off, out=off - Y)}
    golden = {
        MUL: call(X, out=Y),
        "Torch.mul.0.backward": back(X, Y),
        update: call(Y, out=Y - Y * np.float32(1.0001)),
    }
    assert [op for op, _ in causes(answered(tmp_path, target, golden))] == ["Torch.mul.0.backward"]


def test_missing_files_of_inputs_are_no_agreement(tmp_path: Path) -> None:
    runs = [record(tmp_path / side, {ADD: call(X, Y, out=out)}) for side, out in (("t", X), ("g", Y))]
    (runs[1].parent / "dump_tensor_data" / f"{ADD}.input.0.npy").unlink()
    (runs[1].parent / "dump_tensor_data" / f"{ADD}.input.1.npy").unlink()
    for run in runs:
        text = run.read_text()
        for number in (0, 1):  # nor do statistics or checksums tell
            leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [64]}
            text = _without_statistics(text, f"{ADD}.input.{number}.npy")
        run.write_text(text)
        assert leaf
    found = compared(tmp_path, *runs)
    (cause,) = found.suspects
    assert cause.op == ADD
    assert "inputs agree" not in cause.why
    assert "and no input tensor was compared" in cause.why


def test_inputs_without_data_are_no_agreement(tmp_path: Path) -> None:
    """A sparse tensor has neither statistics nor a file."""
    sparse = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [64], "layout": "torch.sparse_coo"}
    target, golden = ({ADD: call(sparse, Y, out=out)} for out in (X, Y))
    for number, task in enumerate(("tensor", "statistics")):
        found = answered(tmp_path / str(number), target, golden, task)
        (cause,) = found.suspects
        which = "the statistics of 1 of its 2 inputs"
        which = which if task == "statistics" else "1 of its 2 inputs"
        assert f"although {which} agree and 1 could not be compared" in cause.why


def test_a_warning_in_statistics_is_no_agreement(tmp_path: Path) -> None:
    """A wrong Normalize: its maximum is off by 12 %, which the table only warns of."""
    off = (X * np.float32(1.12)).astype(np.float32)
    step = "Torch.adadelta.0.forward"
    target = {MUL: call(X, out=off), step: call(off, out=2 * Y)}
    golden = {MUL: call(X, out=X), step: call(X, out=Y)}
    found = answered(tmp_path, target, golden, "statistics")
    assert causes(found) == [(MUL, "returns values that differ, although the statistics of its inputs agree")]


@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_a_number_that_the_program_computed_is_rounded(task: str, tmp_path: Path) -> None:
    """``losses[k] = loss.item()`` is no other argument, and hides none."""
    put = "Tensor.__setitem__.0.forward"
    target = {put: call(X, 0, 4.123456954956055, out=X), MUL: call(X, Y, 1e-5, out=Y)}
    golden = {put: call(X, 0, 4.123457431793213, out=X), MUL: call(X, Y, 1e-5, out=Y)}
    found = answered(tmp_path, target, golden, task)
    assert not found.suspects
    assert found.answer is not None
    assert found.answer.outcome.value == "AGREE", found.answer.sentence
    bad = (Y * np.float32(1.02)).astype(np.float32)
    target |= {MUL: call(X, Y, 1e-3, out=bad)}
    found = answered(tmp_path / "2", target, golden, task)
    assert [(one.op, one.why.split(" (")[0]) for one in found.suspects] == [
        (MUL, "was called with a different argument")
    ]
    assert "input.2: " in found.suspects[0].why


def test_gradient_norms_that_are_off_by_twelve_percent_do_not_agree(tmp_path: Path) -> None:
    """Rows that only warn are differences all the same."""
    runs = []
    for factor in (1.12, 1):
        grads = {
            f"Module.layer{n}.Linear.parameters_grad": {"weight": [np.float32(factor) * normal(seed=n)]}
            for n in range(3)
        }
        runs.append({MUL: call(X, out=Y)} | grads)
    for task in ("tensor", "statistics"):
        found = answered(tmp_path / task, *runs, task)
        assert [op for op, _ in causes(found)][:1] == ["Module.layer0.Linear.parameters_grad"]
        assert causes(found)[0][1] == "differs, and no earlier difference explains it"
        assert found.answer is not None
        assert found.answer.outcome.value == "DIVERGED"


def _without_statistics(text: str, name: str) -> str:
    """Return the text of a dump.json without the statistics of a leaf."""
    import json

    content = json.loads(text)
    for section in content["data"].values():
        for leaf in section["input_args"]:
            if leaf.get("data_name") == name:
                leaf |= dict.fromkeys(("Max", "Min", "Mean", "Norm"))
    return json.dumps(content)


@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_an_argument_of_one_call_only_is_another_argument(task: str, tmp_path: Path) -> None:
    """``gelu(x, approximate="tanh")`` against ``gelu(x)``."""
    gelu = "Functional.gelu.0.forward"
    target, golden = {gelu: call(X, out=Y, approximate="tanh")}, {gelu: call(X, out=Z)}
    for name, runs, shown in (
        ("target", (target, golden), "'tanh' against the default"),
        ("golden", (golden, target), "the default against 'tanh'"),
    ):
        (cause,) = answered(tmp_path / name, *runs, task).suspects
        assert cause.op == gelu
        assert cause.why.startswith(f"was called with a different argument (input.approximate: {shown}) and ")


def test_an_argument_by_name_is_the_same_by_place(tmp_path: Path) -> None:
    gelu = "Functional.gelu.0.forward"
    target, golden = {gelu: call(X, out=Y, approximate="tanh")}, {gelu: call(X, "tanh", out=Z)}
    assert causes(answered(tmp_path, target, golden)) == [(gelu, INTRODUCED)]


def test_an_argument_of_one_call_only_may_be_the_usual_one(tmp_path: Path) -> None:
    gelu = "Functional.gelu.0.forward"
    found = answered(tmp_path, {gelu: call(X, out=Y, approximate="none")}, {gelu: call(X, out=Y)})
    assert found.answer is not None
    assert (found.answer.outcome.value, found.answer.causes) == ("AGREE", ())
