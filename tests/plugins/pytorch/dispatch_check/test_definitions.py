"""Operators without a kernel for the CPU, compared with the references of the pre-check."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_pytorch import DispatchCheck
from probe_pytorch.dispatch_check import operators
from probe_pytorch.dispatch_check.definitions import find_definition
from probe_pytorch.dispatch_check.operators import SkipReason

pytestmark = [
    pytest.mark.skipif(hasattr(torch, "npu"), reason="torch_npu has these operators"),
    pytest.mark.skipif(not hasattr(torch.library.Library, "_destroy"), reason="this torch cannot take a kernel back"),
]


@contextmanager
def fused_operators(swiglu: Callable[..., torch.Tensor]) -> Iterator[Any]:
    """Define operators of torch_npu."""
    library = torch.library.Library("npu", "DEF")
    library.define("npu_swiglu(Tensor self, int dim=-1) -> Tensor")
    library.define("npu_unknown(Tensor self) -> Tensor")
    library.impl("npu_swiglu", swiglu, "CPU")
    library.impl("npu_unknown", lambda x: x.clone(), "CPU")
    try:
        yield torch.ops.npu
    finally:
        library._destroy()
        operators.read_operator.cache_clear()


def right(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    first, second = x.chunk(2, dim)
    return torch.nn.functional.silu(first) * second


def wrong(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    first, second = x.chunk(2, dim)
    return torch.sigmoid(first) * second


def test_operators_have_the_references_of_the_pre_check() -> None:
    assert find_definition("npu", "npu_swiglu") is not None
    assert find_definition("npu", "npu_unknown") is None
    assert find_definition("other", "npu_swiglu") is None
    assert find_definition("aten", "mm") is None


@pytest.mark.parametrize("kernel", [right, wrong])
def test_a_wrong_fused_operator_is_found(kernel: Callable[..., torch.Tensor], tmp_path: Path) -> None:
    with fused_operators(kernel) as npu, DispatchCheck(tmp_path) as check:
        npu.npu_swiglu(torch.randn(4, 8))
        npu.npu_unknown(torch.randn(4))
    names = [(finding.name, finding.operator) for finding in check.findings]
    assert names == ([("Aten.npu.npu_swiglu.0", "npu.npu_swiglu.default")] if kernel is wrong else [])
    assert check.counts.operators == {"npu.npu_swiglu.default": 1}
    assert check.counts.skipped[SkipReason.OTHER_NAMESPACE, "npu.npu_unknown.default"] == 1
