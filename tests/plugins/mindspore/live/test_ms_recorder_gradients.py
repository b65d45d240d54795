"""Recorded gradients of single calls of MindSpore."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

from mindspore import Tensor, mint, nn, ops  # noqa: E402
from support.on_mindspore.ms_recording import outputs_of, recorded, recording, tensor  # noqa: E402

ms.runtime.launch_blocking()


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
    assert np.allclose(got[0], c[2:] * y.asnumpy(), rtol=1e-6) and np.allclose(got[1], c[2:] * x.asnumpy(), rtol=1e-6)
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
