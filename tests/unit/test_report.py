"""Suspects: which rows are named first, and which are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recorded import forward, scalar, tensor, write_run

from probe_core.manager import Manager
from probe_core.pipeline import compare
from probe_core.plan import Plan
from probe_core.report import Report
from probe_core.store.construct import Construct
from probe_core.store.stack import own_frame

GOOD, BAD = tensor(value=1.0), tensor(value=9.0)


def report(tmp_path: Path, target: dict[str, Any], golden: dict[str, Any], construct: str = "") -> Report:
    paths = [write_run(tmp_path / side, data) for side, data in (("t", target), ("g", golden))]
    (tmp_path / "t" / "construct.json").write_text(construct or "{}")
    plan = Plan(paths[0], paths[1], tmp_path / "o", "0", formats=("csv",))
    (found,) = compare(plan, Manager())
    return found


def named(found: Report) -> list[tuple[str, str]]:
    return [(one.op, one.why.split(";")[0]) for one in found.suspects]


def test_an_op_that_differs_although_its_inputs_agree(tmp_path: Path) -> None:
    target = {
        "Torch.a.0.forward": forward(GOOD, output=[GOOD]),
        "Torch.b.0.forward": forward(GOOD, output=[BAD]),
        "Torch.c.0.forward": forward(BAD, output=[BAD]),
    }
    golden = {key: forward(GOOD, output=[GOOD]) for key in target}
    assert named(report(tmp_path, target, golden)) == [
        ("Torch.b.0.forward", "differs although its inputs agree")
    ]


def test_the_first_that_takes_in_other_values_and_no_later_one(tmp_path: Path) -> None:
    target = {f"Torch.{name}.0.forward": forward(BAD, output=[BAD]) for name in "abc"}
    golden = {key: forward(GOOD, output=[GOOD]) for key in target}
    assert named(report(tmp_path, target, golden)) == [("Torch.a.0.forward", "takes in values that differ")]


def test_another_argument(tmp_path: Path) -> None:
    found = report(
        tmp_path,
        {"Torch.mul.0.forward": forward(GOOD, scalar(0.0625), output=[BAD])},
        {"Torch.mul.0.forward": forward(GOOD, scalar(0.25), output=[GOOD])},
    )
    assert named(found) == [("Torch.mul.0.forward", "was called with another argument")]
    assert found.suspects[0].row == "Torch.mul.0.forward.input.1"


def test_a_gradient_noted_early_hides_no_forward_call(tmp_path: Path) -> None:
    """Recorders note a parameter's gradient beside the forward call of its module."""
    gradient = "Module.x.Linear.parameters_grad"
    target = {gradient: {"weight": [BAD]}, "Torch.a.0.forward": forward(BAD, output=[BAD])}
    golden = {gradient: {"weight": [GOOD]}, "Torch.a.0.forward": forward(GOOD, output=[GOOD])}
    assert [op for op, _ in named(report(tmp_path, target, golden))] == ["Torch.a.0.forward"]


def test_backward_calls_only_where_no_forward_call_is_suspect(tmp_path: Path) -> None:
    target = {"Torch.a.0.backward": {"input": [GOOD], "output": [BAD]}}
    golden = {"Torch.a.0.backward": {"input": [GOOD], "output": [GOOD]}}
    assert named(report(tmp_path, target, golden))[0][0] == "Torch.a.0.backward"
    target["Torch.b.0.forward"], golden["Torch.b.0.forward"] = (
        forward(GOOD, output=[BAD]),
        forward(GOOD, output=[GOOD]),
    )
    assert [op for op, _ in named(report(tmp_path / "2", target, golden))] == ["Torch.b.0.forward"]


def test_calls_that_may_be_mispaired_are_no_suspects(tmp_path: Path) -> None:
    """One call more in the target: the k-th no longer meets the k-th, and -f is offered."""
    target = {f"Torch.relu.{n}.forward": forward(tensor(value=v), output=[tensor(value=v)])
              for n, v in enumerate((9.0, 1.0, 2.0))}  # fmt: skip
    golden = {f"Torch.relu.{n}.forward": forward(tensor(value=v), output=[tensor(value=v)])
              for n, v in enumerate((1.0, 2.0))}  # fmt: skip
    found = report(tmp_path, target, golden)
    assert found.suspects == []
    assert "Torch.relu.forward first" in found.notes[0] and "-f pairs calls in order" in found.notes[0]


def test_the_module_is_named_and_modules_around_it_are_left_out(tmp_path: Path) -> None:
    keys = (
        "Torch.a.0.forward",
        "Module.m.in.Inner.forward.0",
        "Module.m.Outer.forward.0",
        "Module.n.Other.forward.0",
    )
    target = {key: forward(GOOD, output=[BAD]) for key in keys}
    golden = {key: forward(GOOD, output=[GOOD]) for key in keys}
    construct = (
        '{"Torch.a.0.forward": "Module.m.in.Inner.forward.0", '
        '"Module.m.in.Inner.forward.0": ["Module.m.Outer.forward.0", 1], "Module.m.Outer.forward.0": null}'
    )
    found = report(tmp_path, target, golden, construct)
    assert [one.op for one in found.suspects] == ["Torch.a.0.forward", "Module.n.Other.forward.0"]
    assert found.suspects[0].module == "Module.m.in.Inner.forward.0"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 3}', '{"a": "b", "b": "a"}'])
def test_a_damaged_construct_file_tells_nothing(text: str, tmp_path: Path) -> None:
    path = tmp_path / "construct.json"
    path.write_text(text)
    assert len(Construct.read(path).ancestors("a")) in (0, 200)


def test_the_line_of_the_users_own_code() -> None:
    frames = (
        "File /x/site-packages/msprobe/core/api_registry.py, line 94, in f, \n return g()",
        "File /x/site-packages/torch/nn/functional.py, line 1, in linear, \n return l()",
        "File /x/site-packages/transformers/llama.py, line 193, in attend, \n a = b * c",
        "File train.py, line 3, in <module>, \n model(x)",
    )
    assert own_frame(frames) == "File /x/site-packages/transformers/llama.py, line 193, in attend, a = b * c"
    assert own_frame(frames[:2]) == ""
