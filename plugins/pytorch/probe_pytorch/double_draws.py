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
"""Operators that set random elements to zero; the share that remains, or that is dropped, is a number."""

SAMPLING_OPERATORS = frozenset(
    {"bernoulli", "multinomial", "poisson", "binomial", "_standard_gamma", "_sample_dirichlet", "randperm"}
)
"""Operators that draw from the distributions that tensors describe."""

DRAWING_OPERATORS = FILL_OPERATORS | CREATION_OPERATORS | DROPOUT_OPERATORS | SAMPLING_OPERATORS


def draw(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], nominal: torch.dtype) -> Any:
    """Call an operator that draws random numbers.

    Args:
        func: The operator.
        args: Its arguments.
        kwargs: Its arguments by name.
        nominal: The dtype of the script, for tensors that are in float64 only because they were converted.

    Returns:
        Its result in float64. The generator has advanced as in the script.
    """
    name = func._schema.name.removeprefix("aten::")
    if "out" in kwargs:
        return func(*args, **kwargs)
    if name in FILL_OPERATORS:
        return _fill(func, args, kwargs, nominal)
    if name in DROPOUT_OPERATORS:
        return _drop(func, args, kwargs, nominal)
    kwargs = dict(kwargs)
    if name.endswith("_like") and kwargs.get("dtype") is None:
        kwargs["dtype"] = _find_script_dtype(args[0], nominal)
    elif name in FACTORY_OPERATORS and kwargs.get("dtype") is None and not _has_tensor(args):
        kwargs["dtype"] = nominal
    arguments = [narrow_nested(value, nominal) if not nominal.is_complex else value for value in args]
    return widen_nested(func(*arguments, **{name: narrow_nested(value, nominal) for name, value in kwargs.items()}))


def _has_tensor(args: tuple[Any, ...]) -> bool:
    return any(isinstance(value, torch.Tensor) for value in args)


def _find_script_dtype(tensor: torch.Tensor, nominal: torch.dtype) -> torch.dtype:
    """Return the dtype that a tensor has in the script."""
    if tensor.dtype is torch.float64:
        return nominal
    if tensor.dtype is torch.complex128:
        return torch.complex128 if nominal is torch.float64 else torch.complex64
    return tensor.dtype


def _fill(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], nominal: torch.dtype) -> torch.Tensor:
    """Fill a tensor in place."""
    tensor: torch.Tensor = args[0]
    dtype = _find_script_dtype(tensor, nominal)
    if is_narrow(tensor) or dtype == tensor.dtype:
        func(*args, **kwargs)
        return tensor
    drawn = torch.empty_like(tensor, dtype=dtype)
    func(drawn, *(narrow_nested(value, dtype) for value in args[1:]), **kwargs)
    return tensor.copy_(drawn)


def _drop(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], nominal: torch.dtype) -> Any:
    """Drop the elements that the script would drop; the results are the rest, scaled, and the mask."""
    tensor: torch.Tensor = widen(args[0])
    ones = torch.ones_like(tensor, dtype=_find_script_dtype(tensor, nominal))
    scaled, mask = func(ones, *args[1:], **kwargs)
    is_kept = scaled != 0
    share = args[1] if func._schema.name.endswith("_fused_dropout") else 1 - args[1]
    is_training = len(args) < 3 or args[2] is not False
    factor = 1 / share if is_training and share else float(is_training is False)
    return torch.where(is_kept, tensor * factor, torch.zeros_like(tensor)), mask
