"""The tree of modules and the stacks of recorded calls."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch
from support.runs import debugged
from support.runs.debugged import (
    X,
    alone,  # noqa: F401
    net,
    once,
    train,
)
from torch.nn import functional as F

pytestmark = pytest.mark.filterwarnings("ignore:.*requires_grad=True:UserWarning")
# -- the tree and the stacks ------------------------------------------------------------------------


def test_the_parents_of_everything(tmp_path: Path) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)

    def work() -> None:
        train(model)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)
        optimizer.step()
        F.relu(X)

    found = once(tmp_path / "run", work, model, level="mix")
    parents, records = found.parents(), found.records()
    block, head = "Module.block.Block", "Module.head.Linear"
    for name, parent in {
        f"{block}.forward.0": None,
        f"{head}.forward.0": None,
        "Module.block.up.Linear.forward.0": f"{block}.forward.0",
        "Functional.linear.0.forward": "Module.block.up.Linear.forward.0",
        "Functional.gelu.0.forward": f"{block}.forward.0",
        "Functional.gelu.0.backward": f"{block}.backward.0",
        "Functional.linear.2.forward": f"{head}.forward.0",
        "Functional.linear.2.backward": f"{head}.backward.0",
        "Module.block.up.Linear.backward.0": f"{block}.backward.0",
        f"{block}.backward.0": None,
        "Tensor.square.0.forward": None,
        "Functional.relu.0.forward": None,
    }.items():
        assert name in parents and parents[name] == parent, name
    stacks = found.stacks()
    for pseudo, file in (("optimizer", "/torch/optim/"), ("clip_grad", "clip_grad.py")):
        inside = [name for name, parent in parents.items() if parent == pseudo]
        assert inside
        assert all(any(file in line for line in stacks[name]) for name in inside)
    assert {name for name in records if "parameters_grad" not in name} <= parents.keys()


def test_optimizer_and_clip_grad_are_nodes(tmp_path: Path) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)

    def work() -> None:
        train(model)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    parents = once(tmp_path / "run", work, model, level="mix").parents()
    assert all(parent is None or parent in parents for parent in parents.values())


def test_the_stack_names_the_line_of_the_user(tmp_path: Path) -> None:
    model = net()
    place = {}

    def work() -> None:
        frame = inspect.currentframe()
        assert frame is not None
        place["line"] = frame.f_lineno + 1
        F.silu(X)
        _ = X * 5 + X
        model(X)

    found = once(tmp_path / "run", work, model, level="mix")
    stacks, line = found.stacks(), place["line"]
    assert stacks["Functional.silu.0.forward"][0] == f"File {__file__}, line {line}, in work, \n F.silu(X)"
    for name in ("Tensor.__mul__.0.forward", "Tensor.__add__.0.forward"):
        assert stacks[name][0] == f"File {__file__}, line {line + 1}, in work, \n _ = X * 5 + X"
    linear = stacks["Functional.linear.0.forward"]
    assert "/torch/nn/modules/linear.py" in linear[0]
    mine = [frame for frame in linear if __file__ in frame or debugged.__file__ in frame]
    assert "in forward, \n return x + self.down(F.gelu(self.up(x)))" in mine[0]
    assert f"line {line + 2}, in work, \n model(X)" in next(frame for frame in mine if "in work" in frame)
    module = [frame for frame in stacks["Module.head.Linear.forward.0"] if debugged.__file__ in frame]
    assert "in forward, \n return self.head(self.block(x))" in module[0]
    assert not any("probe_pytorch/" in frame for frames in stacks.values() for frame in frames)
    assert not any("backward" in name for name in stacks)


def test_the_form_of_records(tmp_path: Path) -> None:
    model = net()
    found = once(tmp_path / "run", lambda: train(model), model, level="mix")
    records = found.records()
    forward = records["Module.head.Linear.forward.0"]
    assert list(forward) == ["input_args", "input_kwargs", "output", "parameters"]
    assert list(forward["parameters"]) == ["weight", "bias"]
    assert list(records["Functional.gelu.0.forward"]) == ["input_args", "input_kwargs", "output"]
    assert list(records["Functional.gelu.0.backward"]) == ["input", "output"]
    assert list(records["Module.block.Block.forward.0"]["parameters"]) == []
    leaf = forward["output"][0]
    assert list(leaf) == ["type", "dtype", "shape", "Max", "Min", "Mean", "Norm", "requires_grad"]
    assert leaf["requires_grad"] is True and forward["input_args"][0]["shape"] == [3, 4]
