"""Features that need torch_npu, tried with a stand-in for its documented interface; no NPU was at hand."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from probe_pytorch import compat
from support.runs.recording import recording

from probe_core.errors import UserError


@pytest.fixture
def npu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module ``torch_npu`` that notes what is asked of the device."""
    module = types.ModuleType("torch_npu")
    told: list[Any] = []
    module.told = told  # type: ignore[attr-defined]
    module.npu = types.SimpleNamespace(  # type: ignore[attr-defined]
        synchronize=lambda: told.append("synchronize"),
        init_dump=lambda: told.append("init_dump"),
        set_dump=lambda path: told.append(("set_dump", json.loads(Path(path).read_text()))),
        finalize_dump=lambda: told.append("finalize_dump"),
        utils=types.SimpleNamespace(),
    )

    def npu_fusion_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, heads: int) -> Any:
        told.append("attention")
        return (torch.softmax(query @ key.transpose(-1, -2), -1) @ value, heads)

    module.npu_fusion_attention = npu_fusion_attention  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch_npu", module)
    yield module


def test_functions_of_torch_npu_are_recorded_and_put_back(npu: Any, tmp_path: Path) -> None:
    before = npu.npu_fusion_attention
    x = torch.randn(2, 4, 8, requires_grad=True)
    with recording(tmp_path / "run", level="L1") as found:
        found.start()
        npu.npu_fusion_attention(x, x, x, heads=2)[0].sum().backward()
        found.stop()
    records = found.records()
    assert list(records) == [
        "NPU.npu_fusion_attention.0.forward", "Tensor.sum.0.forward", "Tensor.sum.0.backward",
        "NPU.npu_fusion_attention.0.backward",
    ]  # fmt: skip
    assert records["NPU.npu_fusion_attention.0.forward"]["input_kwargs"]["heads"]["value"] == 2
    (gradient, *_) = records["NPU.npu_fusion_attention.0.backward"]["output"]
    assert gradient["Norm"] == pytest.approx(float(x.grad.double().norm()), rel=1e-6)  # type: ignore[union-attr]
    assert npu.npu_fusion_attention is before


@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_the_kernels_of_one_api_are_dumped(npu: Any, tmp_path: Path, phase: str) -> None:
    name = f"Functional.relu.1.{phase}"
    x = torch.randn(3, requires_grad=True)
    with recording(tmp_path / "run", level="L2", task="tensor", tensor={"list": [name]}) as found:
        found.start()
        F.relu(x)
        y = F.relu(x)
        during = len(npu.told)
        y.sum().backward()
        found.stop()
    assert [t if isinstance(t, str) else t[0] for t in npu.told] == [
        "synchronize", "init_dump", "set_dump", "synchronize", "finalize_dump",
    ]  # fmt: skip
    assert during == (5 if phase == "forward" else 0)
    config = npu.told[2][1]["dump"]
    assert config["dump_mode"] == "all" and config["dump_op_switch"] == "on"
    assert Path(config["dump_path"]).is_dir()
    assert list(found.records()) == [name]


def test_a_dump_of_kernels_is_of_one_api(npu: Any, tmp_path: Path) -> None:
    with (
        recording(tmp_path / "run", level="L2", task="tensor") as found,
        pytest.raises(UserError, match="one"),
    ):
        found.start()


def test_a_start_that_failed_leaves_nothing_behind(npu: Any, tmp_path: Path) -> None:
    before = npu.npu_fusion_attention
    depth = len(compat.list_function_modes())
    with (
        recording(tmp_path / "run", level="L2", task="tensor") as found,
        pytest.raises(UserError, match="one"),
    ):
        found.start()
    assert compat._forcing == 0
    assert len(compat.list_function_modes()) == depth
    assert npu.npu_fusion_attention is before


def test_kernels_need_torch_npu(tmp_path: Path) -> None:
    (tmp_path / "acl.json").write_text("{}")
    section = {"list": ["Functional.relu.0.forward"]}
    fields = {"level": "L2", "task": "tensor", "acl_config": str(tmp_path / "acl.json"), "tensor": section}
    with recording(tmp_path / "run", **fields) as found, pytest.raises(UserError, match="torch_npu"):
        found.start()


@pytest.mark.parametrize("saturates", [True, False])
def test_overflow_by_the_flags_of_a_device_that_saturates(npu: Any, tmp_path: Path, saturates: bool) -> None:
    raised = iter([False, True, False, False])
    cleared: list[int] = []
    npu.npu.utils.is_support_inf_nan = lambda: not saturates
    npu.npu.utils.get_npu_overflow_flag = lambda: next(raised)
    npu.npu.utils.clear_npu_overflow_flag = lambda: cleared.append(1)
    with recording(tmp_path / "run", level="L1", task="overflow_check", overflow_check={"overflow_nums": -1}) as found:
        found.start()
        torch.exp(torch.ones(2))
        torch.exp(torch.ones(2))  # the device says that this one overflowed
        torch.exp(torch.full((2,), 1e5))  # this one gives infinities
        found.stop()
    assert list(found.records()) == (["Torch.exp.1.forward"] if saturates else ["Torch.exp.2.forward"])
    assert len(cleared) == saturates


def test_the_kernels_of_a_backward_are_dumped_with_a_given_gradient(npu: Any, tmp_path: Path) -> None:
    """The call runs on copies of its inputs, so no gradient of it reaches the program."""
    torch.save(torch.full((3,), 2.0), tmp_path / "gradient.pt")
    section = {"list": ["Functional.gelu.0.backward"], "backward_input": [str(tmp_path / "gradient.pt")]}
    x = torch.randn(3, requires_grad=True)
    with recording(tmp_path / "run", level="L2", task="tensor", tensor=section) as found:
        found.start()
        y = F.gelu(x)
        assert npu.told[-1] == "finalize_dump" and x.grad is None
        during = len(npu.told)
        y.sum().backward()
        found.stop()
    assert len(npu.told) == during and x.grad is not None


@pytest.mark.parametrize(
    ("files", "words"), [(["a.pt", "b.pt"], "names 2 gradients"), (["missing.pt"], "cannot be read")]
)
def test_a_wrong_gradient_is_named(npu: Any, tmp_path: Path, files: list[str], words: str) -> None:
    section = {"list": ["Functional.gelu.0.backward"], "backward_input": files}
    with (
        recording(tmp_path / "run", level="L2", task="tensor", tensor=section) as found,
        pytest.raises(UserError, match=words),
    ):
        found.start()
