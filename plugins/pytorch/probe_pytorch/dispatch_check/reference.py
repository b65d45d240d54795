"""Computation of a call on the CPU in higher precision, from copies of its arguments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from probe_precheck import Array

from probe_pytorch import compat
from probe_pytorch.dispatch_check.call_copy import CallCopy
from probe_pytorch.dispatch_check.operators import (
    Operator,
    named_arguments,
    operator_of,
    results_of,
    rules,
)
from probe_pytorch.double import STATE_IN_FLOAT32
from probe_pytorch.precheck.outputs import array_of
from probe_pytorch.precheck.raising import HALVES, Raising, mapped
from probe_pytorch.precheck.replay import JUDGED, Moved, rounding_of

SEED = 1234
"""Seed of the random parts of the rounding by which inputs are moved."""


@dataclass(frozen=True, slots=True)
class DispatchedCall:
    """Call of an operator, as it is compared; it can be pickled.

    Attributes:
        number: The number of the call among all calls of the block, which orders them.
        name: The name of the call without its phase, such as ``Aten.mm.3``.
        overload: The names of the operator and of its overload, such as ``("mm", "default")``.
        phase: ``forward`` or ``backward``.
        copy: The arguments before the call.
        results: What the call returned and wrote, as arrays and plain values; None for no value.
        dtypes: The floating-point dtypes of the results.
    """

    number: int
    name: str
    overload: tuple[str, str]
    phase: str
    copy: CallCopy
    results: list[Any]
    dtypes: frozenset[torch.dtype]


@contextmanager
def undisturbed() -> Iterator[None]:
    """Compute without modes, gradients and autocast of the program."""
    with compat.quiet(), torch.no_grad(), torch.autocast("cpu", enabled=False):
        yield


def arrays_of(results: Sequence[Any], *, copies: bool = False) -> list[Any]:
    """Return results as arrays on the CPU and plain values.

    Args:
        results: The results.
        copies: True to copy also what is on the CPU already.
    """
    found: list[Any] = []
    for value in results:
        if isinstance(value, torch.Tensor):
            array = array_of(value)
            is_shared = copies and value.device.type == "cpu"
            found.append(Array(array.values.copy(), array.dtype) if is_shared else array)
        else:
            found.append(value)
    return found


class Reference:
    """Computation of one call.

    Args:
        call: The call.
    """

    def __init__(self, call: DispatchedCall) -> None:
        self._call = call
        self._overload = getattr(getattr(torch.ops.aten, call.overload[0]), call.overload[1])
        self.operator: Operator = operator_of(self._overload)
        self.raising = _raising(self.operator, call)

    @property
    def can_move(self) -> bool:
        """True if the reference rounds less than the device, so that moving the inputs tells something."""
        return not self.operator.is_exact

    def compute(self) -> list[Any]:
        """Return the results, as arrays and plain values."""
        return self._compute(self.raising)

    def compute_moved(self) -> list[Any]:
        """Return the results for inputs that are each moved by a random part of their rounding."""
        generator = torch.Generator().manual_seed(SEED + self._call.number)
        return self._compute(Moved(self.raising.to, None, generator))

    def _compute(self, raising: Raising) -> list[Any]:
        names = [argument.name for argument in self._overload._schema.arguments]
        args, kwargs = self._call.copy.arguments(raising, STATE_IN_FLOAT32, names)
        if isinstance(raising, Moved):
            args = [mapped(value, lambda item: _moved(item, raising.generator)) for value in args]
        if self.operator.name in rules("masked"):
            return arrays_of(self._dropped(args))
        result = self._overload(*args, **kwargs)
        arguments = named_arguments(self._overload, tuple(args), kwargs)
        return arrays_of(results_of(self._overload, self.operator, arguments, result))

    def _dropped(self, args: list[Any]) -> list[torch.Tensor]:
        """Return the results of a dropout with the mask of the device."""
        rule = rules("masked")[self.operator.name]
        mask = torch.from_numpy(self._call.results[1].values)
        is_training = len(args) < 3 or args[2] is not False
        share = args[rule["p"]]
        scale = (1 - share if rule["drops"] else share) if is_training else 1.0
        return [args[0] * mask.to(args[0].dtype) / scale if scale else torch.zeros_like(args[0]), mask]

    # -- indices -----------------------------------------------------------------------------------

    def with_selected(self, results: list[Any]) -> list[Any]:
        """Return results with the selected values in place of indices (``indices`` in ``rules.yaml``)."""
        rule = rules("indices").get(self.operator.name)
        if rule is None or rule["output"] >= len(results):
            return results
        names = [argument.name for argument in self._overload._schema.arguments]
        args, _ = self._call.copy.arguments(Raising(), frozenset(), names)
        indices = results[rule["output"]]
        if not isinstance(indices, Array) or indices.values.dtype.kind != "i":
            return results
        try:
            values = _selected(rule, args, torch.from_numpy(indices.values).long())
        except (RuntimeError, IndexError):  # out of range: the indices themselves are compared
            return results
        return [array_of(values) if i == rule["output"] else item for i, item in enumerate(results)]


def _selected(rule: dict[str, int], args: list[Any], indices: torch.Tensor) -> torch.Tensor:
    values: torch.Tensor = args[rule["input"]]
    if "flat" in rule:
        flat = values.flatten(-rule["flat"])
        return flat.gather(-1, indices.flatten(-rule["flat"]))
    dim = args[rule["dim"]] if rule["dim"] < len(args) else None
    if dim is None and indices.ndim == 0:
        return values.reshape(-1)[indices]
    dim = -1 if dim is None or isinstance(dim, bool) else dim
    if values.ndim == 0:
        return values
    return values.gather(dim, indices if indices.ndim == values.ndim else indices.unsqueeze(dim))


def _raising(operator: Operator, call: DispatchedCall) -> Raising:
    """Return the dtypes of the reference: float32 for a call in 16 bits alone, else float64."""
    if operator.is_exact:
        return Raising()
    dtypes = call.copy.dtypes() | call.dtypes
    above = torch.float64 if dtypes - set(HALVES) else torch.float32
    return Raising(dict.fromkeys(JUDGED, above))


def _moved(value: Any, generator: torch.Generator) -> Any:
    """Return a number moved by a part of its rounding to float32; whole numbers stay."""
    if (
        not isinstance(value, float)
        or value != value
        or value in (float("inf"), -float("inf"))
        or value == int(value)
    ):
        return value
    return value * (1 + rounding_of(torch.float32) * (2 * float(torch.rand((), generator=generator)) - 1))
