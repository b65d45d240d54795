"""Which dtypes the reference computes in, and which the device (guide 5.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from probe_pytorch.precheck.rebuild import Arguments
from probe_pytorch.precheck.rules import rules

HALVES = (torch.float16, torch.bfloat16)


@dataclass(frozen=True, slots=True)
class Raising:
    """How the dtypes of a call's tensors are raised for the reference.

    Attributes:
        to: The dtype in the reference by the dtype in the run; what is not in it stays.
        first: A dtype that float32 tensors are rounded to before, as autocast does to them.
    """

    to: Mapping[torch.dtype, torch.dtype] = field(default_factory=dict)
    first: torch.dtype | None = None

    def tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor as the reference has it."""
        if self.first is not None and tensor.dtype is torch.float32:
            tensor = tensor.to(self.first)
        return tensor.to(self.to.get(tensor.dtype, tensor.dtype))

    def dtype(self, dtype: torch.dtype) -> torch.dtype:
        """A dtype argument as the reference has it."""
        return self.to.get(dtype, dtype)


def raise_map() -> dict[torch.dtype, torch.dtype]:
    """The dtype above each dtype."""
    return {getattr(torch, low): getattr(torch, high) for low, high in rules("raise").items()}


def raising_of(
    api: str, arguments: Arguments, autocast: torch.dtype | None, is_narrow: bool = True
) -> Raising:
    """How the reference of a call is raised, of which the device run goes under ``autocast``, if at all.

    ``is_narrow`` is False where autocast raised the call to float32: then it rounded nothing.
    """
    if api in rules("never_raised"):
        return Raising()
    above = raise_map()
    found = float_dtypes(arguments)
    if api in rules("hf32"):
        above.pop(torch.float32)
    if autocast is not None and is_narrow:
        return Raising({**above, torch.float32: above[autocast]}, autocast)
    if len(found) == 1:
        return Raising(above)
    if len(found) > 1:
        return Raising({dtype: torch.float32 for dtype in above})
    return Raising()


def float_dtypes(arguments: Arguments) -> set[torch.dtype]:
    """The floating-point dtypes among all tensors of a call."""
    return {t.dtype for t in tensors_in((arguments.positional, arguments.keywords)) if t.is_floating_point()}


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in lists, tuples and dicts, depth first."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """``value`` with everything in its lists, tuples and dicts changed."""
    if isinstance(value, list):
        return [mapped(item, change) for item in value]
    if isinstance(value, tuple) and not isinstance(value, torch.Size):
        return tuple(mapped(item, change) for item in value)
    if isinstance(value, dict):
        return {key: mapped(item, change) for key, item in value.items()}
    return change(value)


def composed(definition: Callable[..., Any]) -> Callable[..., Any]:
    """A fused operator's definition as a device without it runs it: no output is wider than the inputs."""

    def run(*positional: Any, **keywords: Any) -> Any:
        floats = {t.dtype for t in tensors_in((positional, keywords)) if t.is_floating_point()}
        output = definition(*positional, **keywords)
        if not floats or torch.float64 in floats:
            return output
        own = floats.pop() if len(floats) == 1 else torch.float32
        return mapped(output, lambda item: item.to(own) if _is_double(item) else item)

    return run


def _is_double(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype is torch.float64


def narrowed(value: Any, autocast: torch.dtype | None) -> Any:
    """Float32 tensors that autocast computed in its own dtype, as that dtype, by which they are to be judged.

    The gradient of a float32 weight is computed in bfloat16 there, and widened without changing a bit.
    """
    if autocast is None:
        return value

    def change(item: Any) -> Any:
        if not isinstance(item, torch.Tensor) or item.dtype is not torch.float32:
            return item
        narrow = item.detach().to(autocast)
        return narrow if torch.equal(narrow.float().nan_to_num(), item.detach().nan_to_num()) else item

    return mapped(value, change)


def autocast_candidates(arguments: Arguments, recorded: list[torch.dtype]) -> list[torch.dtype | None]:
    """What the run may have been under, to be tried in this order; None is no autocast.

    Dtypes that a plain call mixes, or an output of another dtype than all inputs, may come from autocast.
    """
    found = float_dtypes(arguments)
    halves = [dtype for dtype in HALVES if dtype in found or dtype in recorded]
    if not halves or not found or (len(found) == 1 and found >= set(recorded)):
        return [None]
    return [None, *halves]
