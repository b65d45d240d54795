"""Sentences of reasons say no more than their evidence."""

from __future__ import annotations

import math
from typing import Any

import pytest
from probe_diagnosis.difference.differing_values import find_first_differing, format_difference
from probe_diagnosis.difference.reason_statement import build_statement
from probe_diagnosis.difference.reasons import (
    CauseKind,
    DivergenceReason,
    InputAgreement,
    OutputAgreement,
    summarize_inputs,
)
from probe_diagnosis.timeline.compared_calls import Basis, ValueComparison, ValueState
from support.runs.ops import UNSET, argument, op, value

from probe_core.model import Side

SHOWN = value(50, row="Torch.a.0.forward.output.0", side=Side.OUTPUT)
END = " (output.0: rms 50 apart)"

TWO_AGREE = InputAgreement(2)


def statement(cause: CauseKind = CauseKind.INTRODUCED, inputs: InputAgreement = TWO_AGREE, **fields: Any) -> str:
    found = build_statement(DivergenceReason(cause, SHOWN, inputs, **fields)).text
    assert found.endswith(END)
    return found.removesuffix(END)


# -- the inputs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        (InputAgreement(), "and it receives no tensor"),
        (InputAgreement(not_compared=1), "and no input tensor was compared"),
        (InputAgreement(2), "although its inputs agree"),
        (InputAgreement(2, largest_multiple=0.4), "although its inputs agree within rounding"),
        (InputAgreement(2, largest_multiple=7.0), "far more than its inputs do"),
        (InputAgreement(2, by_statistics=True), "although the statistics of its inputs agree"),
        (InputAgreement(1, 2), "although 1 of its 3 inputs agree and 2 could not be compared"),
        (InputAgreement(1, 2, 0.4), "although 1 of its 3 inputs agree within rounding and 2 could not be compared"),
        (
            InputAgreement(1, 2, by_statistics=True),
            "although the statistics of 1 of its 3 inputs agree and 2 could not be compared",
        ),
        (InputAgreement(2, has_masked_difference=True), "although its inputs differ at most in what is masked"),
        (
            InputAgreement(2, largest_multiple=0.4, has_masked_difference=True),
            "although its inputs differ at most within rounding and in what is masked",
        ),
        (
            InputAgreement(2, by_statistics=True, has_masked_difference=True),
            "although the statistics of its inputs differ at most where a mask determines them",
        ),
    ],
)
def test_the_inputs_of_what_a_call_introduced(inputs: InputAgreement, told: str) -> None:
    assert statement(inputs=inputs) == f"returns values that differ, {told}"


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        (InputAgreement(2), "although its inputs agree"),
        (InputAgreement(2, largest_multiple=7.0), "although its inputs are finite"),
        (InputAgreement(2, largest_multiple=7.0, has_non_finite=True), "and its inputs differ"),
        (InputAgreement(not_compared=2), "and no input tensor was compared"),
    ],
)
def test_the_inputs_of_a_call_that_returns_nan(inputs: InputAgreement, told: str) -> None:
    assert statement(CauseKind.NOT_FINITE, inputs) == f"returns nan or inf where the golden does not, {told}"


def test_agreement_is_counted_over_tensors_only() -> None:
    masked = value(0, has_masked_difference=True)
    by_statistics = value(0.5, basis=Basis.STATISTICS)
    rare = value(0, has_non_finite=True)
    facts = op("Torch.a.0.forward", [masked, by_statistics, rare, UNSET, argument()], [50])
    assert summarize_inputs(facts, 0.5) == InputAgreement(3, 1, 0.5, True, True, True)
    assert summarize_inputs(op("Torch.a.0.forward", [], [50]), 0) == InputAgreement()
    parameters = op("Module.a.A.forward.0", [], [])
    weight = value(0, row="Module.a.A.forward.0.parameters.weight", side=Side.PARAMETERS)
    assert summarize_inputs(type(parameters)(parameters.op, (weight,)), 0).compared == 1


# -- arguments ---------------------------------------------------------------------------------------------


def test_another_argument_is_said_before_the_values() -> None:
    other = argument()._replace(row="Torch.a.0.forward.input.1")
    assert statement(CauseKind.ARGUMENT, argument=other) == (
        "was called with a different argument (input.1: 1.05 against 1.0) and returns values that differ"
    )
    assert statement(CauseKind.NOT_FINITE, argument=other).startswith(
        "was called with a different argument (input.1: 1.05 against 1.0) and returns nan or inf"
    )
    evidence = DivergenceReason(CauseKind.ARGUMENT, SHOWN, InputAgreement(2), other).evidence
    assert (evidence["argument"], evidence["argument_values"]) == (other.row, "1.05 against 1.0")


def test_a_call_that_was_made_differently_within_rounding() -> None:
    other = argument()._replace(row="Torch.a.0.forward.input.1")
    for returned, end in (
        (OutputAgreement.AGREES, ", and its outputs agree within rounding"),
        (OutputAgreement.DIFFERS, ", and its outputs differ"),
        (OutputAgreement.NOT_COMPARED, "; its outputs were not compared"),
    ):
        found = build_statement(
            DivergenceReason(CauseKind.ALTERED_CALL, SHOWN, argument=other, output_agreement=returned)
        ).text
        assert found.endswith(f"(input.1: 1.05 against 1.0){end}")
    recast = SHOWN._replace(dtypes="torch.bfloat16 against torch.float32")
    found = build_statement(
        DivergenceReason(CauseKind.ALTERED_CALL, recast, output_agreement=OutputAgreement.AGREES)
    ).text
    assert found == (
        "computes in another dtype (output.0: torch.bfloat16 against torch.float32), and its outputs "
        "agree within rounding"
    )


def test_the_first_argument_that_differs() -> None:
    rounded = ValueComparison("x", Side.INPUT, ValueState.SAME, 1e-9, 1.0, 1e-6, is_scalar=True)
    other = argument()
    assert find_first_differing([argument(False), rounded, other], 0.0) is other
    assert find_first_differing([argument(False), rounded], 0.0) is None
    assert find_first_differing([other._replace(state=ValueState.UNJUDGED)], 0.0) is None


# -- what came before ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cause", "begin", "it"),
    [(CauseKind.RECEIVED, "receives values that differ", "them"), (CauseKind.GRADIENT, "differs", "it")],
)
def test_nothing_is_claimed_of_earlier_values_that_were_not_compared(cause: CauseKind, begin: str, it: str) -> None:
    assert statement(cause) == f"{begin}, and no earlier difference explains {it}"
    assert statement(cause, not_compared=3) == f"{begin}, and no difference found earlier explains {it}"
    assert DivergenceReason(cause, SHOWN, not_compared=3).evidence["earlier_values_not_compared"] == 3


def test_a_difference_that_grew_accuses_no_call() -> None:
    found = statement(CauseKind.GROWN, InputAgreement(2, largest_multiple=3.0))
    assert found == (
        "is the first call whose values differ by more than rounding explains; the difference grew call by call, "
        "and no single call explains it"
    )


def test_a_difference_that_cancellation_explains_did_not_grow() -> None:
    found = statement(CauseKind.GROWN, InputAgreement(2, largest_multiple=0.5), scaled_distance=0.5)
    assert "grew" not in found
    assert found == (
        "returns values that differ, although its inputs agree within rounding, but rounding of its inputs "
        "explains a difference of this size"
    )


# -- communication -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (0.0, "although no difference was found in the sent values"),
        (0.5, "although the sent values agree within rounding"),
        (3.0, "far more than the sent values"),
    ],
)
def test_what_was_sent(given: float, told: str) -> None:
    assert statement(CauseKind.DELIVERED, sent_distance=given) == f"delivers values that differ, {told}"


def test_ranks_that_may_have_sent_what_differs() -> None:
    assert statement(CauseKind.DELIVERED, absent_ranks=(3,)) == (
        "delivers values that differ; rank 3 may have sent them, and was not compared in this call"
    )
    assert statement(CauseKind.DELIVERED, absent_ranks=(3, 5)).endswith(
        "; ranks 3, 5 may have sent them, and were not compared in this call"
    )
    assert DivergenceReason(CauseKind.DELIVERED, SHOWN, absent_ranks=(3, 5)).evidence["ranks_not_compared"] == "3, 5"


# -- evidence ----------------------------------------------------------------------------------------------


def test_evidence_holds_the_numbers_of_the_statement() -> None:
    shown = SHOWN._replace(basis=Basis.TENSOR, distance=0.5, scale=2.0, noise=0.01)
    assert DivergenceReason(CauseKind.INTRODUCED, shown, InputAgreement(2, 1, 0.5), largest_multiple=25.0).evidence == {
        "value": shown.row, "judged_by": "tensor", "difference": "rms 50 apart", "difference_kind": "value", "relative_distance": 0.25,
        "rounding": 0.01, "times_rounding": 25.0, "inputs_compared": 2, "inputs_not_compared": 1,
        "inputs_times_rounding": 0.5,
    }  # fmt: skip


def test_evidence_of_a_difference_without_size_holds_no_number_of_it() -> None:
    shown = SHOWN._replace(distance=math.inf, scale=1.0, evidence="checksum a against b", basis=Basis.CHECKSUM)
    evidence = DivergenceReason(CauseKind.INTRODUCED, shown, InputAgreement(2, largest_multiple=math.inf)).evidence
    assert not evidence.keys() & {"relative_distance", "times_rounding", "inputs_times_rounding"}
    assert evidence["difference"] == "checksum a against b"


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ("Torch.a.0.forward.output.0", "output.0"),
        ("Module.a.A.forward.0.parameters.weight", "parameters.weight"),
        ("Torch.a.0.backward.input.1", "input.1"),
        ("x", "x"),
    ],
)
def test_the_short_name_of_a_value(row: str, name: str) -> None:
    assert format_difference(SHOWN._replace(row=row)) == f"{name}: rms 50 apart"
    assert format_difference(SHOWN._replace(row=row, evidence="")) == name
