"""Gradients of parameters in the records of modules: recorded where they arise, under each name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from support.runs.debugged import alone, once  # noqa: F401
from support.runs.recording import Recording
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

IDS = torch.tensor([[1, 4, 2]])


class Tied(nn.Module):
    """A language model whose head has the weight of its embedding."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.body, self.head = (
            nn.Embedding(6, 4),
            nn.Linear(4, 4),
            nn.Linear(4, 6, bias=False),
        )
        self.head.weight = self.embedding.weight

    def forward(self, ids: Tensor) -> Tensor:
        output: Tensor = self.head(torch.tanh(self.body(self.embedding(ids))))
        return output


def norms(data: dict[str, Any]) -> dict[str, float | None]:
    """The norm of each recorded gradient of a parameter, by its name."""
    return {
        f"{key.split('.')[1]}.{name}": leaf and round(leaf["Norm"], 5)
        for key, fields in data.items()
        if key.endswith("parameters_grad")
        for name, (leaf,) in fields.items()
    }


def norm(gradient: Tensor | None) -> float:
    assert gradient is not None
    return round(float(torch.linalg.vector_norm(gradient)), 5)


@pytest.mark.parametrize("fields", [{"level": "L0"}, {"level": "L0", "compile": "tap"}], ids=["hooks", "tap"])
def test_gradient_of_tied_weights_is_recorded_under_both_names(tmp_path: Path, fields: Any) -> None:
    """The last backward pass gives it; accumulation and clipping come later and are not part of it."""
    model = Tied()
    torch.manual_seed(0)
    model(IDS).square().sum().backward()
    expected = {
        f"{name}.{key}": norm(parameter.grad)
        for name, module in model.named_children()
        for key, parameter in module.named_parameters()
    }
    model.zero_grad()

    def work() -> None:
        for _ in range(2):
            model(IDS).square().sum().backward()
        clip_grad_norm_(model.parameters(), 1e-3)

    found = norms(once(tmp_path, work, model, **fields).records())
    assert found == expected
    assert found["head.weight"] == found["embedding.weight"]


def of_first_rank(found: Recording) -> dict[str, Any]:
    records: dict[str, Any] = json.loads((found.directory(0, "rank0") / "dump.json").read_text())["data"]
    return records


@pytest.fixture
def process_group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_gradient_of_sharded_tied_weights_is_recorded_before_clipping(tmp_path: Path, process_group: None) -> None:
    fsdp = pytest.importorskip("torch.distributed.fsdp", reason="needs FSDP2")
    if not hasattr(fsdp, "fully_shard"):
        pytest.skip("needs FSDP2")
    if not hasattr(torch.cpu.Stream(), "record_event"):
        pytest.skip("FSDP2 of this torch cannot run on the CPU")
    model = Tied()
    fsdp.fully_shard(model)
    before: dict[str, float] = {}

    def work() -> None:
        model(IDS).square().sum().backward()
        for name, parameter in model.named_parameters(remove_duplicate=False):
            assert parameter.grad is not None
            before[name] = norm(parameter.grad.to_local())
        clip_grad_norm_(model.parameters(), 1e-3)

    assert norms(of_first_rank(once(tmp_path, work, model, level="L0"))) == before


def test_gradient_of_a_distributed_tensor_is_not_the_accumulated_sum(tmp_path: Path, process_group: None) -> None:
    """Tensor parallel parameters, whose gradients autograd accumulates itself."""
    parallel = pytest.importorskip("torch.distributed.tensor.parallel")
    if not hasattr(dist, "init_device_mesh"):
        pytest.skip("this torch has no torch.distributed.init_device_mesh")
    mesh = dist.init_device_mesh("cpu", (1,))
    model = nn.Sequential(nn.Linear(4, 4))
    parallel.parallelize_module(model, mesh, {"0": parallel.ColwiseParallel()})
    single: list[float] = []

    def work() -> None:
        for _ in range(2):
            model(torch.ones(2, 4)).square().sum().backward()
            single.append(norm(model[0].weight.grad.to_local()))

    assert norms(of_first_rank(once(tmp_path, work, model, level="L0")))["0.weight"] == single[0]
