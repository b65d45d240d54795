"""Estimate of the memory that a call needs, made with meta tensors, before anything is computed.

Meta tensors have a shape, strides and a dtype, but no data, so running a call on them costs nothing however
large its results are.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from probe_pytorch.compat import AllocationTally
from probe_pytorch.precheck.execution import Side, run_forward, side_of
from probe_pytorch.precheck.raising import Raising, mapped, tensors_in
from probe_pytorch.precheck.rebuild import Arguments

META = torch.device("meta")
MAX_CACHED_NEEDS = 10_000
"""Number of estimates that are cached; a training step has far fewer calls of different shapes."""


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Bytes that a call needs.

    Attributes:
        inputs: Bytes of its arguments.
        raised_inputs: Bytes of its arguments in the dtypes of the reference.
        reference: Largest number of bytes that the reference holds at one time.
    """

    inputs: int
    raised_inputs: int
    reference: int

    @property
    def device(self) -> int:
        """Bytes that the device holds, which runs the call in narrower dtypes than the reference."""
        if not self.raised_inputs:
            return self.reference
        return math.ceil(self.reference * self.inputs / self.raised_inputs)

    @property
    def replayed(self) -> int:
        """Bytes of a call that the reference alone runs."""
        return self.inputs + self.reference

    @property
    def compared(self) -> int:
        """Bytes of a call that the device and the reference run."""
        return self.inputs + self.reference + self.device


class MemoryEstimator:
    """Cache of estimates, which do not depend on the values of tensors."""

    def __init__(self) -> None:
        self._needs: dict[str, MemoryNeed] = {}

    def need(
        self,
        name: str,
        function: Callable[..., Any],
        arguments: Arguments,
        raising: Raising,
        *,
        with_gradients: bool,
    ) -> MemoryNeed:
        """Return the memory that a call needs.

        Args:
            name: The name of the record without its count, such as ``Functional.linear``.
            function: The function of the reference.
            arguments: The arguments of the call.
            raising: The dtypes of the reference.
            with_gradients: True if the backward will be run.
        """
        described = mapped((arguments.positional, arguments.keywords), _describe)
        key = repr((name, described, raising.to, with_gradients))
        need = self._needs.get(key)
        if need is None:
            if len(self._needs) >= MAX_CACHED_NEEDS:
                self._needs.clear()
            api = name.partition(".")[2]
            need = memory_need(function, arguments, api, raising, with_gradients=with_gradients)
            self._needs[key] = need
        return need


def memory_need(
    function: Callable[..., Any], arguments: Arguments, api: str, raising: Raising, *, with_gradients: bool
) -> MemoryNeed:
    """Return the memory that a call needs, by running its reference on meta tensors.

    If an operator cannot run on meta tensors, for example because the size of its output depends on values,
    only the operators before it are counted. Memory inside of kernels is not counted.

    Args:
        function: The function of the reference.
        arguments: The arguments of the call.
        api: The name of the API, without scope and count.
        raising: The dtypes of the reference.
        with_gradients: True if the backward will be run.
    """
    given = list(tensors_in((arguments.positional, arguments.keywords)))
    meta = Arguments(mapped(arguments.positional, _on_meta), mapped(arguments.keywords, _on_meta))
    tally = AllocationTally(tensors_in((meta.positional, meta.keywords)))
    materialized = 0
    with warnings.catch_warnings(), suppress(Exception), tally:
        warnings.simplefilter("ignore")
        side = side_of(meta, META, raising, with_gradients)
        run_forward(function, side, api, None, META, 0)
        materialized = _bytes_of_copies(tensors_in(side.output))
        if with_gradients:
            _run_backward(side)
    return MemoryNeed(
        sum(tensor.nbytes for tensor in given),
        sum(tensor.numel() * raising.dtype(tensor.dtype).itemsize for tensor in given),
        tally.peak_bytes + materialized,
    )


def _describe(value: Any) -> Any:
    """Return the properties of a value that the size of results may depend on."""
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.stride(), value.dtype, value.requires_grad
    return value.tobytes() if isinstance(value, np.ndarray) else value


def _on_meta(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().to(META).requires_grad_(value.requires_grad)


def _bytes_of_copies(outputs: Iterable[torch.Tensor]) -> int:
    """Return the bytes of the arrays that outputs with gaps or repeated elements are copied to."""
    return sum(tensor.nbytes for tensor in outputs if not tensor.is_contiguous())


def _run_backward(side: Side) -> None:
    outputs = [tensor for tensor in tensors_in(side.output) if tensor.requires_grad]
    if outputs:
        torch.autograd.backward(outputs, [torch.empty_like(tensor) for tensor in outputs])
