"""Estimate of the memory that a call needs, made with meta tensors, before anything is computed.

Meta tensors have a shape, strides and a dtype, but no data, so running a call on them costs nothing however
large its results are.
"""

from __future__ import annotations

import importlib
import math
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from probe_precheck.runner_options import create_device_error

from probe_core.errors import UserError
from probe_pytorch.compat import AllocationTally
from probe_pytorch.precheck.execution import CallSide, create_side, run_forward
from probe_pytorch.precheck.raising import DtypeConversion, iterate_tensors, map_leaves
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
        raising: DtypeConversion,
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
        described = map_leaves((arguments.positional, arguments.keywords), _describe)
        key = repr((name, described, raising.to, with_gradients))
        need = self._needs.get(key)
        if need is None:
            if len(self._needs) >= MAX_CACHED_NEEDS:
                self._needs.clear()
            api = name.partition(".")[2]
            need = estimate_memory(function, arguments, api, raising, with_gradients=with_gradients)
            self._needs[key] = need
        return need


def estimate_memory(
    function: Callable[..., Any], arguments: Arguments, api: str, raising: DtypeConversion, *, with_gradients: bool
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
    tensors = list(iterate_tensors((arguments.positional, arguments.keywords)))
    meta = Arguments(map_leaves(arguments.positional, _move_to_meta), map_leaves(arguments.keywords, _move_to_meta))
    tally = AllocationTally(iterate_tensors((meta.positional, meta.keywords)))
    materialized = 0
    with warnings.catch_warnings(), suppress(Exception), tally:
        warnings.simplefilter("ignore")
        side = create_side(meta, META, raising, with_gradients)
        run_forward(function, side, api, None, META, 0)
        materialized = _count_copied_bytes(iterate_tensors(side.output))
        if with_gradients:
            _run_backward(side)
    return MemoryNeed(
        sum(tensor.nbytes for tensor in tensors),
        sum(tensor.numel() * raising.convert_dtype(tensor.dtype).itemsize for tensor in tensors),
        tally.peak_bytes + materialized,
    )


def _describe(value: Any) -> Any:
    """Return the properties of a value that the size of results may depend on."""
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.stride(), value.dtype, value.requires_grad
    return value.tobytes() if isinstance(value, np.ndarray) else value


def _move_to_meta(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().to(META).requires_grad_(value.requires_grad)


def _count_copied_bytes(outputs: Iterable[torch.Tensor]) -> int:
    """Return the bytes of the arrays that outputs with gaps or repeated elements are copied to."""
    return sum(tensor.nbytes for tensor in outputs if not tensor.is_contiguous())


def _run_backward(side: CallSide) -> None:
    outputs = [tensor for tensor in iterate_tensors(side.output) if tensor.requires_grad]
    if outputs:
        torch.autograd.backward(outputs, [torch.empty_like(tensor) for tensor in outputs])


# -- selection of the device that calls are run on: an NPU, a GPU or the CPU ------------------------


CPU = "cpu"


def select_device(text: str, jit_compile: bool) -> torch.device:
    """Return the device to run on, after making it the current one.

    Args:
        text: ``cpu``, the index of an accelerator, or "" for the first accelerator, else the CPU.
        jit_compile: True to compile operators just in time, on an NPU.

    Raises:
        UserError: There is no such device, or it cannot be used.
    """
    if text == CPU:
        return torch.device(CPU)
    kind, module = find_accelerator()
    if module is None:
        if not text:
            return torch.device(CPU)
        raise create_device_error(text)
    index = int(text or 0)
    count = module.device_count()
    if index >= count:
        raise create_device_error(str(index), count)
    device = torch.device(kind, index)
    try:
        module.set_device(device)
        if kind == "npu":
            module.set_compile_mode(jit_compile=jit_compile)
    except Exception as error:
        raise UserError(
            f"Device {device} cannot be used: {str(error).splitlines()[0] if str(error) else error!r}.",
            "Check its driver, or choose another device with -d.",
        ) from None
    return device


def find_accelerator() -> tuple[str, Any]:
    """Return the kind of this machine's accelerator and torch's module for it, or ``("cpu", None)``."""
    try:
        importlib.import_module("torch_npu")
    except ImportError:
        pass
    else:
        npu = getattr(torch, "npu", None)
        if npu is not None and npu.is_available():
            return "npu", npu
    return ("cuda", torch.cuda) if torch.cuda.is_available() else (CPU, None)
