"""Former names of the kit keep working, with a warning."""

from __future__ import annotations

import probe_diagnosis
import pytest
from probe_diagnosis.difference.nodes import Node
from probe_diagnosis.difference.reasons import CauseKind, DivergenceReason
from probe_diagnosis.timeline.compared_calls import ComparedCall, ValueComparison, ValueState

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
