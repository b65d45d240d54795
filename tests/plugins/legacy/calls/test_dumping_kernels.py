"""Mode acl asks the device for the kernels of one call, tried with a stand-in for torch_npu; no NPU was at hand."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support.runs.older_calls import ptdbg, rows_of  # noqa: F401

from probe_core.errors import UserError

ROUND = ["synchronize", "init_dump", "set_dump", "synchronize", "finalize_dump"]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests to the device, a stand-in."""
    told: list[str] = []
    module = types.ModuleType("torch_npu")
    module.npu = types.SimpleNamespace(  # type: ignore[attr-defined]
        synchronize=lambda: told.append("synchronize"),
        init_dump=lambda: told.append("init_dump"),
        set_dump=lambda path: told.append("set_dump"),
        finalize_dump=lambda: told.append("finalize_dump"),
        utils=types.SimpleNamespace(),
    )
    monkeypatch.setitem(sys.modules, "torch_npu", module)
    return told


@pytest.fixture
def start(ptdbg: Any, tmp_path: Path) -> Any:
    """A function that turns the switch on for the kernels of a call."""

    def start(name: str, model: torch.nn.Module) -> None:
        (tmp_path / "dump.json").write_text(json.dumps({"dump": {"dump_path": str(tmp_path)}}))
        ptdbg.set_dump_path(tmp_path / "d.pkl")
        ptdbg.register_hook(model, ptdbg.acc_cmp_dump, dump_mode="acl", dump_config=str(tmp_path / "dump.json"))
        ptdbg.set_dump_switch("ON", mode="acl", scope=[name])

    return start


def test_the_forward_of_one_call(ptdbg: Any, told: list[str], start: Any, tmp_path: Path) -> None:
    start("Torch_relu_1_forward", torch.nn.ReLU())
    for _ in range(3):
        torch.relu(torch.ones(2))
    ptdbg.set_dump_switch("OFF")
    assert told == ROUND
    (row,) = rows_of(tmp_path / "ptdbg_dump_v2.3/rank0/d.pkl")
    assert row[0] == "Torch_relu_1_forward_stack_info" and row[1]
    assert not (tmp_path / "ptdbg_dump_v2.3/rank0/d").exists()


def test_the_backward_of_a_call_with_a_given_gradient(ptdbg: Any, told: list[str], start: Any, tmp_path: Path) -> None:
    """It runs on copies: the program's gradients and random numbers are as without."""
    gradient = tmp_path / "Functional_linear_0_backward_input.0.npy"
    np.save(gradient, np.full((2, 3), 7, np.float32))
    model = torch.nn.Linear(4, 3)
    x = torch.randn(2, 4, requires_grad=True)
    seen: list[torch.Tensor] = []
    model.weight.register_hook(seen.append)
    start("Functional_linear_0_backward", model)
    ptdbg.set_backward_input([gradient])
    before = torch.get_rng_state()
    y = F.dropout(model(x), 0.5)
    expected = torch.get_rng_state()
    assert told == ROUND and not seen and model.weight.grad is None
    y.sum().backward()
    assert told == ROUND and len(seen) == 1
    ptdbg.set_dump_switch("OFF")
    torch.set_rng_state(before)
    F.dropout(torch.ones(2, 3), 0.5)
    assert torch.equal(torch.get_rng_state(), expected)


def test_without_a_gradient_the_backward_of_the_program_is_dumped(ptdbg: Any, told: list[str], start: Any) -> None:
    start("Torch_exp_0_backward", torch.nn.ReLU())
    y = torch.exp(torch.ones(2, requires_grad=True)).sum()
    assert told == []
    y.backward()
    assert told == ROUND
    ptdbg.set_dump_switch("OFF")


def test_gradients_and_names_come_in_equal_numbers(ptdbg: Any, told: list[str], start: Any) -> None:
    start("Torch_exp_0_backward", torch.nn.ReLU())
    with pytest.raises(UserError, match="2 files for 1 names in scope"):
        ptdbg.set_backward_input(["a.npy", "b.npy"])
    with pytest.raises(UserError, match=r"missing\.npy cannot be read"):
        ptdbg.set_backward_input(["missing.npy"])


def test_an_overflowing_forward_is_run_again(ptdbg: Any, told: list[str], tmp_path: Path) -> None:
    (tmp_path / "dump.json").write_text("{}")
    ptdbg.set_dump_path(tmp_path / "d.pkl")
    ptdbg.register_hook(torch.nn.ReLU(), ptdbg.overflow_check, dump_mode="acl", dump_config=str(tmp_path / "dump.json"))
    with pytest.raises(ValueError, match="overflow 1 times"):
        torch.log(torch.zeros(2))
    assert told == ROUND


def test_without_torch_npu_the_import_is_asked_for(start: Any) -> None:
    with pytest.raises(UserError, match="needs torch_npu"):
        start("Torch_relu_1_forward", torch.nn.ReLU())
