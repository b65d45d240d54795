"""Device side of the pre-check: calls run by MindSpore, forward and backward, with outputs as plain arrays.

Kernels are launched one by one and waited for, so that an error is raised by the call that caused it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mindspore
import numpy as np
from probe_precheck.api import Array
from probe_precheck.model import convert_output
from probe_precheck.runner_options import create_device_error

from probe_mindspore.precheck.apis import is_in_place
from probe_mindspore.precheck.random_arrays import round_to_dtype
from probe_mindspore.precheck.tensors import (
    STORAGE_DTYPES,
    Arguments,
    DType,
    TensorArgument,
    iterate_leaves,
    map_leaves,
)

CPU = "cpu"
"""Name of the CPU on the command line."""

ACCELERATORS = ("Ascend", "GPU")
"""Kinds of accelerators, in the order in which they are tried."""


def select_device(text: str) -> str:
    """Select the device that calls run on.

    Args:
        text: ``cpu``, the index of an accelerator, or empty for MindSpore's default device.

    Returns:
        MindSpore's name of the device.

    Raises:
        UserError: There is no such device.
    """
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    if text == CPU:
        if mindspore.get_context("device_target") != "CPU":  # set_device can be called only once
            mindspore.set_device("CPU")
    elif text:
        kind = next((name for name in ACCELERATORS if mindspore.hal.is_available(name)), None)
        if kind is None:
            raise create_device_error(text)
        count = mindspore.hal.device_count(kind)
        if int(text) >= count:
            raise create_device_error(text, count)
        mindspore.set_device(kind, int(text))
    mindspore.runtime.launch_blocking()
    return str(mindspore.get_context("device_target"))


def run_forward(function: Callable[..., Any], arguments: Arguments, seed: int) -> Any:
    """Run a call, and return its output as plain arrays; its first tensor if it returns None."""
    mindspore.set_seed(seed)
    positional, keywords = _create_arguments(arguments, create_tensor)
    output = function(*positional, **keywords)
    if output is None:
        output = next((item for item in iterate_leaves(positional) if isinstance(item, mindspore.Tensor)), None)
    return convert_to_arrays(output)


def run_backward(
    function: Callable[..., Any], api: str, arguments: Arguments, gradients: Sequence[TensorArgument | None], seed: int
) -> list[Array | None]:
    """Return the gradients of all floating-point tensors of a call, including those in lists and keywords.

    MindSpore differentiates functions of positional arguments, so the tensors become those of one function.

    Args:
        function: The function to call.
        api: Its name, which shows if it writes its first argument.
        arguments: Its arguments.
        gradients: The gradients of its outputs, flat; None for an output that takes no part.
        seed: Seed of random numbers.
    """
    wanted = [i for i, gradient in enumerate(gradients) if gradient is not None]

    def run(*tensors: Any) -> Any:
        remaining = iter(tensors)

        def create_argument(argument: TensorArgument) -> Any:
            if not argument.is_float:
                return create_tensor(argument)
            tensor = next(remaining)
            return tensor * 1 if is_in_place(api) else tensor  # MindSpore cannot differentiate writes to arguments

        positional, keywords = _create_arguments(arguments, create_argument)
        output = function(*positional, **keywords)
        source = positional[0] if output is None else output
        flat = [item for item in iterate_leaves(source) if isinstance(item, mindspore.Tensor)]
        chosen = tuple(flat[i] for i in wanted)
        return chosen if len(chosen) > 1 else chosen[0]

    mindspore.set_seed(seed)
    inputs = [create_tensor(argument) for argument in arguments.tensors if argument.is_float]
    output_gradients = tuple(create_tensor(gradient) for gradient in gradients if gradient is not None)
    gradient_of = mindspore.ops.GradOperation(get_all=True, sens_param=True)(run)
    results = gradient_of(*inputs, output_gradients if len(output_gradients) > 1 else output_gradients[0])
    return [convert_to_arrays(gradient) for gradient in results]


def create_tensor(argument: TensorArgument) -> Any:
    """Return a new tensor with the values of an argument."""
    if argument.dtype == "BFloat16":
        return mindspore.Tensor(argument.values).astype(mindspore.bfloat16)
    return mindspore.Tensor(np.array(argument.values))


def convert_to_arrays(value: Any) -> Any:
    """Return ``value`` with arrays in place of tensors, which hold copies of their values."""
    return convert_output(value, _convert_leaf)


def _convert_leaf(value: Any) -> Any:
    """Return a tensor as an array, and any other object of MindSpore as a number or text."""
    if isinstance(value, mindspore.Tensor):
        dtype = str(value.dtype)
        if dtype == "BFloat16":
            return Array(np.array(value.float().asnumpy()), dtype)
        return Array(np.array(value.asnumpy()), dtype)
    return float(value) if "float" in type(value).__name__ else str(value)  # a bfloat16 number of MindSpore


def create_tensor_argument(array: Array) -> TensorArgument:
    """Return an array as a tensor argument, such as a gradient made for an output."""
    return TensorArgument(round_to_dtype(array.values.astype(STORAGE_DTYPES[array.dtype]), array.dtype), array.dtype)


def _create_arguments(arguments: Arguments, tensor: Callable[[TensorArgument], Any]) -> tuple[Any, Any]:
    """Return the arguments by position and by keyword, with tensors and dtypes of MindSpore."""

    def convert_leaf(item: Any) -> Any:
        if isinstance(item, TensorArgument):
            return tensor(item)
        return getattr(mindspore, _DTYPE_NAMES.get(item.name, item.name.lower())) if isinstance(item, DType) else item

    return map_leaves(arguments.positional, convert_leaf), map_leaves(arguments.keywords, convert_leaf)


_DTYPE_NAMES = {"Bool": "bool_"}
