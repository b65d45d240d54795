"""The file of a step's phases, and the setting that turns it off."""

from __future__ import annotations

import json

import pytest
from probe_recording import Ladder, TensorLeaf, flat
from probe_recording.config import parse


def test_rungs_are_written_in_the_order_of_time() -> None:
    ladder = Ladder()
    first = ladder.rung("gradient")
    first.values["a.weight"] = TensorLeaf("torch.Tensor", "torch.float32", [2], False, (2.0, 1.0, 1.5, 2.2))
    first.values["b"] = None
    ladder.rung("settings").facts.update(optimizer="SGD", groups=[{"settings": {"lr": 0.1}, "parameters": ["b"]}])
    ladder.rung("gradient")
    assert ladder.changed
    plain = json.loads(ladder.text("pytorch"))
    assert not ladder.changed
    assert (plain["schema"], plain["framework"]) == (1, "pytorch")
    assert [(rung["phase"], rung["number"]) for rung in plain["rungs"]] == [
        ("gradient", 0), ("settings", 0), ("gradient", 1),
    ]  # fmt: skip
    assert plain["rungs"][0]["values"]["a.weight"]["Norm"] == 2.2
    assert plain["rungs"][0]["values"]["b"] is None
    assert plain["rungs"][1]["facts"]["groups"][0]["settings"] == {"lr": 0.1}


def test_a_phase_that_came_is_not_missing() -> None:
    ladder = Ladder()
    ladder.lacks("batch", "no model")
    ladder.lacks("loss", "no backward pass")
    ladder.lacks("loss", "another reason")
    ladder.rung("batch")
    assert json.loads(ladder.text("pytorch"))["not_captured"] == {"loss": "no backward pass"}


def test_leaves_are_named_by_their_places() -> None:
    assert list(flat([1, {"a": 2, "b": [3]}], "input")) == [
        ("input.0", 1),
        ("input.1.a", 2),
        ("input.1.b.0", 3),
    ]


@pytest.mark.parametrize(
    ("fields", "has_ladder"),
    [
        ({}, True),
        ({"ladder": False}, False),
        ({"task": "tensor", "level": "mix"}, True),
        ({"level": "L0"}, True),
        ({"task": "structure", "level": "mix"}, False),
        ({"task": "overflow_check"}, False),
        ({"level": "L2"}, False),
        ({"level": "debug"}, False),
    ],
)
def test_when_phases_are_recorded(fields: dict[str, object], has_ladder: bool) -> None:
    assert parse({"dump_path": "run", **fields}).has_ladder == has_ladder
