"""One call, run on one side: forward, and backward where the run recorded one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from probe_pytorch.precheck.raising import Raising, mapped, tensors_in
from probe_pytorch.precheck.rebuild import Arguments
from probe_pytorch.precheck.rules import rules


@dataclass(slots=True, eq=False)
class Side:
    """A call being run on one side.

    Attributes:
        positional, keywords: The arguments as they are given to the function, which may write them.
        leaves: The tensors that a gradient is asked of, by the number of their argument; None for tensors
            that need none.
        output: What the call gave out.
    """

    positional: list[Any]
    keywords: dict[str, Any]
    leaves: list[torch.Tensor | None] = field(default_factory=list)
    output: Any = None


def side_of(arguments: Arguments, device: torch.device, raising: Raising, with_gradients: bool) -> Side:
    """The arguments on a device, all tensors copied, so that neither side sees what the other writes."""
    side = Side([], {})

    def change(value: Any, is_positional: bool) -> Any:
        if isinstance(value, torch.dtype):
            return raising.dtype(value)
        if isinstance(value, torch.device):
            return device
        if not isinstance(value, torch.Tensor):
            return value
        copy = raising.tensor(value.detach()).to(device, copy=True)
        if not with_gradients or not value.requires_grad:
            if is_positional:
                side.leaves.append(None)
            return copy
        leaf = copy.requires_grad_()
        side.leaves.append(leaf)
        return (leaf * 1).to(leaf.dtype)  # no leaf, which a call in place could not write

    side.positional = mapped(arguments.positional, lambda value: change(value, True))
    keywords = mapped(arguments.keywords, lambda value: change(value, False))
    side.keywords = {
        key: device if key == "device" and value is not None else value for key, value in keywords.items()
    }
    return side


def run_forward(
    function: Callable[..., Any],
    side: Side,
    api: str,
    autocast: torch.dtype | None,
    device: torch.device,
    seed: int,
) -> None:
    """Call the function; what it gives out, with what it writes, becomes the side's output."""
    torch.manual_seed(seed)
    context: Any = contextlib.nullcontext()
    if autocast is not None:
        context = torch.autocast(device.type, autocast)
    with context:
        side.output = function(*side.positional, **side.keywords)
    if side.output is None:  # it writes into its arguments
        side.output = [item for item in tensors_in(side.positional) if item.is_floating_point() or item.ndim]
        return
    changed = rules("changed").get(api)
    if changed and side.keywords.get("training", _at(side.positional, 5, api != "batch_norm")):
        more = [side.keywords.get(name, _at(side.positional, place, None)) for place, name in changed.items()]
        side.output = [side.output, *(one for one in more if isinstance(one, torch.Tensor))]


def run_backward(
    side: Side, outputs: Sequence[int], gradients: Sequence[torch.Tensor]
) -> list[torch.Tensor | None]:
    """The gradients of the side's tensors, one each, None for those that need none or were given none."""
    flat = list(tensors_in(side.output))
    torch.autograd.backward(
        [flat[i] for i in outputs],
        [gradient.to(flat[i].device, flat[i].dtype) for i, gradient in zip(outputs, gradients)],
    )
    return [None if leaf is None else leaf.grad for leaf in side.leaves]


def gradient_pairs(
    side: Side, recorded: Sequence[torch.Tensor | None], chosen: int | None
) -> tuple[list[int], list[int]]:
    """Which outputs are given which of the recorded gradients, both by number.

    ``chosen`` is the output that the one recorded gradient is known to belong to.
    """
    flat = list(tensors_in(side.output))
    wanted = [i for i, tensor in enumerate(flat) if tensor.requires_grad]
    known = [i for i, gradient in enumerate(recorded) if gradient is not None]
    if not wanted or not known:
        return [], []
    if chosen is not None:
        return ([chosen], known[:1]) if chosen in wanted else ([], [])
    if len(recorded) <= len(flat) and all(i in wanted and flat[i].shape == recorded[i].shape for i in known):  # type: ignore[union-attr]
        return known, known  # by position: gradients that were not given are null, and left out at the end
    if len(recorded) == len(flat):
        both = [i for i in wanted if i in known]
        return both, both
    if len(known) == len(wanted):
        return wanted, known
    alike = [i for i in wanted if flat[i].shape == recorded[known[0]].shape]  # type: ignore[union-attr]
    return (alike or wanted)[:1], known[:1]


def _at(items: Sequence[Any], place: int, default: Any) -> Any:
    return items[place] if place < len(items) else default
