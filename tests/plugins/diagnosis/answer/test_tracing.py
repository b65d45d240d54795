"""Values out of nowhere are traced back to the calls that only one run made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from support.runs.answered import answered, call, normal

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
    """The next call takes in what it returned."""
    cause = first(tmp_path, BEFORE | {DROP: call(Y, out=W), END: call(W, out=X)}, PLAIN)
    assert cause.op == DROP
    assert cause.reason.detail.startswith(f"is called in the target only, and returns what {END} takes in")
    assert cause.evidence["target_only"] == DROP
    assert "golden_only" not in cause.evidence
    assert cause.consequences[0] == END


def test_a_call_of_the_golden_only(tmp_path: Path) -> None:
    cause = first(tmp_path, PLAIN, BEFORE | {DROP: call(Y, out=W), END: call(W, out=X)})
    assert cause.op == DROP
    assert cause.reason.detail.startswith(f"is called in the golden only, and returns what {END} takes in")
    assert cause.evidence["golden_only"] == DROP


def test_a_call_in_place_of_another(tmp_path: Path) -> None:
    target = BEFORE | {TANH: call(Y, out=W), END: call(W, out=X)}
    golden = BEFORE | {RELU: call(Y, out=Z), END: call(Z, out=Y)}
    cause = first(tmp_path, target, golden)
    assert cause.op == TANH
    assert cause.reason.detail.startswith(
        f"is called where the golden calls {RELU}, and returns what {END} takes in"
    )
    assert (cause.evidence["target_only"], cause.evidence["golden_only"]) == (TANH, RELU)


def test_a_call_that_may_have_changed_values_in_place(tmp_path: Path) -> None:
    """It returns nothing that is taken in, and is only said to stand before."""
    put = "Tensor.fill_.0.forward"
    cause = first(tmp_path, BEFORE | {put: call(Y), END: call(W, out=X)}, PLAIN)
    assert cause.op == put
    assert f"is called in the target only, and stands right before {END}" in cause.reason.detail
    assert "returns what" not in cause.reason.detail


def test_values_out_of_nowhere_stay_where_they_are_taken_in(tmp_path: Path) -> None:
    cause = first(tmp_path, BEFORE | {END: call(W, out=X)}, PLAIN)
    assert (cause.op, cause.row) == (END, f"{END}.input.0")
    assert cause.reason.detail.startswith(
        "takes in values that differ, and no earlier difference explains them"
    )


def test_a_call_far_before_is_not_accused(tmp_path: Path) -> None:
    """A call of the target only, whose value nothing takes in, and behind which other calls agree."""
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
    assert (
        "returns values that agree in their statistics, but not element by element: " in cause.reason.detail
    )
