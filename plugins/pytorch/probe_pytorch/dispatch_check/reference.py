"""Computation of a call on the CPU in higher precision, from copies of its arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from probe_precheck.api import Array

from probe_pytorch import compat
from probe_pytorch.dispatch_check.call_copy import CallCopy
from probe_pytorch.dispatch_check.operators import (
    OperatorProperties,
    collect_results,
    name_arguments,
    read_operator,
    rules,
)
from probe_pytorch.double import STATE_IN_FLOAT32
from probe_pytorch.precheck.outputs import convert_to_array
from probe_pytorch.precheck.raising import HALVES, DtypeConversion, map_leaves
from probe_pytorch.precheck.replay import JUDGED_DTYPES, PerturbedConversion, compute_rounding

PERTURBATION_SEED = 1234
"""Seed of the random parts of the rounding by which inputs are moved."""


@dataclass(frozen=True, slots=True)
class DispatchedCall:
    """Call of an operator, as it is compared; it can be pickled.

    Attributes:
        number: The number of the call among all calls of the block, which orders them.
        name: The name of the call without its phase, such as ``Aten.mm.3``.
        overload: The namespace and the names of the operator and of its overload, such as
            ``("aten", "mm", "default")``.
        phase: ``forward`` or ``backward``.
        copy: The arguments before the call.
        results: The values that the call returned and wrote: arrays, plain values, or None.
        dtypes: The names of the floating-point dtypes of the results, such as ``torch.float32``.
    """

    number: int
    name: str
    overload: tuple[str, str, str]
    phase: str
    copy: CallCopy
    results: list[Any]
    dtypes: frozenset[str]


@contextmanager
def isolate_computation() -> Iterator[None]:
    """Compute without modes, gradients and autocast of the program."""
    with compat.disable_modes(), torch.no_grad(), torch.autocast("cpu", enabled=False):
        yield


def convert_to_arrays(results: Sequence[Any], *, copies: bool = False) -> list[Any]:
    """Return results as arrays on the CPU and plain values.

    Args:
        results: The results.
        copies: True to copy also what is on the CPU already.
    """
    arrays: list[Any] = []
    for value in results:
        if isinstance(value, torch.Tensor):
            array = convert_to_array(value)
            is_shared = copies and value.device.type == "cpu"
            arrays.append(Array(array.values.copy(), array.dtype) if is_shared else array)
        else:
            arrays.append(value)
    return arrays


@dataclass(frozen=True, slots=True)
class MagnitudeConversion(DtypeConversion):
    """The conversion of a call's dtypes that also takes magnitudes."""

    def convert_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the magnitudes of a tensor, converted for the reference."""
        raised = DtypeConversion.convert_tensor(self, tensor)
        return raised.abs() if raised.is_floating_point() else raised


class ReferenceComputation:
    """Computation of one call.

    Args:
        call: The call.
    """

    def __init__(self, call: DispatchedCall) -> None:
        self._call = call
        self._overload: Any = torch.ops
        for name in call.overload:
            self._overload = getattr(self._overload, name)
        self.operator: OperatorProperties = read_operator(self._overload)
        self._names = [argument.name for argument in self._overload._schema.arguments]
        self.raising = _choose_conversion(self.operator, call)

    @property
    def can_perturb(self) -> bool:
        """True if the reference rounds less than the device, so that moving the inputs tells something."""
        return not self.operator.is_exact

    def compute(self) -> list[Any]:
        """Return the results, as arrays and plain values."""
        return self._compute(self.raising)

    def compute_perturbed(self) -> list[Any]:
        """Return the results for inputs that are each moved by a random part of their rounding."""
        generator = torch.Generator().manual_seed(PERTURBATION_SEED + self._call.number)
        perturbed = self._compute(PerturbedConversion(self.raising.to, None, generator))
        if self.operator.name not in rules("sums"):
            return perturbed
        unit = rules("partial_sums") * compute_rounding(torch.float64 if self._is_double else torch.float32)
        magnitudes = self._compute(MagnitudeConversion(self.raising.to))
        numbers = np.random.default_rng(PERTURBATION_SEED + self._call.number)
        return [_perturb_result(value, magnitude, unit, numbers) for value, magnitude in zip(perturbed, magnitudes)]

    @property
    def _is_double(self) -> bool:
        return bool(self._call.dtypes) and self._call.dtypes <= {"torch.float64"}

    def _compute(self, conversion: DtypeConversion) -> list[Any]:
        args, kwargs = self._call.copy.create_arguments(conversion, STATE_IN_FLOAT32, self._names)
        if isinstance(conversion, PerturbedConversion):
            args = [map_leaves(value, lambda item: _perturb_number(item, conversion.generator)) for value in args]
        if self.operator.name in rules("masked"):
            return convert_to_arrays(self._apply_dropout_mask(args))
        definition = self.operator.definition
        result = (self._overload if definition is None else definition.forward)(*args, **kwargs)
        arguments = name_arguments(self._overload, tuple(args), kwargs)
        return convert_to_arrays(collect_results(self._overload, self.operator, arguments, result))

    def _apply_dropout_mask(self, args: list[Any]) -> list[torch.Tensor]:
        """Return the results of a dropout with the mask of the device."""
        rule = rules("masked")[self.operator.name]
        mask = torch.from_numpy(self._call.results[1].values)
        is_training = len(args) < 3 or args[2] is not False
        share = args[rule["p"]]
        scale = (1 - share if rule["drops"] else share) if is_training else 1.0
        return [args[0] * mask.to(args[0].dtype) / scale if scale else torch.zeros_like(args[0]), mask]

    # -- results that differ without being wrong ---------------------------------------------------

    def select_comparable(self, results: list[Any]) -> list[Any]:
        """Return results without those that a right kernel may compute in another way.

        Indices are replaced by the values that they select, and internal results by None (``indices`` and
        ``internal`` in ``rules.yaml``).
        """
        internal = rules("internal").get(self.operator.name, ())
        compared = getattr(self.operator.definition, "compare_outputs", None)
        if compared is not None:  # the definition may return fewer results than the operator
            count = len(self._call.results)
            internal = [i for i in range(count) if i not in compared]
            results = [*results[:count], *[None] * (count - len(results))]
        return [None if i in internal else value for i, value in enumerate(self._replace_indices(results))]

    def _replace_indices(self, results: list[Any]) -> list[Any]:
        place = rules("indices").get(self.operator.name)
        if place is None or place >= len(results):
            return results
        indices = results[place]
        if not isinstance(indices, Array) or indices.values.dtype.kind != "i":
            return results
        args, kwargs = self._call.copy.create_arguments(DtypeConversion(), frozenset(), self._names)
        arguments = name_arguments(self._overload, tuple(args), kwargs)
        try:
            values = select_values(self.operator.name, arguments, torch.from_numpy(indices.values).long())
        except (RuntimeError, IndexError):  # out of range: the indices themselves are compared
            return results
        return [convert_to_array(values) if i == place else item for i, item in enumerate(results)]


def select_values(operator: str, arguments: Mapping[str, Any], indices: torch.Tensor) -> torch.Tensor:
    """Return the values of the first argument of an operator that its indices select."""
    values: torch.Tensor = next(iter(arguments.values()))
    pooled = rules("pooled").get(operator)
    if pooled is not None:
        return values.flatten(-pooled).gather(-1, indices.flatten(-pooled))
    is_whole = "dim" not in arguments and operator in ("argmax", "argmin", "median", "nanmedian")
    if is_whole or arguments.get("dim", -1) is None:
        return values.reshape(-1)[indices]
    if values.ndim == 0:
        return values
    dim = arguments.get("dim", -1)
    return values.gather(dim, indices if indices.ndim == values.ndim else indices.unsqueeze(dim))


def _choose_conversion(operator: OperatorProperties, call: DispatchedCall) -> DtypeConversion:
    """Return the dtypes of the reference: float32 for a call in 16 bits alone, else float64."""
    if operator.is_exact:
        return DtypeConversion()
    dtypes = {str(dtype) for dtype in call.copy.list_dtypes()} | call.dtypes
    above = torch.float64 if dtypes - {str(dtype) for dtype in HALVES} else torch.float32
    return DtypeConversion(dict.fromkeys(JUDGED_DTYPES, above))


def _perturb_result(value: Any, magnitude: Any, unit: float, numbers: np.random.Generator) -> Any:
    """Return a result moved by a random part of the rounding of the magnitudes that it is the sum of."""
    if not isinstance(value, Array) or value.values.dtype.kind != "f":
        return value
    part = numbers.uniform(-unit, unit, value.values.shape)
    return Array(np.asarray(value.values + part * magnitude.values), value.dtype)


def _perturb_number(value: Any, generator: torch.Generator) -> Any:
    """Return a number moved by a part of its rounding to float32; whole numbers stay."""
    if not isinstance(value, float) or value != value or value in (float("inf"), -float("inf")) or value == int(value):
        return value
    return value * (1 + compute_rounding(torch.float32) * (2 * float(torch.rand((), generator=generator)) - 1))
