"""Wrong kernels of the CPU for tests: wrong in 32 and 16 bits, right in float64, which the reference uses."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch


@contextmanager
def wrong_kernel(operator: str, wrong: Callable[..., Any], right: Callable[..., Any]) -> Iterator[None]:
    """Replace the kernel of ``aten::{operator}`` on the CPU.

    Args:
        operator: The operator, such as ``gelu``.
        wrong: Called for tensors that are not of float64.
        right: Called for tensors of float64; it must not use the operator.
    """

    def kernel(*args: Any, **kwargs: Any) -> Any:
        return (right if args[0].dtype is torch.float64 else wrong)(*args, **kwargs)

    if not hasattr(torch.library.Library, "_destroy"):
        pytest.skip("this torch cannot take a kernel back")
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch tells that the kernel is replaced
        library.impl(operator, kernel, "CPU")
    try:
        yield
    finally:
        library._destroy()


def exact_gelu(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    return x * 0.5 * (1 + torch.erf(x / 2**0.5))


def tanh_gelu(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    return x * 0.5 * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)))


def exact_gelu_backward(gradient: torch.Tensor, x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    density = torch.exp(-x * x / 2) / (2 * torch.pi) ** 0.5
    return gradient * (0.5 * (1 + torch.erf(x / 2**0.5)) + x * density)


def halved_gelu_backward(gradient: torch.Tensor, x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    return exact_gelu_backward(gradient, x) * 0.999
