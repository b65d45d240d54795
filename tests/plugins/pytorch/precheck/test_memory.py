"""Memory that calls need, estimated before they run."""

from __future__ import annotations

import json
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_precheck.api import Call, Unbuildable
from probe_pytorch.precheck.memory import (
    CPU,
    MemoryEstimator,
    MemoryNeed,
    estimate_memory,
    find_accelerator,
    select_device,
)
from probe_pytorch.precheck.raising import DtypeConversion, find_conversion
from probe_pytorch.precheck.rebuild import Arguments
from support import ROOT, TESTS
from support.programs import preloaded
from support.runs.prechecked import PASS, SKIP, Prechecked, live
from support.runs.run_calls import bare, put  # noqa: F401

from probe_core.errors import UserError

HUGE = 10**13
"""Number of elements that no machine has memory for."""


def need_of(function: Callable[..., Any], *positional: Any, backward: bool = False, **keywords: Any) -> MemoryNeed:
    """Return the memory that a call needs, with the reference in float64."""
    arguments = Arguments(list(positional), keywords)
    raising = find_conversion(function.__name__, arguments, None)
    return estimate_memory(function, arguments, function.__name__, raising, with_gradients=backward)


def drawn(*shape: int, dtype: str = "torch.float32") -> dict[str, Any]:
    """Return the description of a tensor whose values are made up."""
    return {"type": "torch.Tensor", "dtype": dtype, "shape": list(shape), "Max": 1.0, "Min": -1.0,
            "Mean": 0.0, "Norm": 1.0, "requires_grad": False}  # fmt: skip


def number(value: float) -> dict[str, Any]:
    return {"type": type(value).__name__, "value": value}


BEYOND = {
    "Torch.full": ([[number(HUGE)], number(1.0)], {}),
    "Aten.full": ([[number(HUGE)], number(1.0)], {}),
    "Torch.cdist": ([drawn(10**7, 1), drawn(10**7, 1)], {}),
    "Torch.as_strided": ([drawn(4), [number(HUGE)], [number(0)]], {}),
    "Tensor.expand": ([drawn(1), number(HUGE)], {}),
    "Tensor.resize_": ([drawn(1), number(HUGE)], {}),
    "Tensor.repeat": ([drawn(1), number(HUGE)], {}),
    "Functional.pad": ([drawn(1), [number(HUGE), number(0)]], {}),
    "Functional.interpolate": ([drawn(1, 1, 4)], {"size": number(HUGE)}),
}


@pytest.mark.parametrize("name", BEYOND)
def test_run_refuses_results_that_exceed_the_memory(bare: Prechecked, name: str) -> None:
    positional, keywords = BEYOND[name]
    fields = {"input_args": positional, "input_kwargs": keywords, "output": [drawn(1)]}
    bare.calls[f"{name}.0"] = Call(f"{name}.0", 0, fields)
    found = bare[f"{name}.0"]
    assert found.statuses == (SKIP, None)
    assert "need" in found.text and "of memory, and one call may use" in found.text


def test_run_counts_the_result_written_to_an_out_argument(bare: Prechecked) -> None:
    """The result of broadcasting, 2 MB and 4 MB in float64, is written to an empty ``out``, which is resized."""
    x, y = torch.ones(500, 1), torch.ones(1, 1000)
    name = put(bare, "Torch.add.0", x, y, out=torch.empty(0))
    bare.runner._max_call_bytes = 5_000_000
    assert "need 6.0 MB of memory, and one call may use 5.0 MB" in bare[name].text
    bare.runner._max_call_bytes = 7_000_000
    assert bare[name].statuses == (PASS, None)


def test_run_refuses_a_backward_that_exceeds_the_memory(tmp_path: Path) -> None:
    """The gradient of a sum is as large as its input, its result is not."""

    def program() -> None:
        torch.ones(100_000, requires_grad=True).sum().backward()

    calls = live(tmp_path / "run", program)
    calls.runner._max_call_bytes = 4_000_000
    assert "of memory, and one call may use 4.0 MB" in calls["Tensor.sum.0"].text
    calls.runner._max_call_bytes = 8_000_000
    assert calls["Tensor.sum.0"].statuses == (PASS, PASS)


def test_replay_refuses_results_that_exceed_the_memory(tmp_path: Path) -> None:
    calls = live(tmp_path / "run", lambda: torch.cdist(torch.ones(100, 2), torch.ones(100, 2)))
    calls.runner._max_call_bytes = 50_000
    with pytest.raises(Unbuildable, match=r"and one call may use 50,000 bytes"):
        calls.runner.replay(calls.calls["Torch.cdist.0"])
    calls.runner._max_call_bytes = 500_000
    assert calls.runner.replay(calls.calls["Torch.cdist.0"]).forward


def test_run_sent_refuses_results_that_exceed_the_memory(bare: Prechecked) -> None:
    fields = {"input_args": [[number(HUGE)], number(1.0)], "input_kwargs": {}, "output": [drawn(HUGE)]}
    with pytest.raises(Unbuildable, match="of memory, and one call may use"):
        bare.runner.run_sent(Call("Torch.full.0", 0, fields), lambda value: pytest.fail("nothing is read"))


def test_memory_need_counts_both_sides_with_copies() -> None:
    """An input of 4,000 bytes: its copies are 4,000 and 8,000, and so are the results."""
    need = need_of(torch.exp, torch.ones(1000))
    assert need == MemoryNeed(inputs=4000, raised_inputs=8000, reference=16_000)
    assert (need.device, need.replayed, need.compared) == (8000, 20_000, 28_000)
    assert need_of(torch.full, [1000], 1.0).compared == 8000
    assert need_of(torch.empty_strided, [2], [999]).compared == 8016
    assert need_of(torch.as_strided, torch.ones(4), [1000], [0]).reference == 8032


def test_memory_need_counts_memory_once_that_results_share() -> None:
    assert need_of(torch.split, torch.ones(1000), 10).reference == 8000
    assert need_of(torch.relu_, torch.ones(1000)).reference == 8000


def test_memory_need_counts_intermediate_results_while_they_are_held() -> None:
    def chain(x: torch.Tensor) -> torch.Tensor:
        for _ in range(50):
            x = x + 1
        return x.sum()

    assert 24_000 <= need_of(chain, torch.ones(1000)).reference <= 25_000


def test_memory_need_counts_the_operators_before_one_without_meta_kernel() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return (x + 1).nonzero()

    assert need_of(function, torch.ones(1000)).reference == 16_000


def test_memory_need_computes_nothing() -> None:
    """Tensors of the call keep their values, and the random state of a generator is not used."""
    x = torch.ones(3, requires_grad=True)
    need_of(torch.relu_, x.detach())
    need_of(torch.exp, x, backward=True)
    assert x.grad is None and x.tolist() == [1, 1, 1]


def test_memory_need_takes_the_dtypes_of_the_reference() -> None:
    x = torch.ones(1000, dtype=torch.float16)
    arguments = Arguments([x], {})
    for wide, size in ((torch.float32, 4000), (torch.float64, 8000)):
        raising = DtypeConversion({torch.float16: wide})
        need = estimate_memory(torch.exp, arguments, "exp", raising, with_gradients=False)
        assert (need.reference, need.device) == (2 * size, 4000)


def test_estimator_estimates_calls_once_that_differ_in_values_only() -> None:
    estimator = MemoryEstimator()
    names: list[str] = []

    def need(x: torch.Tensor, count: int, *, backward: bool = False) -> int:
        arguments = Arguments([x, count], {})
        raising = find_conversion("repeat", arguments, None)
        return estimator.need("Tensor.repeat", repeat, arguments, raising, with_gradients=backward).reference

    def repeat(x: torch.Tensor, count: int) -> torch.Tensor:
        names.append("repeat")
        return x.repeat(count)

    assert need(torch.ones(10), 3) == need(torch.zeros(10), 3) == 320 and len(names) == 1
    for changed in ((torch.ones(20), 3), (torch.ones(10), 4), (torch.ones(10).half(), 3)):
        assert need(*changed) != 320 or changed[0].dtype is torch.float16
    assert len(names) == 4
    assert need(torch.ones(10, requires_grad=True), 3, backward=True) > 320 and len(names) == 5


def test_failed_allocation_is_a_sentence(bare: Prechecked, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> Any:
        return torch.empty(HUGE)

    name = put(bare, "Torch.exp.0", torch.ones(2))
    monkeypatch.setattr(bare.runner, "_find_functions", lambda *_: (failing, torch.exp, ()))
    assert bare[name].text == "There is not enough memory to run it. SKIP."


def test_failed_allocation_of_a_backward_leaves_the_forward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = live(tmp_path / "run", lambda: torch.ones(3, requires_grad=True).exp().sum().backward())
    monkeypatch.setattr("probe_pytorch.precheck.execution.run_backward", lambda *_: torch.empty(HUGE))
    found = calls["Tensor.exp.0"]
    assert found.statuses == (PASS, SKIP)
    assert "There is not enough memory to run it. SKIP." in found.text


def accelerated(count: int, told: list[Any], fails: str = "") -> types.SimpleNamespace:
    """A module such as torch.cuda, with so many devices."""

    def set_device(device: torch.device) -> None:
        told.append(device)
        if fails:
            raise RuntimeError(fails)

    return types.SimpleNamespace(is_available=lambda: count > 0, device_count=lambda: count, set_device=set_device)


@pytest.fixture
def none(monkeypatch: pytest.MonkeyPatch) -> None:
    """No accelerator, whatever this machine has."""
    monkeypatch.setitem(sys.modules, "torch_npu", None)
    monkeypatch.setattr(torch, "cuda", accelerated(0, []))


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Two CUDA devices; which were set."""
    told: list[Any] = []
    monkeypatch.setitem(sys.modules, "torch_npu", None)
    monkeypatch.setattr(torch, "cuda", accelerated(2, told))
    return told


# none


@pytest.mark.usefixtures("none")
@pytest.mark.parametrize("text", ["", CPU])
def test_without_an_accelerator_it_is_the_cpu(text: str) -> None:
    """Defect 24 of msprobe: nothing ran without one."""
    assert find_accelerator() == (CPU, None)
    assert select_device(text, False) == torch.device("cpu")


@pytest.mark.usefixtures("none")
@pytest.mark.parametrize("text", ["0", "3"])
def test_an_index_without_an_accelerator(text: str) -> None:
    with pytest.raises(UserError, match=f"no accelerator here for device {text}") as raised:
        select_device(text, False)
    assert "-d cpu" in raised.value.fix


@pytest.mark.usefixtures("none")
def test_the_command_says_so(probe: Any, tmp_path: Path) -> None:
    dump = tmp_path / "run" / "step0" / "rank" / "dump.json"
    live(tmp_path / "run", lambda: torch.exp(torch.ones(3)))
    assert probe("run_ut", "-api_info", dump, "-o", tmp_path / "out", "-d", "0", "--lang", "en") != 0
    assert "There is no accelerator here for device 0" in probe.err
    assert "Traceback" not in probe.err
    assert not list((tmp_path / "out").glob("*.csv")), "no result of nothing"


# CUDA


@pytest.mark.parametrize("text, index", [("", 0), ("0", 0), ("1", 1)])
def test_cuda(cuda: list[Any], text: str, index: int) -> None:
    device = torch.device("cuda", index)
    assert select_device(text, True) == device
    assert cuda == [device]


def test_cuda_can_be_left_alone(cuda: list[Any]) -> None:
    assert select_device(CPU, False) == torch.device("cpu")
    assert cuda == []


@pytest.mark.parametrize("text", ["2", "99"])
def test_an_index_out_of_range(cuda: list[Any], text: str) -> None:
    """It names the indices that there are."""
    with pytest.raises(UserError, match=f"no device {text}") as raised:
        select_device(text, False)
    assert raised.value.choices == ("0", "1")
    assert cuda == []


@pytest.mark.parametrize(
    "fails, says",
    [("driver too old\nlong trace", "driver too old"), ("CUDA error: out of memory", "out of memory")],
)
def test_a_device_that_fails(monkeypatch: pytest.MonkeyPatch, fails: str, says: str) -> None:
    """One line of what the driver says."""
    monkeypatch.setitem(sys.modules, "torch_npu", None)
    monkeypatch.setattr(torch, "cuda", accelerated(1, [], fails))
    with pytest.raises(UserError, match=says) as raised:
        select_device("0", False)
    assert "\n" not in raised.value.what


# an NPU


def test_torch_npu_without_a_device_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_npu", types.ModuleType("torch_npu"))
    monkeypatch.setattr(torch, "npu", accelerated(0, []), raising=False)
    monkeypatch.setattr(torch, "cuda", accelerated(0, []))
    assert find_accelerator() == (CPU, None)


def test_an_npu_comes_before_cuda(monkeypatch: pytest.MonkeyPatch, cuda: list[Any]) -> None:
    monkeypatch.setitem(sys.modules, "torch_npu", types.ModuleType("torch_npu"))
    npu = accelerated(2, [])
    monkeypatch.setattr(torch, "npu", npu, raising=False)
    assert find_accelerator() == ("npu", npu)


NPU = """
import json, sys, types
from pathlib import Path
import torch
from support.standins.standin_npu import install
install()
told = {"devices": [], "modes": []}
torch.npu.device_count = lambda: 2
torch.npu.set_device = lambda device: told["devices"].append(str(device))
torch.npu.set_compile_mode = lambda jit_compile: told["modes"].append(jit_compile)

def npu_rms_norm(x, gamma, epsilon=1e-6):
    assert x.device.type == gamma.device.type == "npu"
    rstd = (x.square().mean(-1, keepdim=True) + epsilon).rsqrt()
    return x * rstd * gamma, rstd

sys.modules["torch_npu"] = module = types.ModuleType("torch_npu")
module.npu_rms_norm = npu_rms_norm

from support.runs.prechecked import Prechecked, call, leaf, value
from probe_core.errors import UserError
from probe_pytorch.precheck.memory import select_device

try:
    select_device("2", False)
except UserError as error:
    told["problem"] = error.what
dump, jit = Path(sys.argv[1]), sys.argv[2] == "jit"
calls = Prechecked(dump, device=sys.argv[3], jit_compile=jit)
calls.calls["NPU.npu_rms_norm.0"] = call("NPU.npu_rms_norm.0", leaf(torch.randn(3, 8)), leaf(torch.randn(8)))
for name in calls.calls:
    found = calls[name]
    kept = found.outcome.kept
    told[name] = [
        found.result.forward, found.result.backward, found.text,
        kept and [str(item.device) for side in (kept.device, kept.bench) for item in side.positional[:1]],
    ]
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def on_an_npu(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    """Runs recorded calls on the stand-in, in a process of its own, which it changes for good."""
    if not hasattr(torch._C, "_acc") or not hasattr(torch._C._acc, "create_empty_tensor"):
        pytest.skip("this torch cannot have a device written in Python")
    torch.manual_seed(1)
    x, w = torch.randn(4, 6, requires_grad=True), torch.randn(3, 6, requires_grad=True)

    def program() -> None:
        y = torch.nn.functional.linear(x * 1, w)
        (torch.softmax(y, -1) * torch.randn(4, 3)).sum().backward()

    path = tmp_path_factory.mktemp("npu") / "run"
    live(path, program)

    paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]

    def run(*arguments: str) -> dict[str, Any]:
        done = preloaded.run(
            [sys.executable, "-c", NPU, str(path / "step0" / "rank" / "dump.json"), *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    return run


@pytest.mark.parametrize("mode, index", [("jit", "0"), pytest.param("no", "1", marks=pytest.mark.slow), ("no", "")])
def test_calls_are_run_on_an_npu(on_an_npu: Callable[..., dict[str, Any]], mode: str, index: str) -> None:
    """The device is chosen, told how to compile, and the reference stays on the CPU."""
    told = on_an_npu(mode, index)
    device = f"npu:{index or 0}"
    assert told.pop("devices") == [device]
    assert told.pop("modes") == [mode == "jit"]
    assert told.pop("problem") == "There is no device 2 on this machine."
    assert {"Functional.linear.0", "Torch.softmax.0", "NPU.npu_rms_norm.0"} <= set(told)
    for name, (forward, backward, text, devices) in told.items():
        assert forward == "pass", (name, text)
        assert backward in (None, "pass"), (name, text)
        assert devices == ["npu:0", "cpu"], "the stand-in calls all its devices 0"
    assert told["NPU.npu_rms_norm.0"][2] == "", "the operator itself was run, not its definition"
