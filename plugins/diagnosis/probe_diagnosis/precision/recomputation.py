"""Errors of recorded matrix products, computed again in float64 from their recorded inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from probe_core.errors import UnreadableTensor
from probe_core.model import Kind, Side, Value
from probe_core.model.run import Run
from probe_diagnosis.precision.settings import Arrangement, arrangement_of, settings

Array = np.ndarray[Any, Any]

FLOAT32 = ("float32", "Float32")
"""Ends of the dtypes of products whose precision may be lower than that of their inputs."""

CONVOLUTION_ARGUMENTS = ("stride", "padding", "dilation", "groups")


@dataclass(frozen=True, slots=True)
class Product:
    """A part of a recorded matrix product.

    Attributes:
        left: The left factor, in the form that ``multiply`` expects.
        right: The right factor.
        multiply: A function that returns the product of two factors.
        added: The addend; 0 for none.
        result: The recorded result.
    """

    left: Array
    right: Array
    multiply: Callable[[Array, Array], Array]
    added: Array | float
    result: Array


def rounding_of(run: Run, key: str) -> float | None:
    """Return how coarsely a recorded matrix product rounded its inputs, as the largest relative change.

    The error of an element that adds products ``x w``, each factor rounded by a relative error with the
    standard deviation ``s``, has the variance ``2 s^2 sum(x^2 w^2)``.

    Returns:
        A number such as 2^-11 for TF32; None if the product cannot be computed again.
    """
    product = recorded_product(run, key)
    if product is None:
        return None
    exact = product.multiply(product.left, product.right) + product.added
    if exact.shape != product.result.shape or not exact.size:
        return None
    error = np.sqrt(np.mean(np.square(product.result - exact)))
    expected = np.sqrt(np.mean(2 * product.multiply(np.square(product.left), np.square(product.right))))
    if not (np.isfinite(error) and np.isfinite(expected) and expected):
        return None
    return float(error / expected / settings().rounding)


def recorded_product(run: Run, key: str) -> Product | None:
    """Return a part of a recorded product with at most ``multiplications`` of them; None if it has none."""
    place, arrangement = run.find(key), arrangement_of(key)
    make = _MAKERS.get(arrangement) if arrangement is not None else None
    if place is None or make is None:
        return None
    slots = run.record(place).slots
    inputs = {slot.path: slot.value for slot in slots if slot.side is Side.INPUT}
    outputs = [slot.value for slot in slots if slot.side is Side.OUTPUT]
    tensors = [value for value in inputs.values() if value.kind is Kind.TENSOR]
    if len(outputs) != 1 or not all(_is_float32(value) for value in (*outputs, *tensors)):
        return None
    try:
        arrays = [run.tensor(value).astype(float) for value in tensors]
        return make(arrays, run.tensor(outputs[0]).astype(float), _numbers(inputs))
    except (UnreadableTensor, MemoryError, ValueError, IndexError):  # a record that is not what it seems
        return None


def _is_float32(value: Value) -> bool:
    """Return True for a tensor of float32 whose data were recorded."""
    is_float32 = value.kind is Kind.TENSOR and str(value.dtype).endswith(FLOAT32)
    return is_float32 and value.data_name is not None


def _numbers(inputs: Mapping[str, Value]) -> dict[str, int]:
    """Return the arguments that are whole numbers, by path; others make a product unknown.

    Raises:
        ValueError: An argument is no whole number.
    """
    numbers = {}
    for path, value in inputs.items():
        if value.kind is Kind.TENSOR or value.kind is Kind.NULL:
            continue
        number = value.statistics.max
        if type(number) is not int:
            raise ValueError(f"{path} is no whole number")
        numbers[path] = number
    return numbers


def _linear(arrays: Sequence[Array], result: Array, numbers: Mapping[str, int]) -> Product | None:
    left, weight = arrays[0], arrays[1]
    if weight.ndim != 2 or numbers:
        return None
    rows = _row_count(weight.size)
    left = left.reshape(-1, weight.shape[1])[:rows]
    result = result.reshape(-1, weight.shape[0])[:rows]
    return Product(left, weight.T, np.matmul, arrays[2] if len(arrays) > 2 else 0.0, result)


def _matmul(arrays: Sequence[Array], result: Array, numbers: Mapping[str, int]) -> Product | None:
    left, right = arrays
    if left.ndim < 2 or right.ndim < 2 or numbers:
        return None
    if right.ndim == 2:
        left, result = (value.reshape(-1, value.shape[-1]) for value in (left, result))
    elif left.shape[:-2] == right.shape[:-2]:
        left, right, result = (value.reshape(-1, *value.shape[-2:])[0] for value in (left, right, result))
    else:
        return None
    rows = _row_count(right.size)
    return Product(left[:rows], right, np.matmul, 0.0, result[:rows])


def _addmm(arrays: Sequence[Array], result: Array, numbers: Mapping[str, int]) -> Product | None:
    added, left, right = arrays
    product = _matmul((left, right), result, numbers)
    if product is None:
        return None
    added = np.broadcast_to(added, result.shape)
    added = added.reshape(-1, *added.shape[-2:])[0][: len(product.left)]
    return Product(product.left, product.right, np.matmul, added, product.result)


def _convolution(arrays: Sequence[Array], result: Array, numbers: Mapping[str, int]) -> Product | None:
    """Return the product of a convolution: windows of one sample with the weights, without groups."""
    source, weight = arrays[:2]
    axes = weight.ndim - 2
    if source.ndim != weight.ndim or _argument(numbers, "groups", 6, 1) != [1]:
        return None
    stride, padding, dilation = (
        (_argument(numbers, name, place, axes) * axes)[:axes]
        for name, place in (("stride", 3), ("padding", 4), ("dilation", 5))
    )
    source = np.pad(source[0], [(0, 0), *((size, size) for size in padding)])
    extents = [(size - 1) * step + 1 for size, step in zip(weight.shape[2:], dilation)]
    windows = np.lib.stride_tricks.sliding_window_view(source, extents, tuple(range(1, axes + 1)))
    steps = (1, *stride, *dilation)
    windows = windows[tuple(slice(None, None, step) for step in steps)]
    rows = _row_count(weight.size)
    result = np.moveaxis(result[0], 0, -1).reshape(-1, weight.shape[0])[:rows]
    left = np.moveaxis(windows, 0, axes).reshape(-1, *windows.shape[:1], *weight.shape[2:])[:rows]
    left = left.reshape(len(left), -1)
    return Product(
        left, weight.reshape(weight.shape[0], -1).T, np.matmul, arrays[2] if len(arrays) > 2 else 0.0, result
    )


def _argument(numbers: Mapping[str, int], name: str, place: int, count: int) -> list[int]:
    """Return the whole numbers of an argument of a convolution, by its name or place."""
    for path in (name, str(place)):
        if path in numbers:
            return [numbers[path]]
        parts = [numbers[f"{path}.{axis}"] for axis in range(count) if f"{path}.{axis}" in numbers]
        if parts:
            return parts
    return [0 if name == "padding" else 1]


def _row_count(weights: int) -> int:
    return max(1, settings().multiplications // max(weights, 1))


_MAKERS: Mapping[Arrangement, Callable[[Sequence[Array], Array, Mapping[str, int]], Product | None]] = {
    Arrangement.LINEAR: _linear,
    Arrangement.MATMUL: _matmul,
    Arrangement.ADDMM: _addmm,
    Arrangement.CONVOLUTION: _convolution,
}


def formats_near(rounding: float, factor: float) -> tuple[str, ...]:
    """Return the formats that round about as coarsely, from coarse to fine.

    Args:
        rounding: The largest relative change of a number.
        factor: The largest factor between it and that of a format.
    """
    if not rounding > 0:
        return ()
    return tuple(
        name
        for name, bits in settings().formats.items()
        if abs(math.log2(rounding) + bits) <= math.log2(factor)
    )
