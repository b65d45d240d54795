"""The dtypes in which the reference and the device compute (docs/standards.md#raised-precision)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from probe_pytorch.precheck.rebuild import Arguments
from probe_pytorch.precheck.rules import rules

HALVES = (torch.float16, torch.bfloat16)


@dataclass(frozen=True, slots=True)
class DtypeConversion:
    """The conversion of a call's dtypes for the reference.

    Attributes:
        to: The dtype in the reference by the dtype in the run; other dtypes are not changed.
        first: The dtype to which float32 tensors are rounded first, as autocast does; None for no rounding.
    """

    to: Mapping[torch.dtype, torch.dtype] = field(default_factory=dict)
    first: torch.dtype | None = None

    def convert_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor converted for the reference."""
        if self.first is not None and tensor.dtype is torch.float32:
            tensor = tensor.to(self.first)
        return tensor.to(self.to.get(tensor.dtype, tensor.dtype))

    def convert_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Return a dtype argument converted for the reference."""
        return self.to.get(dtype, dtype)


def raise_map() -> dict[torch.dtype, torch.dtype]:
    """Return the next higher dtype of each dtype that is raised."""
    return {getattr(torch, low): getattr(torch, high) for low, high in rules("raise").items()}


def find_conversion(
    api: str, arguments: Arguments, autocast: torch.dtype | None, is_narrow: bool = True
) -> DtypeConversion:
    """Return the conversion of dtypes for the reference of a call.

    Args:
        api: The name of the API.
        arguments: The arguments of the call.
        autocast: The dtype of autocast on the device; None for no autocast.
        is_narrow: False if autocast computed the call in float32, so that it rounded nothing.
    """
    if api in rules("never_raised"):
        return DtypeConversion()
    higher_dtypes = raise_map()
    dtypes = list_float_dtypes(arguments)
    if api in rules("hf32"):
        higher_dtypes.pop(torch.float32)
    if autocast is not None and is_narrow:
        return DtypeConversion({**higher_dtypes, torch.float32: higher_dtypes[autocast]}, autocast)
    if len(dtypes) == 1:
        return DtypeConversion(higher_dtypes)
    if len(dtypes) > 1:
        return DtypeConversion({dtype: torch.float32 for dtype in higher_dtypes})
    return DtypeConversion()


def list_float_dtypes(arguments: Arguments) -> set[torch.dtype]:
    """Return the floating-point dtypes of all tensors among the arguments."""
    return {t.dtype for t in iterate_tensors((arguments.positional, arguments.keywords)) if t.is_floating_point()}


def iterate_tensors(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in nested lists, tuples and dicts, depth first."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from iterate_tensors(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from iterate_tensors(item)


def map_leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return ``value`` with each item of its nested lists, tuples and dicts replaced by ``change(item)``."""
    if isinstance(value, list):
        return [map_leaves(item, change) for item in value]
    if isinstance(value, tuple) and not isinstance(value, torch.Size):
        return tuple(map_leaves(item, change) for item in value)
    if isinstance(value, dict):
        return {key: map_leaves(item, change) for key, item in value.items()}
    return change(value)


def wrap_definition(definition: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the definition of a fused operator for a device that lacks the operator.

    Outputs in float64 are converted to the dtype of the inputs, or to float32 for inputs of several dtypes.
    """

    def run(*positional: Any, **keywords: Any) -> Any:
        floats = {t.dtype for t in iterate_tensors((positional, keywords)) if t.is_floating_point()}
        output = definition(*positional, **keywords)
        if not floats or torch.float64 in floats:
            return output
        output_dtype = floats.pop() if len(floats) == 1 else torch.float32
        return map_leaves(output, lambda item: item.to(output_dtype) if _is_double(item) else item)

    return run


def _is_double(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype is torch.float64


def narrow_to_autocast(value: Any, autocast: torch.dtype | None) -> Any:
    """Return outputs with float32 tensors converted to the autocast dtype if they hold only its values.

    For example, autocast computes the gradient of a float32 weight in bfloat16 and widens it; it must be
    judged as bfloat16.
    """
    if autocast is None:
        return value

    def narrow_tensor(item: Any) -> Any:
        if not isinstance(item, torch.Tensor) or item.dtype is not torch.float32:
            return item
        narrow = item.detach().to(autocast)
        return narrow if torch.equal(narrow.float().nan_to_num(), item.detach().nan_to_num()) else item

    return map_leaves(value, narrow_tensor)


def list_autocast_candidates(arguments: Arguments, recorded: list[torch.dtype]) -> list[torch.dtype | None]:
    """Return the autocast dtypes that the run may have used, in the order to try them; None for no autocast.

    Autocast may cause inputs of several dtypes, or an output whose dtype differs from all inputs.
    """
    dtypes = list_float_dtypes(arguments)
    halves = [dtype for dtype in HALVES if dtype in dtypes or dtype in recorded]
    if not halves or not dtypes or (len(dtypes) == 1 and dtypes >= set(recorded)):
        return [None]
    return [None, *halves]
