"""Execution of one call by the device or by the reference: forward, and backward if it was recorded."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from probe_pytorch.precheck.raising import DtypeConversion, iterate_tensors, map_leaves
from probe_pytorch.precheck.rebuild import Arguments
from probe_pytorch.precheck.rules import rules


@dataclass(slots=True, eq=False)
class CallSide:
    """A call as either the device or the reference runs it.

    Attributes:
        positional: The positional arguments, which the function may overwrite.
        keywords: The keyword arguments, which the function may overwrite.
        leaves: The tensors whose gradients are computed, in the order of the arguments; None for tensors
            that need no gradient.
        output: The output of the call.
    """

    positional: list[Any]
    keywords: dict[str, Any]
    leaves: list[torch.Tensor | None] = field(default_factory=list)
    output: Any = None


def create_side(arguments: Arguments, device: torch.device, raising: DtypeConversion, with_gradients: bool) -> CallSide:
    """Return a call with copies of its arguments on a device, so that the two sides are independent.

    Args:
        arguments: The arguments on the CPU.
        device: The device to copy them to.
        raising: The dtypes to convert them to.
        with_gradients: True if the backward will be run.
    """
    side = CallSide([], {})

    def copy_value(value: Any, is_positional: bool) -> Any:
        if isinstance(value, torch.dtype):
            return raising.convert_dtype(value)
        if isinstance(value, torch.device):
            return device
        if not isinstance(value, torch.Tensor):
            return value
        detached = value.detach()
        raised = raising.convert_tensor(detached)
        copy = raised.to(device, copy=raised is detached)
        if not with_gradients or not value.requires_grad:
            if is_positional:
                side.leaves.append(None)
            return copy
        leaf = copy.requires_grad_()
        side.leaves.append(leaf)
        return (leaf * 1).to(leaf.dtype)  # an in-place call cannot write to a leaf itself

    side.positional = map_leaves(arguments.positional, lambda value: copy_value(value, True))
    keywords = map_leaves(arguments.keywords, lambda value: copy_value(value, False))
    side.keywords = {key: device if key == "device" and value is not None else value for key, value in keywords.items()}
    return side


def run_forward(
    function: Callable[..., Any],
    side: CallSide,
    api: str,
    autocast: torch.dtype | None,
    device: torch.device,
    seed: int,
    *,
    as_recorded: bool = False,
) -> None:
    """Call the function and set the side's output: its result, with the arguments that it overwrites.

    Args:
        function: The function.
        side: The call.
        api: The name of the API, without scope and count.
        autocast: The dtype of autocast; None for no autocast.
        device: The device.
        seed: The random seed to set before the call.
        as_recorded: True for the output that a record holds: the result, or the first argument if there is
            none.
    """
    torch.manual_seed(seed)
    context: Any = contextlib.nullcontext()
    if autocast is not None:
        context = torch.autocast(device.type, autocast)
    with context:
        side.output = function(*side.positional, **side.keywords)
    if as_recorded:
        if side.output is None and side.positional:
            side.output = side.positional[0]
        return
    if side.output is None:  # the function overwrites its arguments instead
        side.output = [item for item in iterate_tensors(side.positional) if item.is_floating_point() or item.ndim]
        return
    changed = rules("changed").get(api)
    if changed and side.keywords.get("training", _get_item(side.positional, 5, api != "batch_norm")):
        changed_values = [
            side.keywords.get(name, _get_item(side.positional, place, None)) for place, name in changed.items()
        ]
        side.output = [side.output, *(item for item in changed_values if isinstance(item, torch.Tensor))]


def run_backward(
    side: CallSide, outputs: Sequence[int], gradients: Sequence[torch.Tensor]
) -> list[torch.Tensor | None]:
    """Run the backward of a call.

    Args:
        side: The call.
        outputs: The numbers of the outputs that are given gradients.
        gradients: These gradients.

    Returns:
        The gradients of the arguments' tensors; None for a tensor that needs or received no gradient.
    """
    flat = list(iterate_tensors(side.output))
    torch.autograd.backward(
        [flat[i] for i in outputs],
        [gradient.to(flat[i].device, flat[i].dtype) for i, gradient in zip(outputs, gradients)],
    )
    return [None if leaf is None else leaf.grad for leaf in side.leaves]


def has_backward(side: CallSide) -> bool:
    """Return False if a call has gradients and its backward fails.

    Before torch 2.7, that of some functions, such as ``mse_loss``, fails for inputs of several dtypes.
    """
    outputs = [tensor for tensor in iterate_tensors(side.output) if tensor.requires_grad]
    leaves = [leaf for leaf in side.leaves if leaf is not None]
    if not outputs or not leaves:
        return True
    ones = [torch.ones_like(tensor) for tensor in outputs]
    try:
        torch.autograd.grad(outputs, leaves, ones, retain_graph=True, allow_unused=True)
    except RuntimeError:
        return False
    return True


def pair_gradients(
    side: CallSide, recorded: Sequence[torch.Tensor | None], chosen: int | None
) -> tuple[list[int], list[int]]:
    """Return the numbers of the outputs to give gradients, and for each the number of a recorded gradient.

    Args:
        side: The call, after its forward.
        recorded: The recorded gradients, or None in their places.
        chosen: The output that the only recorded gradient belongs to, if that is known.
    """
    flat = list(iterate_tensors(side.output))
    wanted = [i for i, tensor in enumerate(flat) if tensor.requires_grad]
    recorded_numbers = [i for i, gradient in enumerate(recorded) if gradient is not None]
    if not wanted or not recorded_numbers:
        return [], []
    if chosen is not None:
        return ([chosen], recorded_numbers[:1]) if chosen in wanted else ([], [])
    if len(recorded) <= len(flat) and all(i in wanted and flat[i].shape == recorded[i].shape for i in recorded_numbers):  # type: ignore[union-attr]
        return (
            recorded_numbers,
            recorded_numbers,
        )  # by position: gradients that do not exist are null, or left out at the end
    if len(recorded) == len(flat):
        common_numbers = [i for i in wanted if i in recorded_numbers]
        return common_numbers, common_numbers
    if len(recorded_numbers) == len(wanted):
        return wanted, recorded_numbers
    alike = [i for i in wanted if flat[i].shape == recorded[recorded_numbers[0]].shape]  # type: ignore[union-attr]
    return (alike or wanted)[:1], recorded_numbers[:1]


def _get_item(items: Sequence[Any], place: int, default: Any) -> Any:
    return items[place] if place < len(items) else default
