"""Calls of the NPU's fused operators, for the tests of their definitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from probe_pytorch.precheck import references

F64 = torch.float64

Arguments = tuple[tuple[Any, ...], dict[str, Any]]

OPERATORS = {spec.name: spec.make() for spec in references.load_reference_specs()}


def forward(name: str, *arguments: Any, **keywords: Any) -> Any:
    """Return the outputs of the operator's definition."""
    return OPERATORS[name].forward(*arguments, **keywords)


def close(output: Any, expected: Any, rtol: float = 1e-12) -> None:
    """Check that an output has the expected shape, and the expected values within rounding of float64."""
    output, expected = np.asarray(output.detach()), np.asarray(expected)
    assert output.shape == expected.shape
    np.testing.assert_allclose(output, expected, rtol=rtol, atol=1e-13)


def gradients(name: str, grad: torch.Tensor, *arguments: Any, output: int | None = None) -> list[Any]:
    """Return the gradients of the tensors among the arguments, by autograd through the definition."""
    leaves = [a.clone().requires_grad_() if isinstance(a, torch.Tensor) else a for a in arguments]
    result = forward(name, *leaves)
    (result if output is None else result[output]).backward(grad)
    return [leaf.grad for leaf in leaves if isinstance(leaf, torch.Tensor)]


def doubles(values: Any) -> Any:
    """Return the values with every floating-point tensor converted to float64."""
    if isinstance(values, (tuple, list)):
        return type(values)(doubles(value) for value in values)
    return values.double() if isinstance(values, torch.Tensor) and values.is_floating_point() else values


def _case(*shapes: tuple[int, ...] | Any, **keywords: Any) -> Callable[[torch.dtype], Arguments]:
    """Return a function that makes the arguments of a call for a dtype: random tensors in place of shapes."""

    def make(dtype: torch.dtype) -> Arguments:
        generator = torch.Generator().manual_seed(7)

        def value(item: Any) -> Any:
            return torch.randn(item, dtype=dtype, generator=generator) if isinstance(item, tuple) else item

        out = {"out": tuple(value(s).abs() for s in keywords["out"])} if "out" in keywords else {}
        return tuple(value(item) for item in shapes), {**keywords, **out}

    return make


MASK = torch.tensor([[False, True, False, False], [False, False, False, True]])

CASES = {
    "npu_apply_adam": _case(0.9, 0.99, 0.1, 0.9, 0.99, 1e-3, (3, 4), False, True, out=[(3, 4)] * 3),
    "npu_apply_adam_w": _case(0.9, 0.99, 0.1, 0.1, 0.9, 0.99, 1e-3, (3, 4), None, False, True, out=[(3, 4)] * 3),
    "npu_confusion_transpose": _case((2, 3, 4), [2, 0, 1], [4, 6], True),
    "fast_gelu": _case((5, 3)),
    "npu_fast_gelu": _case((5, 3)),
    "npu_fusion_attention": _case((2, 3, 8), (2, 4, 4), (2, 4, 4), 4, "BSH", scale=0.5),
    "npu_group_norm_silu": _case((2, 4, 3), (4,), (4,), 2),
    "npu_layer_norm_eval": _case((3, 5), [5], (5,), (5,)),
    "npu_linear": _case((2, 3, 5), (4, 5), (4,)),
    "npu_mish": _case((5, 3)),
    "npu_moe_gating_top_k_softmax": _case((4, 6), None, 3),
    "npu_rms_norm": _case((3, 5), (5,)),
    "npu_rotary_mul": _case((2, 3, 2, 4), (1, 3, 1, 4), (2, 1, 1, 4)),
    "npu_scaled_masked_softmax": _case((2, 2, 2, 4), MASK, 0.7),
    "npu_sort_v2": _case((3, 7), -1, True),
    "npu_swiglu": _case((3, 8)),
}
"""Arguments of a call of each operator, as a function of the dtype."""
