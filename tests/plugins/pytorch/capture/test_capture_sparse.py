"""Calls with sparse tensors: what is recorded of them, and that recording does not change them."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from support.runs.recording import recording
from torch import nn

INDICES = torch.tensor([[0, 1, 1], [1, 0, 1]])
VALUES, DENSE = torch.linspace(0.5, 2, 3), torch.linspace(-1, 1, 6).reshape(2, 3)


def compute(model: nn.Module) -> tuple[torch.Tensor, ...]:
    """Return the results and gradients of products with a sparse matrix."""
    values, dense = VALUES.clone().requires_grad_(), DENSE.clone().requires_grad_()
    matrix = torch.sparse_coo_tensor(INDICES, values, (2, 2)).coalesce()
    product = torch.sparse.mm(matrix, dense)
    sums = torch.sparse.sum(torch.sparse.softmax(matrix.detach(), 1), 0).to_dense()
    loss = model(torch.sparse.addmm(product, matrix, product)).sum() + sums.sum()
    loss.backward()
    assert values.grad is not None and dense.grad is not None
    return loss.detach(), product.detach(), sums, values.grad, dense.grad


def test_sparse_products_are_recorded_and_unchanged(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    expected = compute(model)
    with recording(tmp_path, level="mix", task="statistics") as debugger:
        debugger.start(model)
        recorded = compute(model)
        debugger.stop()
        debugger.step()
    assert all(map(torch.equal, recorded, expected))
    (path,) = tmp_path.rglob("dump.json")
    data = json.loads(path.read_text())["data"]
    for name in ("mm", "softmax", "addmm"):
        assert f"Torch.sparse.{name}.0.forward" in data
    assert data["Torch.sparse.mm.0.forward"]["input_args"][0]["Max"] == VALUES.max().item()
    assert "Torch.sparse.mm.0.backward" in data
