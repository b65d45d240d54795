"""Recording by the older tools' calls changes nothing in the program, and leaves nothing behind."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from probe_legacy.calls.recorder import find_node
from probe_legacy.calls.versions import load_operators
from probe_pytorch import compat
from probe_pytorch.reader import PyTorchReader
from support.programs.preloaded import run
from support.runs.older_calls import hooks, ptdbg, rows_of  # noqa: F401

from probe_core.errors import UserError

LISTED = {"2.3": (121, 414, 442), "4.0": (122, 417, 454), "3.0.rc3": (121, 417, 449)}
"""Numbers of functional, tensor and torch operators of each version; the tools list the attribute real as well."""


class Net(torch.nn.Module):
    """A model with random numbers, calls inside of calls, calls in place, and several results."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 8)
        self.norm = torch.nn.BatchNorm1d(8)
        self.attention = torch.nn.MultiheadAttention(8, 2, dropout=0.3, batch_first=True)
        self.last = torch.nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.dropout(F.relu(self.norm(self.first(x))), 0.2)
        x = x.unsqueeze(0)
        x = x + self.attention(x, x, x)[0]
        top, _ = torch.sort(x.squeeze(0), dim=-1)
        top = top.mul_(1.5)
        return F.log_softmax(self.last(top) ** 2, -1)


def trained(model: Net) -> list[torch.Tensor]:
    """All that two steps of training leave, random state included."""
    torch.manual_seed(5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    left: list[torch.Tensor] = []
    for _ in range(2):
        optimizer.zero_grad()
        loss = F.nll_loss(model(torch.randn(6, 4)), torch.arange(6) % 3)
        loss.backward()
        left += [loss.detach(), *[p.grad.clone() for p in model.parameters() if p.grad is not None]]
        optimizer.step()
    return [*left, *[value.clone() for value in model.state_dict().values()], torch.get_rng_state()]


@pytest.fixture
def models() -> tuple[Net, Net]:
    """Two equal models."""
    torch.manual_seed(3)
    model = Net()
    return model, copy.deepcopy(model)


def check_equal(own: list[torch.Tensor], other: list[torch.Tensor]) -> None:
    assert len(own) == len(other) and all(torch.equal(a, b) for a, b in zip(own, other))


@pytest.mark.parametrize("version", ["2.3", "4.0"])
def test_training_under_ptdbg_is_bit_equal(ptdbg: Any, models: tuple[Net, Net], tmp_path: Path, version: str) -> None:
    plain = trained(models[0])
    ptdbg.set_version(version)
    ptdbg.set_dump_path(tmp_path / ("d.pkl" if version == "2.3" else "d"))
    ptdbg.register_hook(models[1], ptdbg.acc_cmp_dump)
    ptdbg.set_dump_switch("ON", mode="api_stack", filter_switch="OFF")
    recorded = trained(models[1])
    ptdbg.set_dump_switch("OFF")
    check_equal(plain, recorded)
    assert list(tmp_path.rglob("api_stack_d*.pkl"))


def test_training_under_the_overflow_check_is_bit_equal(ptdbg: Any, models: tuple[Net, Net], tmp_path: Path) -> None:
    plain = trained(models[0])
    ptdbg.set_dump_path(tmp_path / "d.pkl")
    ptdbg.register_hook(models[1], ptdbg.overflow_check)
    check_equal(plain, trained(models[1]))


def test_training_under_hooks_is_bit_equal(hooks: Any, models: tuple[Net, Net], tmp_path: Path) -> None:
    plain = trained(models[0])
    hooks.register_acc_cmp_hook(models[1], tmp_path / "d.pkl")
    recorded = trained(models[1])
    assert pickle.loads(pickle.dumps(models[1])).state_dict().keys() == models[1].state_dict().keys()
    hooks._dumping.finish()
    check_equal(plain, recorded)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in models[1].modules())
    assert {row[0].split("_")[0] for row in rows_of(tmp_path / "d.pkl")} >= {"Module", "Functional", "Torch"}


def test_calls_inside_of_calls_are_recorded(ptdbg: Any, models: tuple[Net, Net], tmp_path: Path) -> None:
    ptdbg.set_dump_path(tmp_path / "d.pkl")
    ptdbg.register_hook(models[0], ptdbg.acc_cmp_dump)
    ptdbg.set_dump_switch("ON", dump_mode="forward")
    trained(models[0])
    ptdbg.set_dump_switch("OFF")
    names = [row[0] for row in rows_of(tmp_path / "ptdbg_dump_v2.3/rank0/d.pkl")]
    inside = names.index("Functional_softmax_0_forward_output")
    assert inside < names.index("Functional_multi_head_attention_forward_0_forward_output.0")
    assert names.index("Tensor_softmax_0_forward_output") < inside
    assert "Torch_sort_0_forward_output.0" in names and "Torch_sort_0_forward_output.1" not in names


def test_the_end_leaves_no_capture_in_place(ptdbg: Any, models: tuple[Net, Net], tmp_path: Path) -> None:
    before = compat.list_function_modes()
    ptdbg.set_dump_path(tmp_path / "d.pkl")
    ptdbg.register_hook(models[0], ptdbg.acc_cmp_dump)
    assert len(compat.list_function_modes()) == len(before) + 1
    ptdbg.set_dump_switch("ON")
    models[0](torch.randn(6, 4))
    ptdbg._dumping.finish()
    assert compat.list_function_modes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["ptdbg_dump_v2.3"]


def test_a_second_program_replaces_the_files_of_the_first(ptdbg: Any, tmp_path: Path) -> None:
    for calls in (2, 1):
        ptdbg.set_dump_path(tmp_path / "d.pkl")
        ptdbg.register_hook(torch.nn.ReLU(), ptdbg.acc_cmp_dump)
        ptdbg.set_dump_switch("ON")
        for _ in range(calls):
            torch.relu(torch.ones(2))
        ptdbg.set_dump_switch("OFF")
    directory = tmp_path / "ptdbg_dump_v2.3/rank0"
    assert [row[0] for row in rows_of(directory / "d.pkl")] == [
        "Torch_relu_0_forward_input.0", "Torch_relu_0_forward_output",
    ]  # fmt: skip
    assert len(list((directory / "d").iterdir())) == 2


def test_a_forked_process_writes_nothing(ptdbg: Any, tmp_path: Path) -> None:
    ptdbg.set_dump_path(tmp_path / "d.pkl")
    ptdbg.register_hook(torch.nn.ReLU(), ptdbg.acc_cmp_dump)
    ptdbg.set_dump_switch("ON")
    torch.relu(torch.ones(2))
    child = os.fork()
    if not child:
        try:
            ptdbg._dumping.finish()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert not (tmp_path / "ptdbg_dump_v2.3/rank0/d.pkl").exists()
    ptdbg.set_dump_switch("OFF")
    assert len(rows_of(tmp_path / "ptdbg_dump_v2.3/rank0/d.pkl")) == 2


def test_a_switch_without_register_hook_says_so(ptdbg: Any) -> None:
    with pytest.raises(UserError, match="comes before register_hook"):
        ptdbg.set_dump_switch("ON")


@pytest.mark.parametrize("version", LISTED)
def test_the_operators_of_a_version(version: str) -> None:
    listed = load_operators(version)
    assert tuple(len(set(listed[family])) for family in ("functional", "tensor", "torch")) == LISTED[version]
    assert len(listed["torch_npu"]) == {"2.3": 47, "4.0": 54, "3.0.rc3": 0}[version]


def test_the_node_is_that_of_the_first_result() -> None:
    x = torch.ones(2, requires_grad=True)
    y, z = x * 2, x + 1
    assert find_node((y, z)) is find_node([[y], z]) is find_node({"a": 1, "b": y}) is y.grad_fn
    assert find_node(()) is find_node((None, y)) is find_node(3) is find_node(x) is None


def test_importing_the_calls_imports_no_command_line(tmp_path: Path) -> None:
    code = "import sys, probe_legacy.ptdbg, probe_legacy.hooks; print({'click', 'pluggy'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize("module", ["ptdbg", "hooks"])
def test_a_missing_recorder_is_named_with_its_package(tmp_path: Path, module: str) -> None:
    code = f"import sys; sys.modules['probe_pytorch'] = None; import probe_legacy.{module}"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ImportError: The calls of the older tools record with probe-pytorch, which is not installed: "
        'pip install "probe-legacy[calls]"'
    )


@pytest.mark.parametrize("path", ["", None, "directory", "without_suffix"])
def test_a_path_that_names_no_file_is_refused(ptdbg: Any, tmp_path: Path, path: Any) -> None:
    (tmp_path / "directory").mkdir()
    with pytest.raises(UserError, match="set_dump_path needs"):
        ptdbg.set_dump_path(path and tmp_path / path)


def test_version_4_is_given_a_directory(ptdbg: Any, tmp_path: Path) -> None:
    ptdbg.set_version("4.0")
    (tmp_path / "file").touch()
    for path in ("", tmp_path / "file"):
        with pytest.raises(UserError, match="set_dump_path needs"):
            ptdbg.set_dump_path(path)
    with pytest.raises(UserError, match=r"6\.0 cannot be written"):
        ptdbg.set_version("6.0")


def test_a_path_after_register_hook_is_written_itself(ptdbg: Any, tmp_path: Path) -> None:
    ptdbg.set_dump_path(tmp_path / "first.pkl")
    ptdbg.register_hook(torch.nn.ReLU(), ptdbg.acc_cmp_dump)
    ptdbg.set_dump_switch("ON")
    torch.relu(torch.ones(2))
    ptdbg.set_dump_path(tmp_path / "other/second.pkl")
    torch.relu(torch.ones(2))
    ptdbg.set_dump_switch("OFF")
    assert rows_of(tmp_path / "ptdbg_dump_v2.3/rank0/first.pkl")[0][0] == "Torch_relu_0_forward_input.0"
    assert rows_of(tmp_path / "other/second.pkl")[0][0] == "Torch_relu_1_forward_input.0"


def test_half_precision_is_written_as_float32(ptdbg: Any, tmp_path: Path) -> None:
    ptdbg.set_dump_path(tmp_path / "d.pkl")
    ptdbg.register_hook(torch.nn.ReLU(), ptdbg.acc_cmp_dump)
    ptdbg.set_dump_switch("ON")
    torch.relu(torch.tensor([1.5, -2.0], dtype=torch.bfloat16))
    ptdbg.set_dump_switch("OFF")
    directory = tmp_path / "ptdbg_dump_v2.3/rank0"
    row, _ = rows_of(directory / "d.pkl")
    assert row == ["Torch_relu_0_forward_input.0", 1, [], "torch.bfloat16", [2], [1.5, -2.0, -0.25]]
    array = np.load(directory / "d/Torch_relu_0_forward_input.0.npy")
    assert array.dtype == np.float32 and array.tolist() == [1.5, -2.0]


def test_a_killed_program_leaves_what_probe_recorded(tmp_path: Path) -> None:
    code = """
import os, signal, torch
from probe_legacy.ptdbg import *
set_dump_path("d.pkl")
register_hook(torch.nn.ReLU(), acc_cmp_dump)
set_dump_switch("ON")
for _ in range(1100):
    torch.relu(torch.ones(2))
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = run([sys.executable, "-c", code], cwd=tmp_path)
    assert done.returncode == -9
    (dump,) = tmp_path.glob(".probe_*/step0/rank/dump.json")
    opened = PyTorchReader().open(dump)
    assert len(opened.names()) >= 1000
    assert opened.header.unfinished


def test_a_call_is_recorded_once_however_torch_reaches_it(ptdbg: Any, tmp_path: Path) -> None:
    """Methods of Python call those of C++; dropout reaches torch.dropout by another object.

    As in 2.3, of recurrent layers only the LSTM is recorded, and ``**`` is no call of a method.
    """
    ptdbg.set_dump_path(tmp_path / "d.pkl")
    ptdbg.register_hook(torch.nn.ReLU(), ptdbg.acc_cmp_dump)
    ptdbg.set_dump_switch("ON")
    F.dropout(torch.ones(2, 6).unflatten(-1, (2, 3)))
    torch.dropout(torch.ones(2), 0.5, True)
    torch.ones(2) ** 2
    for layer in (torch.nn.LSTM(2, 2), torch.nn.GRU(2, 2)):
        layer(torch.ones(2, 2))
    ptdbg.set_dump_switch("OFF")
    calls = {row[0].partition("_forward")[0] for row in rows_of(tmp_path / "ptdbg_dump_v2.3/rank0/d.pkl")}
    assert {call for call in calls if call.startswith(("VF", "Functional")) or "dropout" in call} == {
        "VF_lstm_0", "Functional_dropout_0", "Torch_dropout_0",
    }  # fmt: skip
    assert {call for call in calls if "unflatten" in call or "pow" in call} == {"Tensor_unflatten_0"}
