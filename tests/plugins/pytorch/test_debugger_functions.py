"""``PrecisionDebugger``: functions of the user's, single modules, saved variables."""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_pytorch import PrecisionDebugger
from probe_pytorch.reader import PyTorchReader
from probe_recording.settings.config import ConfigWarning
from support.programs.training import raw
from support.runs.debugged import (
    X,
    alone,  # noqa: F401
    net,
    saved,
    train,
)
from support.runs.recording import Recording, recording
from torch import Tensor
from torch.nn import functional as F

from probe_core.errors import UserError

pytestmark = pytest.mark.filterwarnings("ignore:.*requires_grad=True:UserWarning")
# -- functions of the user's ------------------------------------------------------------------------


def fused(x: Tensor, scale: float = 2.0) -> Tensor:
    """A function that torch knows nothing of."""
    return F.relu(x) * scale


def library() -> types.ModuleType:
    found = types.ModuleType("kernels")
    found.fused = fused  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize(("prefix", "name"), [(None, "kernels.fused"), ("Custom", "Custom.fused")])
def test_a_function_of_the_users(tmp_path: Path, prefix: str | None, name: str) -> None:
    kernels = library()
    x = torch.linspace(-1, 1, 4, requires_grad=True)
    with recording(tmp_path / "run", level="L1", task="tensor") as found:
        found.debugger.register_custom_api(kernels, "fused", prefix)
        assert kernels.fused is fused  # nothing is replaced until recording begins
        found.start()
        kernels.fused(x * 1.0, scale=3.0).sum().backward()
        kernels.fused(X)
        found.stop()
        assert kernels.fused is fused
        kernels.fused(X)
        found.step()
        found.start()
        kernels.fused(X)
        found.debugger.restore_custom_api(kernels, "fused")
        assert kernels.fused is fused
        kernels.fused(X)
        found.stop()
        found.step()
    records = found.records()
    assert set(records) == {
        "Tensor.__mul__.0.forward", "Tensor.__mul__.0.backward", "Tensor.sum.0.forward", "Tensor.sum.0.backward",
        f"{name}.0.forward", f"{name}.0.backward", f"{name}.1.forward",
    }  # fmt: skip
    assert records[f"{name}.0.forward"]["input_kwargs"] == {"scale": {"type": "float", "value": 3.0}}
    gradient = saved(found)[f"{name}.0.backward.output.0.pt"]
    assert gradient.tolist() == [0.0, 0.0, 3.0, 3.0]
    assert list(found.records(1)) == [
        f"{name}.0.forward",
        "Functional.relu.0.forward",
        "Tensor.__mul__.0.forward",
    ]


def test_a_function_registered_while_recording(tmp_path: Path) -> None:
    kernels = library()
    with recording(tmp_path / "run", level="L1") as found:
        found.start()
        found.debugger.register_custom_api(kernels, "fused")
        kernels.fused(X)
        found.stop()
        assert kernels.fused is fused
    assert list(found.records()) == ["kernels.fused.0.forward"]


def test_a_function_of_the_users_that_raises(tmp_path: Path) -> None:
    kernels = library()
    with recording(tmp_path / "run", level="L1") as found:
        found.debugger.register_custom_api(kernels, "fused")
        found.start()
        with pytest.raises(TypeError):
            kernels.fused()
        kernels.fused(X)
        F.gelu(X)
        found.stop()
    assert list(found.records()) == ["kernels.fused.0.forward", "Functional.gelu.0.forward"]


def test_what_the_user_put_there_meanwhile_stays(tmp_path: Path) -> None:
    kernels = library()
    with recording(tmp_path / "run", level="L1") as found:
        found.debugger.register_custom_api(kernels, "fused")
        found.start()
        kernels.fused = F.gelu  # type: ignore[attr-defined]
        found.stop()
    assert kernels.fused is F.gelu


def test_functions_that_are_not_there(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1") as found:
        for name in ("missing", "__name__", 3):
            with pytest.raises(UserError, match="has no function called"):
                found.debugger.register_custom_api(library(), name)  # type: ignore[arg-type]
        with pytest.warns(ConfigWarning, match="not registered"):
            found.debugger.restore_custom_api(library(), "fused")


class Kernels:
    @staticmethod
    def plain(x: Tensor) -> Tensor:
        return x + 1

    @classmethod
    def of_class(cls, x: Tensor) -> tuple[str, Tensor]:
        return cls.__name__, x + 1

    def method(self, x: Tensor) -> Tensor:
        return x + 1


class Derived(Kernels):
    pass


@pytest.mark.parametrize("kind", ["method", "plain", "of_class"])
def test_a_function_that_stands_in_a_class(tmp_path: Path, kind: str) -> None:
    def call() -> list[Any]:
        results = [getattr(Kernels(), kind)(X), getattr(Derived(), kind)(X)]
        return [raw(r) if isinstance(r, Tensor) else (r[0], raw(r[1])) for r in results]

    expected, before = call(), dict(vars(Kernels))
    try:
        with recording(tmp_path / "run", level="L1") as found:
            found.debugger.register_custom_api(Kernels, kind)
            found.start()
            assert call() == expected
            found.stop()
        assert call() == expected and dict(vars(Kernels)) == before
        assert list(found.records()) == [f"Kernels.{kind}.{i}.forward" for i in range(2)]
    finally:
        setattr(Kernels, kind, before[kind])


@pytest.mark.parametrize("holder", [Derived, Derived()])
def test_an_inherited_function_is_not_left_behind(tmp_path: Path, holder: Any) -> None:
    try:
        with recording(tmp_path / "run", level="L1") as found:
            found.debugger.register_custom_api(holder, "method")
            found.start()
            (holder if isinstance(holder, Derived) else Derived()).method(X)
            found.stop()
        assert len(found.records()) == 1
        assert "method" not in vars(holder)
    finally:
        if "method" in vars(holder):
            delattr(holder, "method")


# -- single modules ---------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_a_single_module(tmp_path: Path, level: str) -> None:
    model = net()

    def work() -> None:
        model(X)
        found.debugger.module_dump(model.block, "mine")
        train(model)
        F.silu(X)
        found.debugger.module_dump_end()
        F.relu(X)
        model(X)

    with recording(tmp_path / "run", level=level) as found:
        found.start(model)
        work()
        found.stop()
        found.step()
    names = list(found.records())
    assert {"Module.mine.Block.forward.0", "Module.mine.Block.backward.0"} == {n for n in names if "mine" in n}
    assert "Functional.silu.0.forward" not in names
    assert ("Functional.relu.0.forward" in names) == (level != "L0")
    one = "Functional.gelu.{}.forward" if level == "L1" else "Module.head.Linear.forward.{}"
    assert one.format(1) in names and one.format(2) not in names
    assert not model.block._forward_hooks


def test_two_single_modules_and_a_forgotten_end(tmp_path: Path) -> None:
    model = net()
    with recording(tmp_path / "run", level="L1") as found:
        found.start()
        found.debugger.module_dump(model.block, "first")
        model(X)
        found.debugger.module_dump(model.head, "second")
        model(X)
        found.stop()
        model(X)
        found.step()
        assert not model.block._forward_hooks and not model.head._forward_hooks
        found.debugger.module_dump_end()
    names = [name for name in found.records() if "parameters_grad" not in name]
    assert names == ["Module.first.Block.forward.0", "Module.second.Linear.forward.0"]


def test_gradients_of_a_single_module_are_recorded_or_not_promised(tmp_path: Path) -> None:
    model = net()
    with recording(tmp_path / "run", level="L1") as found:
        found.start()
        found.debugger.module_dump(model.head, "mine")
        train(model)
        found.stop()
    gradients = found.records().get("Module.mine.Linear.parameters_grad", {})
    assert [None] not in gradients.values()


def test_wrong_single_modules(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1") as found:
        for module, name in (("head", "x"), (net(), ""), (net(), None)):
            with pytest.raises(UserError, match="module_dump needs"):
                found.debugger.module_dump(module, name)  # type: ignore[arg-type]


def test_gradients_of_parameters_after_a_single_module(tmp_path: Path) -> None:
    model = net()
    with recording(tmp_path / "run", level="L0") as found:
        found.start(model)
        loss = model(X).sum()
        found.debugger.module_dump(model.head, "mine")
        model(X)
        found.debugger.module_dump_end()
        loss.backward()
        found.stop()
    assert found.records()["Module.head.Linear.parameters_grad"]["weight"] != [None]


def test_a_single_module_without_start(tmp_path: Path) -> None:
    model = net()
    with recording(tmp_path / "run", level="L1") as found:
        for step in range(2):
            if step:
                found.start()
                found.stop()
            found.debugger.module_dump(model.block, "mine")
            model(X)
            found.debugger.module_dump_end()
            F.relu(X)
            found.stop()
            found.step()
    assert list(found.records(0)) == list(found.records(1)) == ["Module.mine.Block.forward.0"]


# -- variables --------------------------------------------------------------------------------------


def debug(path: Path, work: Callable[[PrecisionDebugger], Any], **fields: Any) -> Recording:
    with recording(path, level="debug", **fields) as found:
        work(found.debugger)
        found.step()
    return found


def test_variables(tmp_path: Path) -> None:
    x = torch.ones(2, requires_grad=True)

    def work(debugger: PrecisionDebugger) -> None:
        debugger.save(x, "x")
        debugger.save(x * 2, "x")
        debugger.save(3, "number")
        debugger.save("text", "text")
        debugger.save(True, "truth")
        y = x * 5
        debugger.save(y, "y", save_backward=False)
        y.sum().backward()

    found = debug(tmp_path / "run", work, task="tensor")
    records = found.records(name="debug.json")
    assert list(records) == ["x.0.debug", "x.1.debug", "number.0.debug", "text.0.debug", "truth.0.debug", "y.0.debug",
                             "x_grad.0.debug"]  # fmt: skip
    assert records["number.0.debug"] == {"type": "int", "value": 3}
    assert records["text.0.debug"] == {"type": "str", "value": "text"}
    assert records["x_grad.0.debug"]["Max"] == 5.0
    assert {path.name for path in found.directory().iterdir()} == {
        "conditions.json",
        "debug.json",
        "dump_tensor_data",
    }
    data = saved(found, name="debug.json")
    assert data["x.1.debug.pt"].tolist() == [2.0, 2.0] and data["x_grad.0.debug.pt"].tolist() == [5.0, 5.0]


def test_nested_variables_and_their_gradients(tmp_path: Path) -> None:
    x, y = (torch.full((2,), value, requires_grad=True) for value in (1.0, 2.0))

    def work(debugger: PrecisionDebugger) -> None:
        debugger.save({"a": [x, 1, (y, None)], "b": torch.ones(1)}, "deep")
        (x * 3 + y * 4).sum().backward()

    found = debug(tmp_path / "run", work, task="tensor")
    records = found.records(name="debug.json")
    value, gradient = records["deep.0.debug"], records["deep_grad.0.debug"]
    assert value["a"][0]["data_name"] == "deep.0.debug.a.0.pt"
    assert value["a"][1] == {"type": "int", "value": 1} and value["a"][2][1] is None
    assert gradient["a"][0]["Max"] == 3.0 and gradient["a"][2][0]["Max"] == 4.0
    assert gradient["a"][2][0]["data_name"] == "deep_grad.0.debug.a.2.0.pt"
    assert saved(found, name="debug.json")["deep_grad.0.debug.a.2.0.pt"].tolist() == [4.0, 4.0]


def test_variables_are_counted_in_each_step_and_selected(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="debug", step=[1]) as found:
        for _ in range(3):
            found.debugger.save(X, "x")
            found.debugger.save(X, "x")
            found.debugger.save(X, "y")
            found.step()
    assert [path.name for path in found.path.iterdir()] == ["step1"]
    assert list(found.records(1, "debug.json")) == ["x.0.debug", "x.1.debug", "y.0.debug"]


def test_at_level_debug_nothing_else_is_recorded(tmp_path: Path) -> None:
    model = net()
    with recording(tmp_path / "run", level="debug") as found:
        found.start(model)
        train(model)
        found.debugger.save(X, "x")
        found.stop()
        found.debugger.save(X, "x")
        found.step()
    assert list(found.records(name="debug.json")) == ["x.0.debug", "x.1.debug"]


def test_variables_at_other_levels_are_not_saved(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1") as found:
        found.debugger.save(X, "x")
        found.step()
        for name in ("", None, 3):
            with pytest.raises(UserError, match="needs a name"):
                found.debugger.save(X, name)  # type: ignore[arg-type]
    assert not found.path.exists()


def test_variables_of_an_unsupported_type(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="debug") as found, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found.debugger.save(object(), "x")
        found.debugger.save(X, "y")
        found.step()
    assert [str(item.message) for item in told if "x" in str(item.message)]
    assert list(found.records(name="debug.json")) == ["y.0.debug"]


def test_a_variable_called_like_a_gradient(tmp_path: Path) -> None:
    x = torch.ones(2, requires_grad=True)

    def work(debugger: PrecisionDebugger) -> None:
        debugger.save(x, "x")
        (x * 2).sum().backward()
        debugger.save(x.grad, "x_grad")

    found = debug(tmp_path / "run", work)
    PyTorchReader().open(found.directory() / "debug.json")
