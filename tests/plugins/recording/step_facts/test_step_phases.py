"""The file of a step's phases, and the setting that turns it off."""

from __future__ import annotations

import json

import pytest
from probe_recording.api import TensorLeaf
from probe_recording.settings.config import parse
from probe_recording.step_facts.step_phases import StepPhases, flatten_leaves


def test_phases_are_written_in_the_order_of_time() -> None:
    step_phases = StepPhases()
    first = step_phases.add("gradient")
    first.values["a.weight"] = TensorLeaf("torch.Tensor", "torch.float32", [2], False, (2.0, 1.0, 1.5, 2.2))
    first.values["b"] = None
    step_phases.add("settings").facts.update(optimizer="SGD", groups=[{"settings": {"lr": 0.1}, "parameters": ["b"]}])
    step_phases.add("gradient")
    assert step_phases.changed
    plain = json.loads(step_phases.text("pytorch"))
    assert not step_phases.changed
    assert (plain["schema"], plain["framework"]) == (2, "pytorch")
    assert [(step_phase["phase"], step_phase["number"]) for step_phase in plain["phases"]] == [
        ("gradient", 0), ("settings", 0), ("gradient", 1),
    ]  # fmt: skip
    assert plain["phases"][0]["values"]["a.weight"]["Norm"] == 2.2
    assert plain["phases"][0]["values"]["b"] is None
    assert plain["phases"][1]["facts"]["groups"][0]["settings"] == {"lr": 0.1}


def test_a_phase_that_came_is_not_missing() -> None:
    step_phases = StepPhases()
    step_phases.explain_missing("batch", "no model")
    step_phases.explain_missing("loss", "no backward pass")
    step_phases.explain_missing("loss", "another reason")
    step_phases.add("batch")
    assert json.loads(step_phases.text("pytorch"))["not_captured"] == {"loss": "no backward pass"}


def test_leaves_are_named_by_their_places() -> None:
    assert list(flatten_leaves([1, {"a": 2, "b": [3]}], "input")) == [
        ("input.0", 1),
        ("input.1.a", 2),
        ("input.1.b.0", 3),
    ]


def test_a_configuration_may_use_the_earlier_name_of_the_field() -> None:
    with pytest.warns(UserWarning, match='"ladder" is called "step_phases" now'):
        config = parse({"dump_path": "run", "ladder": False})
    assert not config.step_phases


@pytest.mark.parametrize(
    ("fields", "records_step_phases"),
    [
        ({}, True),
        ({"step_phases": False}, False),
        ({"task": "tensor", "level": "mix"}, True),
        ({"level": "L0"}, True),
        ({"task": "structure", "level": "mix"}, False),
        ({"task": "overflow_check"}, False),
        ({"level": "L2"}, False),
        ({"level": "debug"}, False),
    ],
)
def test_when_phases_are_recorded(fields: dict[str, object], records_step_phases: bool) -> None:
    assert parse({"dump_path": "run", **fields}).records_step_phases == records_step_phases
