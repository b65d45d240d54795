"""The reference: calls run by torch on the CPU in raised precision, what they give out without torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from probe_precheck import Array, plain_output

from probe_mindspore.precheck.tensors import Arguments, DType, Made, Values, leaves, mapped

WIDE = (torch.float64, torch.float32)
"""Floating-point numbers are raised to the first that torch has kernels for."""
INDEX = {"Int32": torch.int64, "Int16": torch.int64}
"""Whole numbers are widened where torch does not take them as they are."""
NAMES = {"bool": "Bool", "bfloat16": "BFloat16", "uint8": "UInt8", "uint16": "UInt16", "uint32": "UInt32",
         "uint64": "UInt64"}  # fmt: skip


@dataclass(slots=True, eq=False)
class Reference:
    """A call being run.

    Attributes:
        leaves: Its floating-point tensors, in order, which gradients are asked of.
        output: What it gave out.
    """

    leaves: list[torch.Tensor] = field(default_factory=list)
    output: Any = None

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The tensors among its outputs."""
        return [item for item in leaves(self.output) if isinstance(item, torch.Tensor)]

    @property
    def plain(self) -> Any:
        """What it gave out, without torch."""
        return plain(self.output)


def run_forward(
    function: Callable[..., Any],
    arguments: Arguments,
    with_gradients: bool,
    seed: int,
    is_raised: bool = True,
) -> Reference:
    """The call in the highest precision that torch has kernels for; or in that of its arguments.

    Raises:
        Exception: What torch said to the first try.
    """
    failure: Exception | None = None
    for wide in WIDE if is_raised else (None,):
        for integers in ({}, INDEX):
            try:
                return _run(function, arguments, wide, integers, with_gradients, seed)
            except Exception as error:  # whatever torch raises for what it does not take
                failure = failure or error
    assert failure is not None
    raise failure


def _run(
    function: Callable[..., Any],
    arguments: Arguments,
    wide: torch.dtype | None,
    integers: dict[str, torch.dtype],
    with_gradients: bool,
    seed: int,
) -> Reference:
    found = Reference()

    def change(item: Any) -> Any:
        if isinstance(item, DType):
            return _raised(getattr(torch, item.name.lower()), wide)
        if not isinstance(item, Made):
            return item
        tensor = torch.from_numpy(np.array(item.values))
        tensor = tensor.to(integers.get(item.dtype, _raised(tensor.dtype, wide)))
        if not with_gradients or not item.is_float:
            return tensor
        found.leaves.append(tensor.requires_grad_())
        return tensor * 1  # no leaf, which a call in place could not write

    positional, keywords = mapped(arguments.positional, change), mapped(arguments.keywords, change)
    torch.manual_seed(seed)
    found.output = function(*positional, **keywords)
    if found.output is None:
        found.output = next((item for item in leaves(positional) if isinstance(item, torch.Tensor)), None)
    return found


def expected_dtypes(function: Callable[..., Any], arguments: Arguments) -> list[str]:
    """MindSpore's names of the dtypes that the call gives out when nothing is raised; none for unknown.

    No values are computed: tensors are torch's meta tensors.
    """

    def change(item: Any) -> Any:
        if isinstance(item, DType):
            return getattr(torch, item.name.lower())
        if not isinstance(item, Made):
            return item
        return torch.empty(item.values.shape, dtype=getattr(torch, item.dtype.lower()), device="meta")

    try:
        found = function(*mapped(arguments.positional, change), **mapped(arguments.keywords, change))
    except Exception:  # such as what depends on values
        return []
    return [name_of(item.dtype) if isinstance(item, torch.Tensor) else "" for item in leaves(found)]


def run_backward(reference: Reference, gradients: Sequence[Made | None]) -> list[Array]:
    """The gradients of the call's floating-point tensors; zeros where its outputs do not depend on one."""
    flat = reference.tensors
    pairs = [(flat[i], gradient) for i, gradient in enumerate(gradients) if gradient is not None]
    found = torch.autograd.grad(
        [output for output, _ in pairs],
        reference.leaves,
        [torch.from_numpy(np.array(one.values)).to(output.dtype) for output, one in pairs],
        allow_unused=True,
    )
    return [
        array_of(torch.zeros_like(leaf) if one is None else one) for leaf, one in zip(reference.leaves, found)
    ]


def plain(value: Any) -> Any:
    """``value`` without torch: tensors as arrays."""
    return plain_output(value, lambda own: array_of(own) if isinstance(own, torch.Tensor) else str(own))


def array_of(tensor: torch.Tensor) -> Array:
    """The values of a tensor, with MindSpore's name of its dtype."""
    name = name_of(tensor.dtype)
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.dtype is torch.bfloat16:
        tensor = tensor.float()
    values: Values = tensor.contiguous().numpy()
    return Array(values, name)


def name_of(dtype: torch.dtype) -> str:
    """MindSpore's name of a dtype."""
    name = str(dtype).removeprefix("torch.")
    return NAMES.get(name, name.capitalize())


def _raised(dtype: torch.dtype, wide: torch.dtype | None) -> torch.dtype:
    if wide is None:
        return dtype
    if dtype.is_complex:
        return torch.complex128
    return wide if dtype.is_floating_point else dtype
