"""Tests of the first receiver of a value that differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.runs.answered import answered, call, causes, normal

ENCODER, DECODER, INNER = (f"Module.{name}.forward.0" for name in ("encoder.Net", "decoder.Net", "decoder.inner.Net"))
CONSTRUCT = {
    "Functional.relu.0.forward": ENCODER, ENCODER: None, "Functional.tanh.0.forward": INNER, INNER: DECODER,
    "Functional.relu.1.forward": INNER, DECODER: None,
}  # fmt: skip
SENT, WEIGHT = normal(8, 4), normal(4, seed=3)


def calls(state: Any, weight: Any = WEIGHT) -> dict[str, Any]:
    """An encoder, and a decoder that receives a state and passes it to its second inner call."""
    result = np_relu(state)
    return {
        "Functional.relu.0.forward": call(normal(8, 4, seed=1), out=SENT),
        ENCODER: call(normal(8, 4, seed=1), out=SENT),
        "Functional.tanh.0.forward": call(weight, out=weight * 2),
        "Functional.relu.1.forward": call(state, out=result),
        INNER: call(weight, state, out=result),
        DECODER: call(weight, state, out=result),
    }


def np_relu(values: Any) -> Any:
    """Return the values without negative ones."""
    return values * (values > 0)


@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_outermost_module_that_receives_the_value_is_named(tmp_path: Path, task: str) -> None:
    report = answered(tmp_path, calls(SENT[4:]), calls(SENT[:4]), task, CONSTRUCT)
    assert causes(report)[0] == (DECODER, "receives values that differ, and no earlier difference explains them")
    assert report.answer is not None and report.answer.causes[0].evidence["value"] == f"{DECODER}.input.1"
    assert report.answer.causes[0].consequences[0] == "Functional.relu.1.forward"


def test_module_whose_inputs_agree_is_not_named(tmp_path: Path) -> None:
    target, golden = calls(SENT[:4]), calls(SENT[:4])
    target["Functional.relu.1.forward"] = call(SENT[4:], out=np_relu(SENT[4:]))
    for module in (INNER, DECODER):
        target[module] = call(WEIGHT, SENT[:4], out=np_relu(SENT[4:]))
    report = answered(tmp_path, target, golden, construct=CONSTRUCT)
    assert causes(report)[0][0] == "Functional.relu.1.forward"
