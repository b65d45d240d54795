"""Devices that calls are run on: none, CUDA by a stand-in, an NPU by a stand-in for torch_npu."""

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
from probe_pytorch.precheck.devices import CPU, find_accelerator, select_device
from support import ROOT, TESTS
from support.programs import preloaded
from support.runs.prechecked import live

from probe_core.errors import UserError


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
from probe_pytorch.precheck.devices import select_device

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
