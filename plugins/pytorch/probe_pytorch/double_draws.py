"""Random numbers of a script that runs in float64: drawn in the dtype of the script, then converted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from probe_pytorch.double_dtypes import is_narrow, narrow_nested, widen, widen_nested

FILL_OPERATORS = frozenset(
    {"bernoulli_", "uniform_", "normal_", "exponential_", "cauchy_", "geometric_", "log_normal_", "random_"}
)
"""Operators that fill a tensor with random numbers."""

FACTORY_OPERATORS = frozenset({"rand", "randn", "normal"})
"""Operators that return random numbers of the default dtype, unless a dtype or tensors are given."""

CREATION_OPERATORS = FACTORY_OPERATORS | {"rand_like", "randn_like", "randint", "randint_like"}
"""Operators that return a tensor of random numbers of a requested dtype."""

DROPOUT_OPERATORS = frozenset({"native_dropout", "_fused_dropout"})
"""Operators that set random elements to zero; an argument is the share of elements that they keep or drop."""

SAMPLING_OPERATORS = frozenset(
    {"bernoulli", "multinomial", "poisson", "binomial", "_standard_gamma", "_sample_dirichlet", "randperm"}
)
"""Operators that draw from the distributions that tensors describe."""

DRAWING_OPERATORS = FILL_OPERATORS | CREATION_OPERATORS | DROPOUT_OPERATORS | SAMPLING_OPERATORS


def draw_in_script_dtype(
    operator: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], script_dtype: torch.dtype
) -> Any:
    """Call an operator that draws random numbers.

    Args:
        operator: The operator.
        args: Its arguments.
        kwargs: Its arguments by name.
        script_dtype: The default dtype of the script. Tensors that are in float64 have it in the script.

    Returns:
        Its result in float64. The generator has advanced as in the script.
    """
    name = operator._schema.name.removeprefix("aten::")
    if "out" in kwargs:
        return operator(*args, **kwargs)
    if name in FILL_OPERATORS:
        return _fill(operator, args, kwargs, script_dtype)
    if name in DROPOUT_OPERATORS:
        return _drop(operator, args, kwargs, script_dtype)
    kwargs = dict(kwargs)
    if name.endswith("_like") and kwargs.get("dtype") is None:
        kwargs["dtype"] = _find_script_dtype(args[0], script_dtype)
    elif name in FACTORY_OPERATORS and kwargs.get("dtype") is None and not _has_tensor(args):
        kwargs["dtype"] = script_dtype
    narrow_args = [narrow_nested(value, script_dtype) for value in args]
    narrow_kwargs = {key: narrow_nested(value, script_dtype) for key, value in kwargs.items()}
    return widen_nested(operator(*narrow_args, **narrow_kwargs))


def _has_tensor(args: tuple[Any, ...]) -> bool:
    return any(isinstance(value, torch.Tensor) for value in args)


def _find_script_dtype(tensor: torch.Tensor, script_dtype: torch.dtype) -> torch.dtype:
    """Return the dtype that a tensor has in the script."""
    if tensor.dtype is torch.float64:
        return script_dtype
    if tensor.dtype is torch.complex128:
        return torch.complex128 if script_dtype is torch.float64 else torch.complex64
    return tensor.dtype


def _fill(operator: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], script_dtype: torch.dtype) -> torch.Tensor:
    """Fill a tensor in place."""
    tensor: torch.Tensor = args[0]
    dtype = _find_script_dtype(tensor, script_dtype)
    if is_narrow(tensor) or dtype == tensor.dtype:
        operator(*args, **kwargs)
        return tensor
    drawn = torch.empty_like(tensor, dtype=dtype)
    operator(drawn, *(narrow_nested(value, dtype) for value in args[1:]), **kwargs)
    return tensor.copy_(drawn)


def _drop(operator: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], script_dtype: torch.dtype) -> Any:
    """Return the tensor with the dropped elements set to zero and the other elements scaled, and the mask."""
    tensor: torch.Tensor = widen(args[0])
    ones = torch.ones_like(tensor, dtype=_find_script_dtype(tensor, script_dtype))
    scaled, mask = operator(ones, *args[1:], **kwargs)
    is_kept = scaled != 0
    kept_share = args[1] if operator._schema.name.endswith("_fused_dropout") else 1 - args[1]
    if len(args) > 2 and args[2] is False:  # not training: nothing is dropped
        factor = 1.0
    else:
        factor = 1 / kept_share if kept_share else 0.0
    return torch.where(is_kept, tensor * factor, torch.zeros_like(tensor)), mask
