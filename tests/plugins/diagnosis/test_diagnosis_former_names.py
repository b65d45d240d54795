"""Former names of the kit keep working, with a warning."""

from __future__ import annotations

import probe_diagnosis
import pytest
from probe_diagnosis.difference.nodes import Node
from probe_diagnosis.difference.reasons import CauseKind, DivergenceReason
from probe_diagnosis.timeline.compared_calls import ComparedCall, DifferenceKind, ValueComparison, ValueState

from probe_core.model import Side

FORMER_NAMES = {
    "Searched": "SearchResult",
    "Difference": "ValueComparison",
    "depths": "list_call_depths",
    "whole_answer": "build_overall_answer",
}


@pytest.mark.parametrize("former", FORMER_NAMES)
def test_former_names_are_exported_with_a_warning(former: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"probe_diagnosis\.{former} is"):
        value = getattr(probe_diagnosis, former)
    assert value is getattr(probe_diagnosis, FORMER_NAMES[former])


def test_former_attributes_of_a_node_warn() -> None:
    value = ValueComparison("Torch.a.0.forward.output.0", Side.OUTPUT, ValueState.DIFFERS)
    node = Node(0, ComparedCall("Torch.a.0.forward", (value,)), DivergenceReason(CauseKind.INTRODUCED, value), 0, 0)
    with pytest.warns(DeprecationWarning, match="Node.call"):
        assert node.facts is node.call
    with pytest.warns(DeprecationWarning, match="Node.reason"):
        assert node.because is node.reason


def test_former_attributes_of_calls_and_values_warn() -> None:
    value = ValueComparison("Torch.a.0.forward.output.0", Side.OUTPUT, ValueState.DIFFERS, evidence="other values")
    call = ComparedCall("Torch.a.0.forward", (value,), golden_op="Torch.b.0.forward")
    with pytest.warns(DeprecationWarning, match="ValueComparison.why is called evidence now"):
        assert value.why == "other values"  # type: ignore[attr-defined]
    with pytest.warns(DeprecationWarning, match="ComparedCall.golden is called golden_op now"):
        assert call.golden == "Torch.b.0.forward"  # type: ignore[attr-defined]


def test_a_state_equals_its_text() -> None:
    assert ValueState.DIFFERS == "differs" and DifferenceKind.LONE is DifferenceKind.ONE_SIDED
    assert DifferenceKind.ONE_SIDED.text == "lone"
