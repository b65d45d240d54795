"""The text of steps in golden files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pytest_probe.step import read_step, write_step
from pytest_probe.step_text import format_step, parse_step
from pytest_probe.value_text import ValueTextError
from support.cases import every

TENSOR = {
    "type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": 1.5, "Min": -0.25, "Mean": 0.5, "Norm": 2.0,
    "requires_grad": False,
}  # fmt: skip
RECORDS: dict[str, Any] = {
    "Torch.add.0.forward": {
        "input_args": [
            {**TENSOR, "md5": "1" * 16}, None, {"type": "int", "value": 2}, {"type": "float", "value": float("inf")},
            {"type": "str", "value": "#1"}, {"type": "torch.Size", "value": [2, 3]}, [{"type": "bool", "value": True}],
            {**TENSOR, "layout": "sparse"},
        ],
        "input_kwargs": {"type": {**TENSOR, "md5": "1" * 16}, "value": {"type": "torch.device", "value": "cpu:None"}},
        "output": [{**TENSOR, "shape": [2, 1], "md5": "1" * 16}],
    },
    "Module.a.Linear.forward.0": {"input_args": [], "input_kwargs": {}, "output": []},
    "Module.a.Linear.backward.0": {"input": [None], "output": []},
}  # fmt: skip
PARENTS = {"Torch.add.0.forward": "Module.a.Linear.forward.0", "Module.a.Linear.forward.0": None}
PHASE = {"phase": "batch", "number": 0, "stack": ["a line"], "facts": {"lr": 0.1}, "values": {"input.0": TENSOR}}


def write_recorded(directory: Path) -> None:
    (directory / "dump.json").write_text(json.dumps({"probe": {"families": {"custom_operators": []}}, "data": RECORDS}))
    (directory / "construct.json").write_text(json.dumps(PARENTS))
    (directory / "step_phases.json").write_text(json.dumps({"phases": [PHASE], "not_captured": {}}))


def without_checksums(tree: Any) -> Any:
    if isinstance(tree, list):
        return [without_checksums(item) for item in tree]
    if isinstance(tree, dict):
        return {name: without_checksums(item) for name, item in tree.items() if name != "md5"}
    return tree


def test_step_becomes_text_and_a_run_again(tmp_path: Path) -> None:
    write_recorded(tmp_path)
    step = read_step(tmp_path)
    calls, phases = json.loads(json.dumps(format_step(step)))
    read = parse_step(calls, phases)
    assert format_step(read) == (calls, phases)
    write_step(read, tmp_path / "run")
    written = json.loads((tmp_path / "run" / "dump.json").read_text())
    assert written["data"] == without_checksums(RECORDS) and [*written["data"]] == [*RECORDS]
    parents = json.loads((tmp_path / "run" / "construct.json").read_text())
    assert parents == {key: PARENTS.get(key) for key in RECORDS}
    content = json.loads((tmp_path / "run" / "step_phases.json").read_text())
    assert content["phases"] == [{**PHASE, "stack": []}]


def test_lines_are_short(tmp_path: Path) -> None:
    write_recorded(tmp_path)
    calls, phases = format_step(read_step(tmp_path))
    assert calls["Torch.add.0.forward"]["output"] == ["float32[2,1] #11111111"]
    assert calls["Module.a.Linear.forward.0"] == {"in": None, "args": [], "output": []}
    assert calls["Module.a.Linear.backward.0"] == {"input": [None], "output": []}
    assert phases == [{"phase": "batch", "number": 0, "facts": {"lr": 0.1}, "values": {"input.0": "#11111111"}}]


@every(
    "calls, phases",
    [
        ({"Torch.add.0.forward": []}, []),
        ({"Torch.add.0.forward": {"in": 1}}, []),
        ({"Torch.add.0.forward": {"args": ["nonsense"]}}, []),
        ({}, [{"phase": "batch"}]),
    ],
)
def test_damaged_lines_are_refused(calls: dict[str, Any], phases: list[dict[str, Any]]) -> None:
    with pytest.raises(ValueTextError):
        parse_step(calls, phases)
