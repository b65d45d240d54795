"""Reference of the pre-check: calls run by torch on the CPU in a raised precision, with plain outputs.

See docs/standards.md#raised-precision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from probe_precheck.api import Array
from probe_precheck.model import convert_output

from probe_mindspore.precheck.tensors import Arguments, DType, TensorArgument, Values, iterate_leaves, map_leaves

REFERENCE_DTYPES = (torch.float64, torch.float32)
"""Dtypes that floating-point numbers are raised to; the first that torch has kernels for is used."""

REFERENCE_ITEM_BYTES = 8
"""Bytes of a floating-point number of the reference."""

INDEX_DTYPES = {"Int32": torch.int64, "Int16": torch.int64}
"""Dtypes that integers are raised to if torch does not accept their own."""

DTYPE_NAMES = {"bool": "Bool", "bfloat16": "BFloat16", "uint8": "UInt8", "uint16": "UInt16", "uint32": "UInt32",
         "uint64": "UInt64"}  # fmt: skip


@dataclass(slots=True, eq=False)
class TorchReference:
    """A call that torch has run.

    Attributes:
        leaves: Its floating-point tensors in order, for which gradients can be computed.
        output: Its output.
    """

    leaves: list[torch.Tensor] = field(default_factory=list)
    output: Any = None

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The tensors among its outputs."""
        return [item for item in iterate_leaves(self.output) if isinstance(item, torch.Tensor)]

    @property
    def plain(self) -> Any:
        """Its output with arrays in place of tensors."""
        return convert_to_arrays(self.output)


def run_forward(
    function: Callable[..., Any],
    arguments: Arguments,
    with_gradients: bool,
    seed: int,
    is_raised: bool = True,
) -> TorchReference:
    """Run a call in the highest precision that torch has kernels for.

    Args:
        function: The function of torch.
        arguments: Its arguments.
        with_gradients: True if gradients will be computed.
        seed: Seed of random numbers.
        is_raised: False to keep the precision of the arguments.

    Raises:
        Exception: The error of the first attempt, if no precision is accepted.
    """
    failure: Exception | None = None
    for wide in REFERENCE_DTYPES if is_raised else (None,):
        for integers in ({}, INDEX_DTYPES):
            try:
                return _run(function, arguments, wide, integers, with_gradients, seed)
            except Exception as error:  # torch raises many types for arguments that it does not accept
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
) -> TorchReference:
    """Run a call with floating-point numbers and integers in these dtypes."""
    reference = TorchReference()

    def convert_leaf(item: Any) -> Any:
        if isinstance(item, DType):
            return _raise_dtype(getattr(torch, item.name.lower()), wide)
        if not isinstance(item, TensorArgument):
            return item
        tensor = torch.from_numpy(np.array(item.values))
        tensor = tensor.to(integers.get(item.dtype, _raise_dtype(tensor.dtype, wide)))
        if not with_gradients or not item.is_float:
            return tensor
        reference.leaves.append(tensor.requires_grad_())
        return tensor * 1  # calls in place cannot write to a leaf of the graph

    positional, keywords = map_leaves(arguments.positional, convert_leaf), map_leaves(arguments.keywords, convert_leaf)
    torch.manual_seed(seed)
    reference.output = function(*positional, **keywords)
    if reference.output is None:
        reference.output = next((item for item in iterate_leaves(positional) if isinstance(item, torch.Tensor)), None)
    return reference


def compute_meta_outputs(function: Callable[..., Any], arguments: Arguments) -> list[Any] | None:
    """Return the outputs of a call of meta tensors of torch, for which no values are computed.

    They are in the precision of the arguments. The result is None if the call cannot be run on meta tensors,
    for example because the shape of its output depends on values.
    """

    def convert_to_meta(item: Any) -> Any:
        if isinstance(item, DType):
            return getattr(torch, item.name.lower())
        if not isinstance(item, TensorArgument):
            return item
        return torch.empty(item.values.shape, dtype=getattr(torch, item.dtype.lower()), device="meta")

    try:
        with torch.device("meta"):
            output = function(
                *map_leaves(arguments.positional, convert_to_meta), **map_leaves(arguments.keywords, convert_to_meta)
            )
    except Exception:  # torch raises many types for arguments that it does not accept
        return None
    return list(iterate_leaves(output))


def list_expected_dtypes(outputs: Sequence[Any] | None) -> list[str]:
    """Return MindSpore's names of the dtypes of ``compute_meta_outputs``.

    A name is empty for an output that is not a tensor; the list is empty if there are no outputs.
    """
    return [get_dtype_name(item.dtype) if isinstance(item, torch.Tensor) else "" for item in outputs or ()]


def estimate_memory(arguments: Arguments, outputs: Sequence[Any] | None) -> int:
    """Return the bytes that a call needs: its arguments and ``compute_meta_outputs`` on both sides.

    The reference computes in float64. Memory inside of operators is not counted.
    """
    sizes = [(argument.values.nbytes, argument.values.itemsize) for argument in arguments.tensors]
    sizes += [
        (max(item.nbytes, item.untyped_storage().nbytes()), item.element_size())
        for item in outputs or ()
        if isinstance(item, torch.Tensor)
    ]
    return sum(size + size * max(2, REFERENCE_ITEM_BYTES // item_size) for size, item_size in sizes)


def run_backward(reference: TorchReference, gradients: Sequence[TensorArgument | None]) -> list[Array]:
    """Return the gradients of a call's floating-point tensors; zeros if no output depends on a tensor.

    Args:
        reference: The call.
        gradients: The gradient of each output; None for an output that takes no part.
    """
    flat = reference.tensors
    pairs = [(flat[i], gradient) for i, gradient in enumerate(gradients) if gradient is not None]
    computed = torch.autograd.grad(
        [output for output, _ in pairs],
        reference.leaves,
        [torch.from_numpy(np.array(gradient.values)).to(output.dtype) for output, gradient in pairs],
        allow_unused=True,
    )
    return [
        convert_to_array(torch.zeros_like(leaf) if gradient is None else gradient)
        for leaf, gradient in zip(reference.leaves, computed)
    ]


def convert_to_arrays(value: Any) -> Any:
    """Return ``value`` with arrays in place of tensors."""
    return convert_output(value, lambda item: convert_to_array(item) if isinstance(item, torch.Tensor) else str(item))


def convert_to_array(tensor: torch.Tensor) -> Array:
    """Return the values of a tensor, with MindSpore's name of its dtype."""
    name = get_dtype_name(tensor.dtype)
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.dtype is torch.bfloat16:
        tensor = tensor.float()
    values: Values = tensor.contiguous().numpy()
    return Array(values, name)


def get_dtype_name(dtype: torch.dtype) -> str:
    """Return MindSpore's name of a dtype."""
    name = str(dtype).removeprefix("torch.")
    return DTYPE_NAMES.get(name, name.capitalize())


def _raise_dtype(dtype: torch.dtype, wide: torch.dtype | None) -> torch.dtype:
    """Return the dtype that a dtype is raised to; itself if ``wide`` is None."""
    if wide is None:
        return dtype
    if dtype.is_complex:
        return torch.complex128
    return wide if dtype.is_floating_point else dtype
