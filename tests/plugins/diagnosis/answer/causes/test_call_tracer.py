"""Values out of nowhere are traced back to the calls that only one run made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from support.runs.answered import answered, back, call, normal, statistics

X, Y, Z, W = (normal(seed=number) for number in range(4))
START, END = "Torch.start.0.forward", "Torch.end.0.forward"
DROP, TANH, RELU = "Functional.dropout.0.forward", "Torch.tanh.0.forward", "Torch.relu.0.forward"
BEFORE = {f"Torch.f{number}.0.forward": call(X, out=X) for number in range(4)} | {START: call(X, out=Y)}
PLAIN = BEFORE | {END: call(Y, out=Z)}


def first(directory: Path, target: Any, golden: Any, task: str = "tensor") -> Any:
    found = answered(directory, target, golden, task).answer
    assert found is not None
    assert found.outcome.value == "DIVERGED"
    return found.causes[0]


def test_a_call_of_the_target_only(tmp_path: Path) -> None:
    """The next call receives what it returned."""
    cause = first(tmp_path, BEFORE | {DROP: call(Y, out=W), END: call(W, out=X)}, PLAIN)
    assert cause.op == DROP
    assert cause.reason.detail.startswith(f"is called in the target only, and returns the value that {END} receives")
    assert cause.evidence["target_only"] == DROP
    assert "golden_only" not in cause.evidence
    assert cause.consequences[0] == END


def test_a_call_of_the_golden_only(tmp_path: Path) -> None:
    cause = first(tmp_path, PLAIN, BEFORE | {DROP: call(Y, out=W), END: call(W, out=X)})
    assert cause.op == DROP
    assert cause.reason.detail.startswith(f"is called in the golden only, and returns the value that {END} receives")
    assert cause.evidence["golden_only"] == DROP


def test_a_call_in_place_of_another(tmp_path: Path) -> None:
    target = BEFORE | {TANH: call(Y, out=W), END: call(W, out=X)}
    golden = BEFORE | {RELU: call(Y, out=Z), END: call(Z, out=Y)}
    cause = first(tmp_path, target, golden)
    assert cause.op == TANH
    assert cause.reason.detail.startswith(
        f"is called where the golden calls {RELU}, and returns the value that {END} receives"
    )
    assert (cause.evidence["target_only"], cause.evidence["golden_only"]) == (TANH, RELU)


def test_a_call_that_may_have_changed_values_in_place(tmp_path: Path) -> None:
    """It returns nothing that is taken in, and is only said to stand before."""
    put = "Tensor.fill_.0.forward"
    cause = first(tmp_path, BEFORE | {put: call(Z), END: call(W, out=X)}, PLAIN)
    assert cause.op == put
    assert f"is called in the target only, and directly precedes {END}" in cause.reason.detail
    assert "returns the value" not in cause.reason.detail


def test_values_out_of_nowhere_stay_where_they_are_taken_in(tmp_path: Path) -> None:
    cause = first(tmp_path, BEFORE | {END: call(W, out=X)}, PLAIN)
    assert (cause.op, cause.row) == (END, f"{END}.input.0")
    assert cause.reason.detail.startswith("receives values that differ, and no earlier difference explains them")


def test_a_call_far_before_is_not_accused(tmp_path: Path) -> None:
    """A call of the target only, whose value nothing receives, and behind which other calls agree."""
    cause = first(tmp_path, {DROP: call(X, out=Z)} | BEFORE | {END: call(W, out=X)}, PLAIN)
    assert cause.op == END


def test_an_order_that_statistics_do_not_show(tmp_path: Path) -> None:
    """``view`` only moves values: other values of the same statistics stand in another order."""
    view = "Tensor.view.0.forward"
    square = normal(4, 4)
    turned = np.ascontiguousarray(square.T)
    runs = []
    for values in (turned, square):
        # as in the dumps of sums over a part of a tensor, the statistics of the whole agree
        part = values[:2].copy()
        runs.append(BEFORE | {RELU: call(X.reshape(8, 8), out=values), view: call(values, out=part)})
    cause = first(tmp_path, *runs, task="statistics")
    assert cause.op == RELU
    assert cause.reason.code == "order"
    assert "returns values that agree in their statistics, but not element by element: " in cause.reason.detail


MATMUL, REPEAT = "Torch.matmul.0.forward", "Tensor.repeat.0.forward"
INTERLEAVE, TRIL = "Tensor.repeat_interleave.0.forward", "Tensor.tril.0.forward"
SOFTMAX, SQUARE = "Torch.softmax.0.forward", normal(4, 4)
TILED, INTERLEAVED = np.tile(SQUARE, (2, 1)), np.repeat(SQUARE, 2, 0)


def test_an_arrangement_that_statistics_do_not_show(tmp_path: Path) -> None:
    """Keys that are tiled where the golden interleaves them: the product is the first to differ."""
    target = BEFORE | {REPEAT: call(SQUARE, 2, out=TILED), MATMUL: call(X, TILED, out=Y)}
    golden = BEFORE | {INTERLEAVE: call(SQUARE, 2, out=INTERLEAVED), MATMUL: call(X, INTERLEAVED, out=Z)}
    cause = first(tmp_path, target, golden, "statistics")
    assert cause.op == REPEAT
    assert cause.reason.detail.startswith(
        f"is called where the golden calls {INTERLEAVE}, and {MATMUL}, which receives a value computed from it, returns"
    )


def test_an_argument_that_statistics_do_not_show(tmp_path: Path) -> None:
    """The statistics of a mask of truth values, and of what it leaves, say nothing of where it is."""
    runs = []
    for diagonal, values in ((1, Y), (0, Z)):
        inside = np.tril(np.ones((4, 4), bool), diagonal)
        mask = statistics(inside) | {"Max": True, "Min": False, "Mean": None, "Norm": None}
        hidden = np.where(inside, np.abs(SQUARE), -np.inf).astype(np.float32)
        hidden[0, 0] = 9  # the largest element, on both sides
        calls = {TRIL: call(mask, diagonal, out=mask), "Torch.where.0.forward": call(mask, out=hidden)}
        runs.append(BEFORE | calls | {SOFTMAX: call(hidden, out=values)})
    cause = first(tmp_path, *runs, task="statistics")
    assert cause.op == TRIL
    assert cause.reason.code == "argument"
    assert cause.reason.detail.startswith(
        "was called with a different argument (input.1: 1 against 0), which the statistics of its outputs do not show; "
    )


def test_a_call_in_a_region_is_said_to_stand_for_the_goldens(tmp_path: Path) -> None:
    """Its inputs are not those of the other call, so that nothing is said of them."""
    target = BEFORE | {REPEAT: call(SQUARE, 2, out=TILED), MATMUL: call(TILED, out=Y), END: call(Y, out=X)}
    golden = BEFORE | {INTERLEAVE: call(SQUARE, out=INTERLEAVED), MATMUL: call(INTERLEAVED, out=Z)}
    cause = first(tmp_path, target, golden | {END: call(Z, out=W)})
    assert cause.op == REPEAT
    assert f"is called where the golden calls {INTERLEAVE}" in cause.reason.detail
    assert "inputs agree" not in cause.reason.detail


def test_a_call_that_the_golden_makes_besides(tmp_path: Path) -> None:
    """Both runs make the other call of the region, so that it is not the one that differs."""
    turn, flat = "Tensor.transpose.0.forward", "Tensor.reshape.0.forward"
    turned = np.ascontiguousarray(SQUARE.T)
    target = BEFORE | {
        flat: call(SQUARE, 16, out=SQUARE.reshape(16)),
        MATMUL: call(SQUARE.reshape(16), out=Y),
    }
    golden = BEFORE | {
        turn: call(SQUARE, out=turned),
        flat: call(turned, 16, out=turned.reshape(16)),
        MATMUL: call(turned.reshape(16), out=Z),
    }
    cause = first(tmp_path, target, golden)
    assert cause.op == turn
    assert cause.reason.detail.startswith("is called in the golden only")


def test_an_axis_that_statistics_do_not_show(tmp_path: Path) -> None:
    """Calls between compute, and their statistics agree as well."""
    permute, gelu = "Tensor.permute.0.forward", "Functional.gelu.0.forward"
    runs = []
    for axes, square, result in (((0, 1), SQUARE, Y), ((1, 0), np.ascontiguousarray(SQUARE.T), Z)):
        calls = {permute: call(SQUARE, *axes, out=square), gelu: call(square, out=np.maximum(square, 0))}
        runs.append(BEFORE | calls | {MATMUL: call(np.maximum(square, 0), out=result)})
    cause = first(tmp_path, *runs, task="statistics")
    assert cause.op == permute
    assert cause.reason.detail.startswith(
        "was called with a different argument (input.1: 0 against 1), which the statistics of its outputs do not show; "
        f"after it, {MATMUL} returns values that differ ("
    )


def test_calls_that_change_a_value_in_place(tmp_path: Path) -> None:
    """Clipping of gradients: the first of them receives what the golden's update receives."""
    norm, step = "Torch._foreach_norm.0.forward", "Tensor.lerp_.0.forward"
    other = {"Torch.start.0.backward": back(X, X), "Tensor.mul_.0.forward": call(W, out=W)}
    gone = {"Torch.start.0.backward": back(X, X), norm: call(X, Z, out=W)}
    target = BEFORE | gone | other | {step: call(Z * np.float32(0.5), out=X)}
    cause = first(tmp_path / "1", target, BEFORE | other | {step: call(Z, out=Y)})
    assert cause.op == norm
    assert cause.reason.detail.startswith(
        f"is called in the target only, and receives the value that {step} receives in the golden; {step} receives values"
    )
    cause = first(tmp_path / "2", BEFORE | other | {step: call(Z, out=Y)}, target)
    assert (cause.op, cause.evidence["golden_only"]) == (norm, norm)
