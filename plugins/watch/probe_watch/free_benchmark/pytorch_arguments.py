"""Arguments of a second run: copies that share neither memory nor autograd graph with the program's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from probe_watch.free_benchmark.arguments import iterate_tensors

_PLAIN = (torch.Tensor, torch.nn.Parameter, getattr(torch.nn, "Buffer", torch.nn.Parameter))


def iterate_torch_tensors(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in an argument, in order."""
    return iterate_tensors(value, torch.Tensor)


def is_supported(tensor: torch.Tensor) -> bool:
    """Return True for a dense tensor with values, of no subclass."""
    return (
        type(tensor) in _PLAIN
        and tensor.layout == torch.strided
        and not (tensor.is_meta or tensor.is_quantized or tensor.is_nested)
    )


def copy_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy in new memory with the same strides, outside of the autograd graph."""
    source = tensor.detach()
    if source.is_conj() or source.is_neg() or not source.numel():
        return source.clone()
    if _has_shared_elements(source):
        span = 1 + sum((size - 1) * stride for size, stride in zip(source.shape, source.stride()))
        memory = source.as_strided((span,), (1,)).clone()
        return memory.as_strided(source.shape, source.stride(), 0)
    return lay_out_like(source, source)


def lay_out_like(values: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Return ``values`` in new memory with the strides of ``tensor``, which has the same shape.

    If elements of ``tensor`` share memory, the strides of ``values`` are kept.
    """
    if not values.numel() or _has_shared_elements(tensor):
        return values.clone()
    result = torch.empty_strided(tensor.shape, tensor.stride(), dtype=values.dtype, device=values.device)
    return result.copy_(values)


def _has_shared_elements(tensor: torch.Tensor) -> bool:
    """Return True if elements of a tensor may share memory, as those of an expanded one do."""
    reach = 1
    for stride, size in sorted((s, n) for s, n in zip(tensor.stride(), tensor.shape) if n > 1):
        if stride < reach:
            return True
        reach = stride * (size - 1) + reach
    return False


class _Argument(torch.autograd.Function):
    """A tensor with values of its own, whose gradient is that of a leaf.

    It is no leaf, so that a call may overwrite it and autocast does not cache it; and no view.
    """

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor, holder: list[torch.Tensor]) -> torch.Tensor:
        """Return the tensor in ``holder``."""
        return holder[0]

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Return the gradient."""
        return gradients[0], None


def create_leaf(values: torch.Tensor) -> torch.Tensor:
    """Return a leaf that takes no memory, for the gradient of an argument with ``values``."""
    zero = torch.zeros((), dtype=values.dtype, device=values.device)
    return zero.expand(values.shape).requires_grad_()


def attach_leaf(values: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor:
    """Return ``values`` as an argument whose gradient is that of ``leaf``."""
    result: torch.Tensor = _Argument.apply(leaf, [values])  # type: ignore[no-untyped-call]
    return result
