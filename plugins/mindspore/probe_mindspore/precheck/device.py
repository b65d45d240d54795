"""The device side: calls run by MindSpore, forward and backward, what they give out without MindSpore.

Kernels are launched one by one and waited for, so that an error is raised where it was made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mindspore
import numpy as np
from probe_precheck import Array, missing_device, plain_output

from probe_mindspore.precheck.apis import writes
from probe_mindspore.precheck.random_arrays import rounded
from probe_mindspore.precheck.tensors import STORED, Arguments, DType, Made, leaves, mapped

CPU = "cpu"
ACCELERATORS = ("Ascend", "GPU")


def open_device(text: str) -> str:
    """Make the device that ``text`` means the one that calls run on; its name.

    ``cpu``, an index of an accelerator, or nothing for what MindSpore takes by itself.

    Raises:
        UserError: There is no such device.
    """
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    if text == CPU:
        if mindspore.get_context("device_target") != "CPU":  # which cannot be said twice
            mindspore.set_device("CPU")
    elif text:
        kind = next((one for one in ACCELERATORS if mindspore.hal.is_available(one)), None)
        if kind is None:
            raise missing_device(text)
        count = mindspore.hal.device_count(kind)
        if int(text) >= count:
            raise missing_device(text, count)
        mindspore.set_device(kind, int(text))
    mindspore.runtime.launch_blocking()
    return str(mindspore.get_context("device_target"))


def run_forward(function: Callable[..., Any], arguments: Arguments, seed: int) -> Any:
    """What the call gives out, plain; where it gives out nothing, its first tensor, which it has written."""
    mindspore.set_seed(seed)
    positional, keywords = _built(arguments, tensor_of)
    output = function(*positional, **keywords)
    if output is None:
        output = next((item for item in leaves(positional) if isinstance(item, mindspore.Tensor)), None)
    return plain(output)


def run_backward(
    function: Callable[..., Any], api: str, arguments: Arguments, gradients: Sequence[Made | None], seed: int
) -> list[Array | None]:
    """The gradients of all floating-point tensors of a call, in lists and keywords, too.

    ``gradients`` are those of its outputs, flat; outputs with None take no part. The tensors become the
    positional arguments of one function, which is what MindSpore can differentiate.
    """
    wanted = [i for i, gradient in enumerate(gradients) if gradient is not None]

    def run(*tensors: Any) -> Any:
        given = iter(tensors)

        def built(made: Made) -> Any:
            if not made.is_float:
                return tensor_of(made)
            tensor = next(given)
            return tensor * 1 if writes(api) else tensor  # what is written must be no argument

        positional, keywords = _built(arguments, built)
        output = function(*positional, **keywords)
        source = positional[0] if output is None else output
        flat = [item for item in leaves(source) if isinstance(item, mindspore.Tensor)]
        chosen = tuple(flat[i] for i in wanted)
        return chosen if len(chosen) > 1 else chosen[0]

    mindspore.set_seed(seed)
    inputs = [tensor_of(made) for made in arguments.tensors if made.is_float]
    given = tuple(tensor_of(gradient) for gradient in gradients if gradient is not None)
    gradient_of = mindspore.ops.GradOperation(get_all=True, sens_param=True)(run)
    found = gradient_of(*inputs, given if len(given) > 1 else given[0])
    return [plain(one) for one in found]


def tensor_of(made: Made) -> Any:
    """A new tensor with the values."""
    if made.dtype == "BFloat16":
        return mindspore.Tensor(made.values).astype(mindspore.bfloat16)
    return mindspore.Tensor(np.array(made.values))


def plain(value: Any) -> Any:
    """``value`` without MindSpore: tensors as arrays, with copies of their values."""
    return plain_output(value, _without_mindspore)


def _without_mindspore(value: Any) -> Any:
    if isinstance(value, mindspore.Tensor):
        dtype = str(value.dtype)
        if dtype == "BFloat16":
            return Array(np.array(value.float().asnumpy()), dtype)
        return Array(np.array(value.asnumpy()), dtype)
    return float(value) if "float" in type(value).__name__ else str(value)  # a number of MindSpore's bfloat16


def narrowed(array: Array) -> Made:
    """An array as a tensor argument, such as a gradient made for an output."""
    return Made(rounded(array.values.astype(STORED[array.dtype]), array.dtype), array.dtype)


def _built(arguments: Arguments, tensor: Callable[[Made], Any]) -> tuple[Any, Any]:
    def change(item: Any) -> Any:
        if isinstance(item, Made):
            return tensor(item)
        return (
            getattr(mindspore, _DTYPE_NAMES.get(item.name, item.name.lower()))
            if isinstance(item, DType)
            else item
        )

    return mapped(arguments.positional, change), mapped(arguments.keywords, change)


_DTYPE_NAMES = {"Bool": "bool_"}
