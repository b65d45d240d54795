"""What the recorder of MindSpore programs writes: names, slots, values, gradients, filters."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

import mindspore.mint.nn.functional as F  # noqa: E402
from mindspore import Parameter, Tensor, mint, nn, ops  # noqa: E402
from probe_mindspore import PrecisionDebugger  # noqa: E402
from probe_mindspore.reader import MindSporeReader  # noqa: E402

from ms_net import Net, batch, training  # noqa: E402  isort: skip
from ms_recording import Recording, recording  # noqa: E402  isort: skip
from probe_core.errors import UserError  # noqa: E402
from probe_core.recording.config import ConfigWarning  # noqa: E402


@pytest.fixture(autouse=True, scope="module")
def blocking() -> None:
    ms.runtime.launch_blocking()


def tensor(*shape: int, seed: int = 0, dtype: str = "float32") -> Tensor:
    return Tensor((np.random.RandomState(seed).normal(size=shape) * 4).astype(dtype))


def recorded(
    path: Path, function: Any, *inputs: Any, model: Any = None, grad: bool = True, **fields: Any
) -> Recording:
    """``function`` recorded once, with the gradient of all ``inputs`` where it gives one number."""
    with recording(path / "run", **{"task": "tensor", **fields}) as found:
        found.start(model)
        if grad:
            found.result = ms.grad(function, tuple(range(len(inputs))))(*inputs)  # type: ignore[attr-defined]
        else:
            found.result = function(*inputs)  # type: ignore[attr-defined]
        found.stop()
        found.step()
    return found


def outputs_of(found: Recording, key: str) -> list[Any]:
    return [None if leaf is None else found.array(leaf) for leaf in found.records()[key]["output"]]


# -- names -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """One step of the net at level mix."""
    with recording(tmp_path_factory.mktemp("mix") / "run", task="tensor", level="mix") as found:
        net = Net()
        net.set_train()
        step = training(net)
        found.start(net)
        step(*batch(0))
        found.stop()
        found.step()
    return found


def test_names_are_the_peers(whole: Recording) -> None:
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


@pytest.mark.parametrize(
    ("level", "cells", "calls"), [("L0", True, False), ("L1", False, True), ("mix", True, True)]
)
def test_levels(tmp_path: Path, level: str, cells: bool, calls: bool) -> None:
    net = Net()
    found = recorded(tmp_path, lambda x: net(x).sum(), batch(0)[0], model=net, level=level, task="statistics")
    names = list(found.records())
    assert any(name.startswith("Cell.") for name in names) == cells
    assert any(name.startswith(("Mint.", "Primitive.")) for name in names) == calls
    assert bool(found.parents()) == cells
    assert not (found.directory() / "dump_tensor_data").exists()


def test_everything_of_mint_is_seen(tmp_path: Path) -> None:
    """Names that no list has: those of mint, its functional, special and linalg, in ``__all__`` or not."""
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
    """They find functions under names of their own, and in the modules that define them."""
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


# -- values ----------------------------------------------------------------------------------

DTYPES = ["float32", "float16", "float64", "int32", "int64", "uint8"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_statistics_are_those_of_numpy(tmp_path: Path, dtype: str) -> None:
    x = (
        tensor(7, 33, dtype=dtype)
        if dtype != "uint8"
        else Tensor(np.arange(231, dtype="uint8").reshape(7, 33))
    )
    leaf = recorded(tmp_path, lambda x: mint.reshape(x, (33, 7)), x, grad=False).records()[
        "Mint.reshape.0.forward"
    ]
    leaf, given = leaf["input_args"][0], x.asnumpy().astype(np.float64)
    assert (leaf["type"], leaf["dtype"].lower(), leaf["shape"]) == ("mindspore.Tensor", dtype, [7, 33])
    assert (leaf["Max"], leaf["Min"]) == (given.max(), given.min())
    assert leaf["Mean"] == pytest.approx(given.mean(), rel=1e-14, abs=1e-14)
    assert leaf["Norm"] == pytest.approx(np.linalg.norm(given), rel=1e-14)
    assert "requires_grad" not in leaf


@pytest.mark.parametrize(
    ("array", "four"),
    [
        (np.array([True, False]), (True, False, None, None)),
        (np.float32(2.5), (2.5, 2.5, 2.5, 2.5)),
        (np.zeros((0, 3), np.float32), (None, None, None, None)),
        (np.array([1, np.inf], np.float32), (np.inf, 1, np.inf, np.inf)),
        (np.full(5, 60000, np.float16), (60000, 60000, 60000, 60000 * 5**0.5)),
        (np.full(4, 1e200), (1e200, 1e200, 1e200, 2e200)),
        (np.array([3 + 4j], np.complex64), (5, 5, 5, None)),
    ],
    ids=["bool", "0-d", "empty", "inf", "float16", "huge", "complex"],
)
def test_statistics_at_the_edges(tmp_path: Path, array: Any, four: Any) -> None:
    found = recorded(tmp_path, lambda x: mint.reshape(x, (-1,)), Tensor(array), grad=False)
    leaf = found.records()["Mint.reshape.0.forward"]["input_args"][0]
    got = [leaf[k] for k in ("Max", "Min", "Mean", "Norm")]
    assert [value is None for value in got] == [value is None for value in four]
    for value, wanted in zip(got, four):
        assert value is None or value == pytest.approx(wanted, rel=1e-12)


def test_nan_makes_all_four_nan(tmp_path: Path) -> None:
    found = recorded(tmp_path, lambda x: mint.exp(x), Tensor(np.array([1, np.nan], np.float32)), grad=False)
    leaf = found.records()["Mint.exp.0.forward"]["input_args"][0]
    assert all(leaf[k] != leaf[k] for k in ("Max", "Min", "Mean", "Norm"))


def test_bfloat16_is_stored_wide_and_summed_raw(tmp_path: Path) -> None:
    x = tensor(3, 4).astype(ms.bfloat16)
    found = recorded(tmp_path, lambda x: x.view(12), x, grad=False, task="statistics",
                     statistics={"summary_mode": "md5", "tensor_list": ["view"]})  # fmt: skip
    leaf = found.records()["Tensor.view.0.forward"]["output"][0]
    exact = x.float().asnumpy().reshape(12)
    assert leaf["dtype"] == "BFloat16" and np.array_equal(found.array(leaf), exact)
    raw = (exact.view(np.uint32) >> 16).astype(np.uint16)
    assert leaf["md5"] == f"{zlib.crc32(raw.tobytes()):08x}"
    assert leaf["Max"] == exact.max()


def test_md5_is_the_crc_of_the_bytes(tmp_path: Path) -> None:
    x = tensor(4, 5)
    found = recorded(tmp_path, lambda x: mint.exp(mint.transpose(x, 0, 1)), x, grad=False,
                     task="statistics", statistics={"summary_mode": "md5"})  # fmt: skip
    records = found.records()
    turned = np.ascontiguousarray(x.asnumpy().T)  # a view: row by row of what it shows
    assert records["Mint.transpose.0.forward"]["output"][0]["md5"] == f"{zlib.crc32(turned.tobytes()):08x}"
    assert (
        records["Mint.transpose.0.forward"]["input_args"][0]["md5"]
        == f"{zlib.crc32(x.asnumpy().tobytes()):08x}"
    )


def test_tensors_come_back_through_the_reader(whole: Recording) -> None:
    run = MindSporeReader().open(whole.directory() / "dump.json")
    index = run.find("Mint.chunk.0.forward")
    assert index is not None
    given, *parts = (run.tensor(s.value) for s in run.record(index).slots if s.value.data_name)
    assert given.shape == (2, 16, 24) and len(parts) == 3
    assert all(np.array_equal(part, whole) for part, whole in zip(parts, np.split(given, 3, -1)))
    assert sum(slot.value.data_name is not None for r in run.records() for slot in r.slots) == len(
        list((whole.directory() / "dump_tensor_data").iterdir())
    )
    run.close()


def test_values_of_other_kinds(tmp_path: Path) -> None:
    class Odd:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("leave me alone")

    def everything(*args: Any, **kwargs: Any) -> Any:
        return {"x": args[0], "n": [1, (2.5, None)]}

    holder = SimpleNamespace(everything=everything, __name__="mine")
    around: list[Any] = []
    around.append(around)
    with recording(tmp_path / "run", task="tensor") as found:
        found.debugger.register_custom_api(holder, "everything", "mine")
        found.start()
        holder.everything(tensor(2), ms.float16, slice(1, None, 2), ..., np.float32(1.5), np.arange(3), Odd(), around,
                          {"type": 1, 2: True}, key="text", dtype=ms.int32)  # fmt: skip
        found.stop()
        found.debugger.restore_custom_api(holder, "everything")
        found.step()
    record = found.records()["mine.everything.0.forward"]
    args = record["input_args"]
    assert args[1] == {"type": "mindspore.dtype", "value": "Float16"}
    assert args[2] == {"type": "slice", "value": [1, None, 2]}
    assert args[3]["type"] == "ellipsis" and args[4] == {"type": "float32", "value": 1.5}
    assert args[5]["Max"] == 2 and args[6] is None and args[7] == [None]
    assert args[8] == {"type_": {"type": "int", "value": 1}, "2": {"type": "bool", "value": True}}
    assert record["input_kwargs"]["dtype"] == {"type": "mindspore.dtype", "value": "Int32"}
    assert record["output"][0]["n"] == [
        {"type": "int", "value": 1}, [{"type": "float", "value": 2.5}, None]]  # fmt: skip
    assert holder.everything is everything


# -- gradients -------------------------------------------------------------------------------


def test_gradients_of_lists_and_keywords(tmp_path: Path) -> None:
    x, y = tensor(2, 3), tensor(2, 3, seed=1)
    c = np.arange(12, dtype=np.float32).reshape(4, 3)

    def f(x: Tensor, y: Tensor) -> Tensor:
        z = mint.cat(tensors=[x, mint.mul(x, other=y)], dim=0)
        return (z * Tensor(c)).sum() + ops.stack([x, y]).sum() * 3

    found = recorded(tmp_path, f, x, y)
    got = outputs_of(found, "Mint.cat.0.backward")
    assert np.array_equal(got[0], c[:2]) and np.array_equal(got[1], c[2:])
    got = outputs_of(found, "Mint.mul.0.backward")
    assert np.allclose(got[0], c[2:] * y.asnumpy(), rtol=1e-6) and np.allclose(
        got[1], c[2:] * x.asnumpy(), rtol=1e-6
    )
    assert [g.tolist() for g in outputs_of(found, "Functional.stack.0.backward")] == [[[3.0] * 3] * 2] * 2


def test_each_use_of_a_tensor_has_its_own_share(tmp_path: Path) -> None:
    x = tensor(5)

    def f(x: Tensor) -> Tensor:
        return (mint.exp(x) + mint.sin(x) * 2 + mint.mul(x, x)).sum()

    found = recorded(tmp_path, f, x)
    a = x.asnumpy()
    assert np.allclose(outputs_of(found, "Mint.exp.0.backward")[0], np.exp(a), rtol=1e-5)
    assert np.allclose(outputs_of(found, "Mint.sin.0.backward")[0], 2 * np.cos(a), rtol=1e-5)
    got = outputs_of(found, "Mint.mul.0.backward")
    assert np.array_equal(got[0], a) and np.array_equal(got[1], a)
    assert np.allclose(found.result[0] if isinstance(found.result, tuple) else found.result,  # type: ignore[attr-defined]
                       np.exp(a) + 2 * np.cos(a) + 2 * a, rtol=1e-5)  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_shares_within_one_call_are_added(tmp_path: Path, dtype: str) -> None:
    def twice(x: Tensor) -> Tensor:
        return x * 2 + (x + x) * 4

    holder = SimpleNamespace(twice=twice, __name__="mine")
    with recording(tmp_path / "run", task="tensor") as found:
        found.debugger.register_custom_api(holder, "twice")
        found.start()
        weight = Tensor(np.ones(3, np.float32)).astype(getattr(ms, dtype))
        made = ops.GradOperation(get_all=True, sens_param=True)(lambda x: holder.twice(x))
        made(tensor(3).astype(getattr(ms, dtype)), weight)
        found.stop()
        found.debugger.restore_custom_api(holder, "twice")
        found.step()
    names = [name for name in found.records() if name.startswith("mine") or "__" in name]
    assert names == ["mine.twice.0.forward", "mine.twice.0.backward"]
    assert outputs_of(found, "mine.twice.0.backward")[0].tolist() == [10, 10, 10]


def test_a_composed_function_has_the_gradient_of_its_arguments(tmp_path: Path) -> None:
    logits, labels = tensor(4, 5), Tensor(np.array([0, 2, 4, 1], np.int32))
    found = recorded(tmp_path, lambda x: ops.cross_entropy(x, labels), logits)
    got = outputs_of(found, "Functional.cross_entropy.0.backward")
    soft = np.exp(logits.asnumpy().astype(np.float64))
    soft /= soft.sum(-1, keepdims=True)
    soft[np.arange(4), labels.asnumpy()] -= 1
    assert np.allclose(got[0], soft / 4, atol=1e-6) and got[1] is None


def test_several_outputs_and_one_of_whole_numbers(tmp_path: Path) -> None:
    x = tensor(3, 4)

    def f(x: Tensor) -> Tensor:
        values, places = ops.max(x, axis=1)
        parts = mint.chunk(x, 2, 1)
        return values.sum() + (parts[1] * 2).sum() + places.sum() * 0

    found = recorded(tmp_path, f, x)
    records = found.records()
    assert [leaf["dtype"] for leaf in records["Functional.max.0.forward"]["output"]] == ["Float32", "Int64"]
    where = (x.asnumpy() == x.asnumpy().max(1, keepdims=True)).astype(np.float32)
    assert np.array_equal(outputs_of(found, "Functional.max.0.backward")[0], where)
    first, second = records["Mint.chunk.0.backward"]["input"]
    assert first is None and second["Max"] == second["Min"] == 2
    assert outputs_of(found, "Mint.chunk.0.backward")[0][:, :2].any() == np.False_


def test_in_place(tmp_path: Path) -> None:
    def f(x: Tensor) -> Tensor:
        y = x * 1
        y[0] = 7.0
        y += x
        return (y * y).sum()

    x = tensor(3, 2)
    found = recorded(tmp_path, f, x)
    record = found.records()["Tensor.__setitem__.0.forward"]
    assert np.array_equal(found.array(record["input_args"][0]), x.asnumpy())  # as it was before
    after = found.array(record["output"][0])
    assert (after[0] == 7).all() and np.array_equal(after[1:], x.asnumpy()[1:])
    gradient = outputs_of(found, "Tensor.__setitem__.0.backward")[0]
    assert (gradient[0] == 0).all() and gradient[1:].any()
    assert "Tensor.__iadd__.0.backward" in found.records()


def test_cells_with_containers(tmp_path: Path) -> None:
    class Mixer(nn.Cell):
        def construct(self, pair: Any, extra: Any = None) -> Any:
            return {"sum": pair[0] + pair[1][0], "rest": (extra["z"] * 2, None)}

    class Outer(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.mixer = Mixer()

        def construct(self, x: Tensor) -> Tensor:
            found = self.mixer((x, [x * 2]), extra={"z": x * 3})
            return found["sum"].sum() + found["rest"][0].sum()

    net = Outer()
    found = recorded(tmp_path, lambda x: net(x), tensor(2, 2), model=net, level="L0")
    record = found.records()["Cell.mixer.Mixer.forward.0"]
    assert set(record["input_kwargs"]) == {"extra"} and set(record["output"][0]) == {"sum", "rest"}
    got = outputs_of(found, "Cell.mixer.Mixer.backward.0")
    assert [set(g.ravel()) for g in got] == [{1.0}, {1.0}, {2.0}]
    assert len(found.records()["Cell.mixer.Mixer.backward.0"]["input"]) == 2


def test_no_gradient_no_backward(tmp_path: Path) -> None:
    found = recorded(tmp_path, lambda x: mint.exp(x).sum(), tensor(3), grad=False)
    assert list(found.records()) == ["Mint.exp.0.forward", "Tensor.sum.0.forward"]


# -- filters, steps, tasks ---------------------------------------------------------------------


def chain(x: Tensor) -> Tensor:
    return mint.sin(mint.exp(mint.sin(mint.cos(x)))).sum()


@pytest.mark.parametrize(
    ("section", "names"),
    [
        ({"list": ["sin"]}, ["Mint.sin.0.forward", "Mint.sin.1.forward", "Mint.sin.1.backward", "Mint.sin.0.backward"]),
        ({"list": ["Mint.exp.0.backward"]}, ["Mint.exp.0.backward"]),
        ({"scope": ["Mint.sin.0.forward", "Mint.exp.0.forward"]}, ["Mint.sin.0.forward", "Mint.exp.0.forward"]),
        ({"list": ["cos"], "data_mode": ["backward"]}, ["Mint.cos.0.backward"]),
        ({"list": ["cos"], "data_mode": ["forward"]}, ["Mint.cos.0.forward"]),
    ],
    ids=["list", "one backward", "scope", "backward only", "forward only"],
)  # fmt: skip
def test_filters(tmp_path: Path, section: Any, names: list[str]) -> None:
    found = recorded(tmp_path, chain, tensor(3), tensor=section)
    assert list(found.records()) == names
    files = {p.name for p in (found.directory() / "dump_tensor_data").iterdir()}
    assert {name.partition(".forward")[0].partition(".backward")[0] for name in files} == {
        name.rpartition(".")[0] for name in names
    }


def test_list_of_a_cell_brings_what_is_inside(tmp_path: Path) -> None:
    net = Net()
    found = recorded(
        tmp_path, lambda x: net(x).sum(), batch(0)[0], model=net, level="mix", tensor={"list": ["mlp.up"]}
    )
    assert {name for name in found.records() if "forward" in name} == {
        "Cell.block.mlp.up.Linear.forward.0", "MintFunctional.linear.2.forward"}  # fmt: skip


def test_steps(tmp_path: Path) -> None:
    with recording(tmp_path / "run", step=[1, "3-4"], task="statistics") as found:
        for _ in range(4):
            found.start()
            mint.exp(tensor(2))
            found.stop()
            found.start()  # again within the step
            mint.exp(tensor(2))
            found.stop()
            found.step()
    assert sorted(p.name for p in found.path.glob("step*")) == ["step1", "step3"]
    assert list(found.records(1)) == list(found.records(3)) == ["Mint.exp.0.forward", "Mint.exp.1.forward"]


def test_structure(tmp_path: Path) -> None:
    net = Net()
    found = recorded(tmp_path, lambda x: net(x).sum(), batch(0)[0], model=net, level="mix", task="structure")
    assert found.records()["Mint.chunk.0.forward"] == {}
    assert found.parents()["Mint.chunk.0.forward"] == "Cell.block.attn.Attention.forward.0"


def test_overflow_check(tmp_path: Path) -> None:
    def f() -> None:
        x = mint.exp(Tensor(np.array([1, 200], np.float32)))
        mint.sin(mint.mul(x, 0.5))

    found = recorded(tmp_path, f, grad=False, task="overflow_check")
    assert list(found.records()) == ["Mint.exp.0.forward"]
    assert np.isinf(found.array(found.records()["Mint.exp.0.forward"]["output"][0])).any()


def test_debug(tmp_path: Path) -> None:
    def f(x: Tensor) -> Tensor:
        y = x * 2
        found.debugger.save({"y": y, "n": 3}, "mine")
        return (y * y).sum()

    with recording(tmp_path / "run", level="debug", task="tensor") as found:
        ms.grad(f)(tensor(3))
        found.debugger.save(tensor(2), "mine")
        found.step()
    records = found.records(name="debug.json")
    assert list(records) == ["mine.0.debug", "mine_grad.0.debug", "mine.1.debug"]
    assert np.allclose(found.array(records["mine_grad.0.debug"]["y"]), 4 * tensor(3).asnumpy())
    assert not (found.directory() / "dump.json").exists()


def test_module_dump(tmp_path: Path) -> None:
    net = Net()
    with recording(tmp_path / "run", level="mix") as found:
        found.start(net)
        mint.exp(tensor(1))
        found.debugger.module_dump(net.block, "only")
        net(batch(0)[0])
        found.debugger.module_dump_end()
        mint.exp(tensor(1))
        found.stop()
    assert list(found.records()) == ["Mint.exp.0.forward", "Cell.only.Block.forward.0", "Mint.exp.1.forward"]


def test_a_cell_that_raises_leaves_no_trace(tmp_path: Path) -> None:
    class Bad(nn.Cell):
        def construct(self, x: Tensor, fail: bool) -> Tensor:
            if fail:
                raise ValueError("no")
            return mint.exp(x)

    net = nn.SequentialCell(Bad())
    with recording(tmp_path / "run", level="mix") as found:
        found.start(net)
        with pytest.raises(ValueError, match="no"):
            net[0](tensor(1), True)
        net[0](tensor(1), False)
        found.stop()
    assert list(found.records()) == ["Mint.exp.0.forward", "Cell.0.Bad.forward.0"]
    assert found.parents()["Mint.exp.0.forward"] == "Cell.0.Bad.forward.0"


ASYNCHRONOUS = """
import sys
import numpy as np
from mindspore import Tensor, mint, ops
from probe_mindspore import PrecisionDebugger

x = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
mint.exp(x).asnumpy()
debugger = PrecisionDebugger(dump_path=sys.argv[1])
debugger.start()
y = mint.sin(x)
try:
    z = mint.norm(y)  # has no kernel on a CPU, which shows when the value is looked at
    w = mint.cos(z)
    print("not raised")
except RuntimeError as error:
    print(error)
mint.exp(x)
debugger.stop()
"""


def test_an_asynchronous_error_names_its_call(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(ASYNCHRONOUS)
    done = subprocess.run(
        [sys.executable, "script.py", str(tmp_path / "run")], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "LinalgVectorNorm" in done.stdout
    assert "probe: raised by Mint.norm.0.forward, called at File" in done.stdout
    assert "line 13, in <module>" in done.stdout
    records = json.loads((tmp_path / "run" / "step0" / "rank" / "dump.json").read_text())["data"]
    assert list(records) == ["Mint.sin.0.forward", "Mint.exp.0.forward"]


def test_jit_runs_as_it_is_written_and_vmap_as_ever(tmp_path: Path) -> None:
    @ms.jit
    def compiled(x: Tensor) -> Tensor:
        return mint.exp(x) * 2

    def f(x: Tensor) -> Tensor:
        return compiled(x).sum() + ops.vmap(ops.sin)(x).sum()

    x = tensor(4)
    plain = ms.grad(f)(x).asnumpy()
    found = recorded(tmp_path, f, x)
    assert "Mint.exp.0.backward" in found.records()
    assert found.head()["probe"] == {"compile": "eager"}
    result = found.result[0] if isinstance(found.result, tuple) else found.result  # type: ignore[attr-defined]
    assert np.allclose(result.asnumpy(), plain, rtol=1e-6)
    assert np.array_equal(ms.grad(f)(x).asnumpy(), plain)  # compiled again


def test_recomputation_is_marked(tmp_path: Path) -> None:
    net = Net()
    net.block.mlp.recompute()
    found = recorded(tmp_path, lambda x: net(x).sum(), batch(0)[0], model=net, level="mix", task="statistics")
    records = found.records()
    assert "is_recompute" not in records["MintFunctional.silu.0.forward"]
    assert records["MintFunctional.silu.1.forward"]["is_recompute"] is True
    assert records["Cell.block.mlp.up.Linear.forward.1"]["is_recompute"] is True
    assert "Cell.block.mlp.up.Linear.backward.1" in records  # the index of its own forward


def test_a_copied_model_works_and_is_not_recorded(tmp_path: Path) -> None:
    net = Net()
    x = batch(0)[0]
    with recording(tmp_path / "run", level="L0") as found:
        found.start(net)
        copied = copy.deepcopy(net)
        assert np.array_equal(copied(x).asnumpy(), net(x).asnumpy())
        found.stop()
    assert "Cell.conv.Conv2d.forward.0" in found.records()
    assert "Cell.conv.Conv2d.forward.1" not in found.records()
    copied(x)


def test_a_second_derivative_has_the_gradients_of_the_first_pass(tmp_path: Path) -> None:
    def inner(x: Tensor) -> Tensor:
        return mint.exp(mint.sin(x)).sum()

    x = tensor(3)
    plain = ms.grad(lambda x: ms.grad(inner)(x).sum())(x).asnumpy()
    found = recorded(tmp_path, lambda x: ms.grad(inner)(x).sum(), x)
    result = found.result[0] if isinstance(found.result, tuple) else found.result  # type: ignore[attr-defined]
    assert np.array_equal(result.asnumpy(), plain)
    got = outputs_of(found, "Mint.sin.0.backward")[0]
    a = x.asnumpy()
    assert np.allclose(got, np.cos(a) * np.exp(np.sin(a)), rtol=1e-4)


def exponential(x: Tensor) -> Tensor:
    return mint.exp(x).sum()


def test_nothing_is_recorded_of_a_program_in_graph_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # where the compiler leaves its own files
    ms.set_context(mode=ms.GRAPH_MODE)
    try:
        with recording(tmp_path / "run") as found:
            found.start()
            value = ms.grad(exponential)(tensor(2))
            found.stop()
    finally:
        ms.set_context(mode=ms.PYNATIVE_MODE)
    assert np.allclose(value.asnumpy(), np.exp(tensor(2).asnumpy()), rtol=1e-5)
    assert "PYNATIVE_MODE" in "".join(capsys.readouterr())
    assert not list(found.path.glob("step*"))


# -- what a user does wrong ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"level": "L2"}, "L2"),
        ({"compile": "tap", "level": "L0"}, "tap"),
        ({"task": "grad_probe"}, "task"),
        ({"dump_path": ""}, "dump_path"),
    ],
)  # fmt: skip
def test_configurations_that_cannot_be_followed(tmp_path: Path, fields: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        Recording(tmp_path / "run", **fields)
    assert PrecisionDebugger._instance is None


def test_what_is_ignored_is_said(tmp_path: Path) -> None:
    with pytest.warns(ConfigWarning, match="async_dump"):
        Recording(tmp_path / "run", async_dump=True).finish()


def test_models(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="mix") as found:
        with pytest.raises(UserError, match="needs the model"):
            found.start()
        with pytest.raises(UserError, match=r"mindspore\.nn\.Cell"):
            found.start(3)
        found.start([Net(), Net()])
        found.stop()


def test_the_head(whole: Recording) -> None:
    head = whole.head()
    assert {k: head[k] for k in ("task", "level", "framework")} == {
        "task": "tensor", "level": "mix", "framework": "mindspore"}  # fmt: skip
    assert Path(head["dump_data_dir"]) == whole.directory() / "dump_tensor_data"
    json.loads((whole.directory() / "stack.json").read_text())
