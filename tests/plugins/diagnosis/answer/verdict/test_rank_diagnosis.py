"""The answer on one rank: causes, consequences, notes, and doubts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from probe_diagnosis.answer.causes.findings import create_finding
from probe_diagnosis.difference.nodes import Node
from probe_diagnosis.difference.reasons import CauseKind, DivergenceReason
from support.runs.answered import answered, back, call, causes, normal
from support.runs.ops import op, value
from support.runs.recorded import tensor

from probe_core.model.answers import Answer

X, Y, Z, W = (normal(seed=number) for number in (1, 2, 3, 4))
A, B, C, D = (f"Torch.{name}.0.forward" for name in "abcd")
CHAIN = {A: call(X, out=Y), B: call(Y, out=Z), C: call(Z, out=X), D: call(X, out=X)}


def answer(directory: Path, target: Any, golden: Any, task: str = "tensor", construct: Any = None) -> Answer:
    found = answered(directory, target, golden, task, construct).answer
    assert found is not None
    return found


@pytest.mark.parametrize(("task", "said"), [("tensor", "equal"), ("statistics", "within rounding")])
def test_runs_that_are_equal_agree(task: str, said: str, tmp_path: Path) -> None:
    """Statistics that are the same do not show that the values are."""
    found = answer(tmp_path, CHAIN, CHAIN, task)
    assert found.sentence == f"AGREE: {said} in all 8 values that both runs recorded"
    assert found.coverage.equal == (8 if said == "equal" else 0)
    assert not found.causes and not found.notes and not found.missing and not found.next


@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_consequences_are_folded_under_their_cause(task: str, tmp_path: Path) -> None:
    wrong = CHAIN | {B: call(Y, out=X), C: call(X, out=Y), D: call(Y, out=Y)}
    found = answer(tmp_path, wrong, CHAIN, task)
    (cause,) = found.causes
    assert (cause.op, cause.row, cause.line) == (B, f"{B}.output.0", cause.line)
    assert (cause.consequence_count, cause.consequences) == (2, (C, D))
    assert found.sentence.startswith(f"DIVERGED: {B} returns values that differ, although ")


def test_a_second_fault_behind_the_first_is_a_cause_of_its_own(tmp_path: Path) -> None:
    wrong = CHAIN | {A: call(X, out=Z), D: call(X, out=Y)}
    assert [cause.op for cause in answer(tmp_path, wrong, CHAIN).causes] == [A, D]


MODULE = "Module.m.Block.forward.0"
INSIDE = {A: [MODULE, 1], B: [MODULE, 2], MODULE: None, C: None}


def test_a_difference_within_a_module_that_agrees_is_a_note(tmp_path: Path) -> None:
    """An equivalent replacement, whose region agrees at its edges."""
    golden = {MODULE: call(X, out=Z), A: call(X, out=Y), B: call(Y, out=Z), C: call(Z, out=X)}
    target = golden | {A: call(X, out=2 * Y), B: call(2 * Y, out=Z)}
    found = answer(tmp_path, target, golden, construct=INSIDE)
    assert found.outcome.value == "AGREE"
    assert not found.causes
    (note,) = found.notes
    assert note.text.startswith(f"{A} returns values that differ, although its inputs agree (output.0: ")
    assert note.text.endswith(", but the outputs of later calls agree")


def test_statistics_that_agree_again_do_not_show_that_values_do(tmp_path: Path) -> None:
    golden = {MODULE: call(X, out=Z), A: call(X, out=Y), B: call(Y, out=Z), C: call(Z, out=X)}
    target = golden | {A: call(X, out=2 * Y), B: call(2 * Y, out=Z)}
    found = answer(tmp_path, target, golden, "statistics", INSIDE)
    assert found.outcome.value == "CANNOT TELL"
    assert found.sentence.endswith(
        "; later values agree in their statistics again, which does not show that the values agree"
    )
    assert [cause.op for cause in found.causes] == [A]


def test_the_innermost_call_is_the_cause(tmp_path: Path) -> None:
    golden = {MODULE: call(X, out=Z), A: call(X, out=Y), B: call(Y, out=Z), C: call(Z, out=X)}
    target = {MODULE: call(X, out=X), A: call(X, out=Y), B: call(Y, out=X), C: call(X, out=Y)}
    found = answer(tmp_path, target, golden, construct=INSIDE)
    assert [cause.op for cause in found.causes] == [B]
    assert found.causes[0].modules == (MODULE,)


def leaf(checksum: str, dtype: str = "float32") -> dict[str, Any]:
    return {
        **tensor(dtype=f"torch.{dtype}"),
        **dict.fromkeys(("Max", "Min", "Mean", "Norm")),
        "md5": checksum,
    }


def test_checksums_of_floats_that_differ_cannot_tell(tmp_path: Path) -> None:
    target, golden = ({A: call(leaf("00000001"), out=leaf(one))} for one in ("00000002", "00000003"))
    found = answer(tmp_path, target, golden, "statistics")
    assert found.outcome.value == "CANNOT TELL"
    assert found.sentence.endswith("; checksums do not say whether that is more than rounding")
    assert [cause.op for cause in found.causes] == [A]


def test_checksums_of_integers_that_differ_do(tmp_path: Path) -> None:
    target, golden = ({A: call(leaf("00000001", "int64"), out=leaf(one, "int64"))} for one in ("00000002", "00000003"))
    assert answer(tmp_path, target, golden, "statistics").outcome.value == "DIVERGED"


def grown(times: float, calls: int = 40) -> tuple[Any, Any]:
    """Calls that each add a little more than nothing, up to so many times what rounding explains."""
    base = normal(4096, seed=7)
    noise = normal(4096, seed=8)
    amounts = np.linspace(0, times * 7.6e-6, calls + 1)
    values = [[(base + side * amount * noise).astype(np.float32) for amount in amounts] for side in (1, 0)]
    return tuple({f"Torch.f{n}.0.forward": call(one[n], out=one[n + 1]) for n in range(calls)} for one in values)  # type: ignore[return-value]


def test_a_difference_that_grew_slowly(tmp_path: Path) -> None:
    found = answer(tmp_path / "1", *grown(0.8))
    assert found.outcome.value == "AGREE", found.sentence
    found = answer(tmp_path / "2", *grown(4))
    assert found.outcome.value == "CANNOT TELL"
    assert found.sentence.endswith("; it may be accumulated rounding")
    assert "no single call explains it" in found.causes[0].reason.detail


def test_gradients_that_cancel_beside_those_of_their_module(tmp_path: Path) -> None:
    """A bias in front of a normalization has a gradient of zero, which rounding makes 1e-9."""
    gradients = [{"weight": [Y], "bias": [np.float32(1e-9) * noise]} for noise in (X, Z)]
    target, golden = (CHAIN | {"Module.m.Linear.parameters_grad": one} for one in gradients)
    found = answer(tmp_path, target, golden)
    assert not found.causes
    assert found.outcome.value == "AGREE", found.sentence


def test_a_gradient_behind_another_argument_is_not_said_to_come_from_nowhere(tmp_path: Path) -> None:
    """An argument may change values within rounding at first, and more than that in the sums of a gradient."""
    forward, gradient = "Functional.layer_norm.0.forward", "Module.m.Linear.parameters_grad"
    near = (X * (1 + 1e-6)).astype(np.float32)
    target = CHAIN | {forward: call(X, 1e-6, out=near), gradient: {"weight": [Z]}}
    golden = CHAIN | {forward: call(X, 1e-5, out=X), gradient: {"weight": [W]}}
    found = answer(tmp_path / "near", target, golden)
    assert found.outcome.value == "DIVERGED"
    (cause,) = found.causes
    assert cause.op == forward and cause.consequences == (gradient,)
    assert found.sentence == (
        "DIVERGED: Functional.layer_norm.0.forward was called with a different argument (input.1: 1e-06 "
        "against 1e-05), and its outputs agree within rounding, but Module.m.Linear.parameters_grad "
        "downstream of it differs by more than rounding explains"
    )
    assert cause.evidence["earlier_call_with_another_argument"] == forward
    same = answer(tmp_path / "same", target | {forward: call(X, 1e-6, out=X)}, golden)
    assert [one.op for one in same.causes] == [gradient, forward]
    assert same.causes[0].reason.detail.startswith("differs, and no earlier difference explains it (")


def test_an_argument_that_is_none_in_one_run_and_without_effect_is_a_note(tmp_path: Path) -> None:
    """A mask of zeros for None."""
    target, golden = (CHAIN | {"Torch.sdpa.0.forward": call(X, mask, out=X)} for mask in (None, 0 * Y))
    found = answer(tmp_path, target, golden)
    assert not found.causes
    (note,) = found.notes
    assert note.text.startswith("Torch.sdpa.0.forward was called with a different argument (input.1: None against ")
    assert note.text.endswith("and its outputs agree within rounding")


def test_a_backward_pass_is_searched_behind_the_forward_pass(tmp_path: Path) -> None:
    backward = "Torch.a.0.backward"
    target = CHAIN | {backward: back(X, Z), "Tensor.add_.0.forward": call(Z, out=X)}
    golden = CHAIN | {backward: back(X, Y), "Tensor.add_.0.forward": call(Y, out=Z)}
    found = answer(tmp_path, target, golden)
    assert found.causes[0].op == backward


def test_nan_out_of_finite_inputs(tmp_path: Path) -> None:
    broken = Z.copy()
    broken[3] = np.nan
    target = CHAIN | {B: call(Y, out=broken), C: call(broken, out=broken), D: call(broken, out=broken)}
    found = answered(tmp_path, target, CHAIN)
    assert causes(found) == [(B, "returns nan or inf where the golden does not, although its inputs agree")]


def test_a_difference_is_gone_where_the_statistics_of_many_later_calls_agree(tmp_path: Path) -> None:
    behind = {f"Torch.f{n}.0.forward": call(Z, out=normal(seed=n)) for n in range(8)}
    golden = {A: call(X, out=Y), B: call(Y, out=Z), MODULE: call(X, out=Z)} | behind
    target = golden | {A: call(X, out=2 * Y), B: call(2 * Y, out=Z)}
    found = answer(tmp_path / "1", target, golden, "statistics", INSIDE)
    assert found.outcome.value == "AGREE"
    assert found.sentence.endswith(f"except for differences without an effect on later values, the first is in {A}"), (
        "not all values agree"
    )
    moved = {f"Tensor.view.{number}.forward": value for number, value in enumerate(behind.values())}
    few = [{key: value for key, value in one.items() if key not in behind} | moved for one in (target, golden)]
    assert answer(tmp_path / "2", *few, "statistics", INSIDE).outcome.value == "CANNOT TELL"
    off = (Y * np.float32(1.001)).astype(np.float32)
    small = golden | {A: call(X, out=off), B: call(off, out=Z)}
    assert answer(tmp_path / "3", small, golden, "statistics", INSIDE).outcome.value == "CANNOT TELL"


def test_the_golden_call_is_evidence_where_it_is_another() -> None:
    reason = DivergenceReason(CauseKind.INTRODUCED, value(50))
    for golden in ("", B):
        facts = op(A, [0], [50], golden_op=golden)
        evidence = create_finding(Node(0, facts, reason, 0, 0), lambda _: "").evidence
        assert evidence.get("golden_op", "") == golden
