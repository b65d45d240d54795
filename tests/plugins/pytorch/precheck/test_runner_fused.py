"""Recorded calls run on both sides: fused operators, plugins, calls that are not run."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from probe_precheck.calls import RecordedCalls
from probe_precheck.settings import Settings
from probe_precheck.specs import ReferenceSpec
from probe_pytorch.precheck.apis import find_function
from probe_pytorch.precheck.execution import CallSide, run_forward
from probe_pytorch.precheck.runner import RAN_COMPOSED_DEFINITION, PyTorchRunner
from support.cases import every
from support.runs.prechecked import ERROR, PASS, SKIP, Prechecked, call, leaf, live, value
from support.runs.recorded import forward, write_run
from support.runs.run_calls import _seed, bare, put, side  # noqa: F401
from torch.nn import functional as F

from probe_core.flow.opening import open_run
from probe_core.plugins.hookspecs import GROUP, HOOKSPECS, hookimpl
from probe_core.plugins.manager import Manager

# -- fused operators ----------------------------------------------------------------------------


def fused(bare: Prechecked, *, heads: int = 2) -> str:
    q, k, v = (leaf(torch.randn(2, 4, 8)) for _ in range(3))
    return put(
        bare,
        "NPU.npu_fusion_attention.0",
        q,
        k,
        v,
        value(heads),
        value("BSH"),
        scale=value(0.5),
        keep_prob=value(0.7),
    )


def test_a_fused_operator_without_an_npu(bare: Prechecked) -> None:
    """The composed definition runs on the device, the note says so, and only the first output is compared."""
    found = bare[fused(bare)]
    assert found.statuses == (PASS, None), found.text
    assert RAN_COMPOSED_DEFINITION.english in found.text
    assert [detail.name for detail in found.result.details] == ["NPU.npu_fusion_attention.0.forward.output.0"]
    assert found.dtypes() == ["float32"]


def test_its_dropout_is_off_on_both_sides(bare: Prechecked) -> None:
    found = bare[fused(bare)]
    assert found.outcome.kept.arguments.keywords["keep_prob"] == 1.0
    assert "Its dropout is off on both sides." in found.text


@pytest.mark.parametrize(
    "api, arguments, outputs",
    [
        ("npu_rms_norm", [(3, 8), (8,)], 2),
        ("npu_swiglu", [(3, 8)], 1),
        ("fast_gelu", [(3, 8)], 1),
        ("npu_mish", [(3, 8)], 1),
        ("npu_linear", [(3, 8), (5, 8)], 1),
        ("npu_rotary_mul", [(2, 3, 2, 4), (1, 3, 1, 4), (1, 3, 1, 4)], 1),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_other_fused_operators(
    bare: Prechecked, api: str, arguments: list[tuple[int, ...]], outputs: int, dtype: torch.dtype
) -> None:
    tensors = [leaf(torch.randn(shape).to(dtype)) for shape in arguments]
    found = bare[put(bare, f"NPU.{api}.0", *tensors)]
    if "not implemented for 'Half'" in found.text:
        pytest.skip(f"this torch cannot compute {api} in float16 on the CPU")
    assert found.result.forward is not SKIP, found.text
    if dtype is not torch.bfloat16:  # a few elements of bfloat16 near zero are an error by the rules
        assert found.result.forward is not ERROR, found.text
    assert len(found.arrays()) == outputs
    assert found.dtypes()[0] == str(dtype).removeprefix("torch.")


def test_the_gradient_of_a_fused_operator(bare: Prechecked) -> None:
    """Of several outputs, the recorded gradient is the first one's."""
    x, gamma = torch.randn(3, 8, requires_grad=True), torch.randn(8, requires_grad=True)
    gradient = leaf(torch.randn(3, 8))
    bare.calls["NPU.npu_rms_norm.0"] = call(
        "NPU.npu_rms_norm.0", leaf(x), leaf(gamma), backward={"input": [gradient, None]}
    )
    found = bare["NPU.npu_rms_norm.0"]
    assert found.statuses == (PASS, PASS), found.text
    assert [array.shape for array in found.arrays("bench", "backward")] == [(3, 8), (8,)]


def test_a_fused_operator_that_nobody_defines(bare: Prechecked) -> None:
    found = bare[put(bare, "NPU.npu_nothing.0", leaf(torch.ones(2)))]
    assert found.text == "There is not bench function npu_nothing. SKIP."


def test_instead(tmp_path: Path) -> None:
    """A kernel under development runs on the device; the reference is torch's own, exact."""
    runner = PyTorchRunner({"Functional.softmax": lambda x, dim, **_: F.softmax(x * 1.05, dim)})
    x = torch.randn(20, 9)
    calls = live(tmp_path / "run", lambda: (F.softmax(x, 1), F.relu(x)), runner=runner)
    found = calls["Functional.softmax.0"]
    assert found.result.forward is ERROR
    np.testing.assert_allclose(found.arrays("bench")[0], F.softmax(x.double(), 1).numpy(), rtol=1e-12)
    assert calls["Functional.relu.0"].result.forward is PASS


class Halved:
    """A user's reference of ``Torch.exp``, which is wrong by a half."""

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        return torch.exp(*arguments, **keywords) / 2


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed plugin with that reference."""
    spec = ReferenceSpec(name="halved", summary="exp, halved", factory=Halved, api="Torch.exp", framework="pytorch")
    module = types.ModuleType("probe_user_references")
    module.probe_references = hookimpl(lambda: [spec])  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    groups = (metadata.entry_points(group=group) for group in (GROUP, HOOKSPECS))
    points = [point for group in groups for point in group]
    points.append(metadata.EntryPoint("user", module.__name__, GROUP))
    monkeypatch.setattr("probe_core.plugins.manager.metadata.entry_points", lambda: metadata.EntryPoints(points))
    yield


@pytest.mark.usefixtures("plugin")
def test_a_reference_of_a_plugin(tmp_path: Path) -> None:
    """It takes the place of the API in the reference, never on the device."""
    x = torch.randn(30)
    calls = live(tmp_path / "run", lambda: (torch.exp(x), torch.log(x.abs())))
    found = calls["Torch.exp.0"]
    np.testing.assert_allclose(found.arrays("bench")[0], np.exp(x.double().numpy()) / 2, rtol=1e-12)
    np.testing.assert_allclose(found.arrays("device")[0], np.exp(x.numpy()), rtol=1e-6)
    assert found.result.forward is ERROR
    assert calls["Torch.log.0"].result.forward is PASS


# -- calls that are not run ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, says",
    [
        ("Torch.nothing.0", "Torch.nothing is not there in torch"),
        ("Foo.bar.0", "API type Foo is not supported for run ut. SKIP."),
        ("Tensor.to.0", "API Tensor.to.0 in black list or not in white list. SKIP."),
        ("Torch.empty_like.0", "in black list or not in white list"),
    ],
)
def test_what_is_not_run(bare: Prechecked, name: str, says: str) -> None:
    found = bare[put(bare, name, leaf(torch.ones(2)))]
    assert found.result.forward is SKIP
    assert says in found.text


@pytest.mark.parametrize(
    "name",
    ["Torch.os.mkdir.0", "Torch.serialization.os.mkdir.0", "Functional.torch.os.mkdir.0", "Torch.save.0"],
)
def test_a_record_runs_no_code_of_its_own(bare: Prechecked, tmp_path: Path, name: str) -> None:
    """A record is data: it can name operators, and nothing else that is callable."""
    path = tmp_path / "made"
    arguments = [leaf(torch.ones(2)), value(str(path))] if "save" in name else [value(str(path))]
    found = bare[put(bare, name, *arguments)]
    assert found.result.forward is SKIP
    assert not path.exists()


@pytest.mark.parametrize("scope", ["Torch", "VF", "Aten"])
def test_a_record_writes_no_file(bare: Prechecked, tmp_path: Path, scope: str) -> None:
    """``from_file`` is an operator, and makes the file that it maps."""
    path = tmp_path / "made"
    bare[put(bare, f"{scope}.from_file.0", value(str(path)), value(True), value(10))]
    assert not path.exists()


@pytest.mark.parametrize(
    "name, argument, state",
    [
        (
            "Torch.set_default_dtype.0",
            {"type": "torch.dtype", "value": "torch.float64"},
            torch.get_default_dtype,
        ),
        ("Torch.set_grad_enabled.0", value(False), torch.is_grad_enabled),
        ("Torch.use_deterministic_algorithms.0", value(True), torch.are_deterministic_algorithms_enabled),
    ],
)
def test_a_record_changes_no_setting(bare: Prechecked, name: str, argument: Any, state: Callable[[], object]) -> None:
    """The calls after it must not run otherwise."""
    before, settings = state(), (torch.get_default_dtype(), torch.is_grad_enabled())
    try:
        bare[put(bare, name, argument)]
        assert state() == before
    finally:
        torch.set_default_dtype(settings[0])
        torch.set_grad_enabled(settings[1])
        torch.use_deterministic_algorithms(False)


@every(
    "name", ["Torch.zeros", "Torch.randn", "Torch.arange", "Torch.einsum", "Torch.linalg.inv", "Torch.fft.rfft",
             "Torch.special.erf", "Tensor.__getitem__", "Tensor.view", "Functional.linear", "VF.lstm", "Aten.add"]
)  # fmt: skip
def test_operators_can_be_named(name: str) -> None:
    """Those of records of any recorder, ours or not."""
    scope, _, api = name.partition(".")
    assert callable(find_function(scope, api))


def test_a_gradient_of_another_shape_inside_of_a_list(bare: Prechecked) -> None:
    name = "Torch.exp.0"
    x = leaf(torch.randn(3, 4, requires_grad=True))
    bare.calls[name] = call(name, x, backward={"input": [[leaf(torch.randn(4, 3))]]})
    assert bare[name].statuses == (PASS, PASS), bare[name].text


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2])
def test_dtypes_that_numpy_lacks_come_as_float32(bare: Prechecked, dtype: torch.dtype) -> None:
    """With their own name."""
    found = bare[put(bare, "Torch.clone.0", leaf(torch.tensor([-1.5, 0.25, 3.0]).to(dtype)))]
    assert found.arrays()[0].dtype == np.float32
    assert found.arrays()[0][[0, -1]].tolist() == [-1.5, 3.0]
    assert found.dtypes() == [str(dtype).removeprefix("torch.")]


def test_sparse_and_complex(tmp_path: Path) -> None:
    def program() -> None:
        torch.add(torch.eye(3).to_sparse(), torch.eye(3).to_sparse())
        torch.fft.rfft(torch.randn(8))
        torch.abs(torch.fft.rfft(torch.randn(8)))

    real = live(tmp_path / "tensor", program)
    assert "layout torch.sparse_coo cannot be rebuilt" in real["Torch.add.0"].text
    assert real["Torch.fft.rfft.0"].text == "torch.complex64: not supported"
    assert real["Torch.abs.0"].result.forward is PASS
    made_up = live(tmp_path / "statistics", program, "statistics")
    assert "complex64 is not supported for random inputs" in made_up["Torch.abs.0"].text


def test_the_scopes_that_are_run(bare: Prechecked) -> None:
    x = leaf(torch.randn(3, 4))
    for name in ("Functional.relu.0", "Tensor.relu.0", "Torch.relu.0", "Aten.relu.0", "Torch.linalg.inv.0"):
        first = leaf(torch.eye(3)) if "inv" in name else x
        found = bare[put(bare, name, first)]
        assert found.result.forward in (PASS, SKIP if "inv" in name else PASS), (name, found.text)


@pytest.mark.parametrize(
    "device",
    [
        {"type": "torch.device", "value": "npu:0"},
        value("npu:0"),
        value(0),
    ],
    ids=["device", "text", "number"],
)
def test_the_device_of_the_run_is_replaced(bare: Prechecked, device: Any) -> None:
    """Guide 4.1: a run of an NPU is checked on any machine."""
    found = bare[put(bare, "Torch.zeros.0", [value(3)], device=device)]
    assert found.result.forward is PASS, found.text


def test_an_output_larger_than_the_memory_is_not_made(bare: Prechecked) -> None:
    """Memory that is filled has no value before, and takes the shape of the recorded output."""
    name = "Tensor.fill_.0"
    output = {**leaf(torch.ones(2)), "shape": [1 << 40]}
    found = call(name, None, value(1.0))
    bare.calls[name] = replace(found, forward={**found.forward, "output": [output]})
    assert "needs more memory than is available" in bare[name].text


def test_a_list_as_an_index(bare: Prechecked) -> None:
    """Records write tuples as lists: the recorded output's shape tells which it was."""
    x, output = leaf(torch.randn(4, 3)), leaf(torch.randn(2, 3))
    name = "Tensor.__getitem__.0"
    bare.calls[name] = type(call(name))(name, 0, forward(x, [value(0), value(2)], output=[output]))
    assert bare[name].arrays()[0].shape == (2, 3)


def test_a_tuple_as_an_index(bare: Prechecked) -> None:
    found = bare[
        put(
            bare,
            "Tensor.__getitem__.0",
            leaf(torch.randn(4, 3)),
            [value(0), {"type": "ellipsis", "value": "..."}],
        )
    ]
    assert found.arrays()[0].shape == (3,)
    x, index = leaf(torch.randn(4, 3)), [value(1), {"type": "slice", "value": [0, 2, None]}]
    assert bare[put(bare, "Tensor.__getitem__.1", x, index)].arrays()[0].shape == (2,)
    assert bare[put(bare, "Tensor.__getitem__.2", x, [None, value(1)])].arrays()[0].shape == (1, 3)


@pytest.mark.parametrize("kind", ["cpu", "cuda", "xpu"])
def test_autocast_is_entered_for_the_device_in_use(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    entered: list[Any] = []

    @contextlib.contextmanager
    def autocast(*arguments: Any) -> Iterator[None]:
        entered.append(arguments)
        yield

    monkeypatch.setattr(torch, "autocast", autocast)
    side = CallSide([torch.ones(2)], {})
    run_forward(torch.exp, side, "exp", torch.bfloat16, torch.device(kind), 1)
    run_forward(torch.exp, side, "exp", None, torch.device(kind), 1)
    assert entered == [(kind, torch.bfloat16)]


def test_calls_that_are_the_same_work(tmp_path: Path) -> None:
    """Values that were drawn, and the names of their files, do not count; all else does."""
    x, wide = leaf(torch.randn(3)), leaf(torch.randn(4))
    arguments = {
        "add.0": forward(x, x, alpha=value(1)),
        "add.1": forward({**x, "Max": 9.0, "data_name": "a.pt"}, {**x, "Mean": 1.0}, alpha=value(1)),
        "add.2": forward(x, wide, alpha=value(1)),
        "add.3": forward(x, x, alpha=value(2)),
        "add.4": forward(x, {**x, "requires_grad": True}, alpha=value(1)),
        "add.5": forward(x, {**x, "dtype": "torch.float16"}, alpha=value(1)),
        "mul.0": forward(x, x, alpha=value(1)),
        "add.6": forward(x, wide, alpha=value(1)),
    }
    run = open_run(Manager(), write_run(tmp_path, {f"Torch.{k}.forward": v for k, v in arguments.items()}))
    calls = RecordedCalls(run)
    assert [calls.names[i].removeprefix("Torch.") for i in calls.iterate_distinct()] == [
        "add.0", "add.2", "add.3", "add.4", "add.5", "mul.0",
    ]  # fmt: skip
    assert calls.get_call(0, Settings()).api == "add"
    run.close()
