"""Names that the recorder of MindSpore programs writes: records, levels, parents, the header of the run."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

import mindspore.mint.nn.functional as F  # noqa: E402
from mindspore import Parameter, Tensor, mint, nn, ops  # noqa: E402
from support.on_mindspore.ms_net import Net, batch  # noqa: E402
from support.on_mindspore.ms_recording import Recording, recorded, recording, step_of_the_net, tensor  # noqa: E402

ms.runtime.launch_blocking()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return step_of_the_net(tmp_path_factory.mktemp("mix"))


def test_names_are_those_of_msprobe(whole: Recording) -> None:
    names = set(whole.records())
    for name in (
        "Primitive.conv2d.Conv2D.0.forward", "Primitive.bn_train.BatchNorm.0.backward", "Cell.conv.Conv2d.forward.0",
        "Cell.conv.Conv2d.parameters_grad", "MintFunctional.relu.0.forward", "Mint.chunk.0.backward",
        "Cell.block.attn.qkv.Linear.backward.0", "Functional.cross_entropy.0.forward", "Mint.mean.2.backward",
    ):  # fmt: skip
        assert name in names
    assert not any(name.startswith("Cell.Net") for name in names)  # the root is no node


def test_every_forward_of_the_net_has_its_backward(whole: Recording) -> None:
    records = whole.records()
    inside = [k for k in records if k.endswith(".forward") and "Shape" not in k]
    inside = inside[: inside.index("Functional.cross_entropy.0.forward") + 1]  # the optimizer is behind
    assert len(inside) > 30
    assert [k for k in inside if k.replace("forward", "backward") not in records] == []
    cells = [k for k in records if k.startswith("Cell.") and ".forward." in k]
    assert len(cells) == 12
    assert [k for k in cells if k.replace(".forward.", ".backward.") not in records] == []


def test_parents_and_stacks(whole: Recording) -> None:
    parents = whole.parents()
    assert parents["Mint.chunk.0.forward"] == "Cell.block.attn.Attention.forward.0"
    assert parents["Mint.chunk.0.backward"] == "Cell.block.attn.Attention.backward.0"
    assert parents["Cell.block.attn.Attention.forward.0"] == "Cell.block.Block.forward.0"
    assert parents["Functional.cross_entropy.0.forward"] is None
    lines = whole.stacks()["Mint.chunk.0.forward"]
    assert "ms_net.py" in lines[0] and "mint.chunk" in lines[0]
    assert not any("probe_mindspore" in line or "probe_core" in line for line in lines)


def test_keyword_of_a_cell(whole: Recording) -> None:
    assert whole.records()["Cell.block.attn.Attention.forward.0"]["input_kwargs"] == {
        "scale": {"type": "float", "value": 0.5}
    }


def test_parameters_and_their_gradients(whole: Recording) -> None:
    records = whole.records()
    assert set(records["Cell.bn.BatchNorm2d.forward.0"]["parameters"]) == {
        "gamma",
        "beta",
        "moving_mean",
        "moving_variance",
    }
    assert set(records["Cell.bn.BatchNorm2d.parameters_grad"]) == {"gamma", "beta"}
    net = Net()
    net.set_train()
    x, y = batch(0)
    found = ms.grad(lambda x: ops.cross_entropy(net(x), y), None, [net.conv.weight])(x)
    (leaf,) = records["Cell.conv.Conv2d.parameters_grad"]["weight"]
    assert np.array_equal(whole.array(leaf), (found[0] if isinstance(found, tuple) else found).asnumpy())


@pytest.mark.parametrize(("level", "cells", "calls"), [("L0", True, False), ("L1", False, True), ("mix", True, True)])
def test_levels(tmp_path: Path, level: str, cells: bool, calls: bool) -> None:
    net = Net()
    found = recorded(tmp_path, lambda x: net(x).sum(), batch(0)[0], model=net, level=level, task="statistics")
    names = list(found.records())
    assert any(name.startswith("Cell.") for name in names) == cells
    assert any(name.startswith(("Mint.", "Primitive.")) for name in names) == calls
    assert bool(found.parents()) == cells
    assert not (found.directory() / "dump_tensor_data").exists()


def test_everything_of_mint_is_seen(tmp_path: Path) -> None:
    """Functions of mint, its functional, special and linalg are recorded, in ``__all__`` or not."""
    x = tensor(3, 3)

    def calls() -> None:
        mint.squeeze(mint.isfinite(x), 0)
        mint.special.expm1(x)
        mint.clip(x, 0, 1)
        F.silu(x)
        F.hardswish(x)
        ops.gelu(x)
        x.exp()
        2 - x @ x
        x[1:, 0]
        ops.Sin()(x)

    names = list(recorded(tmp_path, calls, grad=False).records())
    assert names == [
        "Mint.isfinite.0.forward", "Mint.squeeze.0.forward", "Mint.special.expm1.0.forward",
        "Mint.clip.0.forward", "MintFunctional.silu.0.forward", "MintFunctional.hardswish.0.forward",
        "Functional.gelu.0.forward", "Tensor.exp.0.forward",
        "Tensor.__matmul__.0.forward", "Tensor.__rsub__.0.forward", "Tensor.__getitem__.0.forward",
        "Primitive.Sin.Sin.0.forward",
    ]  # fmt: skip


def test_calls_of_layers_of_mint_are_seen(tmp_path: Path) -> None:
    """Layers import functions under other names, and from the modules that define them."""
    layers = mint.nn
    net = nn.SequentialCell(
        layers.Linear(3, 4), layers.Tanh(), layers.Softmax(-1), layers.SiLU(), layers.Flatten(), layers.GLU()
    )
    with recording(tmp_path / "run", level="L1") as found:
        found.start(net)
        net(tensor(2, 3))
        layers.Upsample(scale_factor=2.0)(tensor(2, 4, 3))
        found.stop()
        assert list(found.records()) == [
            "Primitive.dense.Dense.0.forward", "MintFunctional.tanh.0.forward", "MintFunctional.softmax.0.forward",
            "MintFunctional.silu.0.forward", "MintFunctional.flatten.0.forward", "MintFunctional.glu.0.forward",
            "MintFunctional.interpolate.0.forward",
        ]  # fmt: skip


def test_what_was_wrapped_is_put_back(tmp_path: Path) -> None:
    stood = mint.exp, Tensor.__add__, Tensor.exp, Parameter.__add__, ops.Primitive.__call__, F.silu
    with recording(tmp_path / "run", level="mix") as found:
        found.start(Net())
        assert mint.exp is not stood[0] and Tensor.__add__ is not stood[1]
        found.stop()
    assert (mint.exp, Tensor.__add__, Tensor.exp, Parameter.__add__, ops.Primitive.__call__, F.silu) == stood
    assert "__add__" not in vars(Parameter) and "exp" not in vars(Parameter)


def test_calls_on_parameters_are_tensors(tmp_path: Path) -> None:
    weight = Parameter(tensor(2, 2), name="w")
    found = recorded(tmp_path, lambda x: (weight * x + weight).exp().sum(), tensor(2, 2))
    assert [k for k in found.records() if k.endswith("forward")] == [
        "Tensor.__mul__.0.forward", "Tensor.__add__.0.forward", "Tensor.exp.0.forward", "Tensor.sum.0.forward",
    ]  # fmt: skip


def test_a_call_without_tensors_is_no_record(tmp_path: Path) -> None:
    holder = SimpleNamespace(twice=lambda value: value * 2, __name__="mine")
    with recording(tmp_path / "run") as found:
        found.debugger.register_custom_api(holder, "twice")
        found.start()
        assert holder.twice(2) == 4
        holder.twice(tensor(1))
        found.stop()
        found.debugger.restore_custom_api(holder, "twice")
    assert list(found.records()) == ["mine.twice.0.forward"]


def test_the_head(whole: Recording) -> None:
    head = whole.head()
    assert {k: head[k] for k in ("task", "level", "framework")} == {
        "task": "tensor", "level": "mix", "framework": "mindspore"}  # fmt: skip
    assert Path(head["dump_data_dir"]) == whole.directory() / "dump_tensor_data"
    json.loads((whole.directory() / "stack.json").read_text())
