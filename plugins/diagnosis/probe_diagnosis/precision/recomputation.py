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
from probe_diagnosis.precision.precision_settings import Arrangement, find_arrangement, load_settings

Array = np.ndarray[Any, Any]

FLOAT32_SUFFIXES = ("float32", "Float32")
"""Ends of the dtypes of products whose precision may be lower than that of their inputs."""


@dataclass(frozen=True, slots=True)
class Product:
    """A part of a recorded matrix product, in float64.

    Attributes:
        left: The left factor, of shape (rows, summands).
        right: The right factor, of shape (summands, columns).
        added: The addend, of a shape that fits the result; 0 for none.
        result: The recorded result, of shape (rows, columns).
    """

    left: Array
    right: Array
    added: Array
    result: Array


def measure_rounding(run: Run, key: str) -> float | None:
    """Return how coarsely a recorded matrix product rounded its inputs, as the largest relative change.

    The error of an element that adds products ``x w``, each factor rounded by a relative error with the
    standard deviation ``s``, has the variance ``2 s^2 sum(x^2 w^2)``.

    Returns:
        A number such as 2^-11 for TF32; None if the product cannot be computed again.
    """
    product = load_product(run, key)
    if product is None:
        return None
    exact = product.left @ product.right + product.added
    error = np.sqrt(np.mean(np.square(product.result - exact)))
    expected = np.sqrt(np.mean(2 * np.square(product.left) @ np.square(product.right)))
    if not (np.isfinite(error) and np.isfinite(expected) and expected):
        return None
    return float(error / expected / load_settings().rounding)


def is_computable(key: str) -> bool:
    """Return True for a call that arranges its inputs in a way in which a product can be computed again."""
    return find_arrangement(key) in _MAKERS


def load_product(run: Run, key: str) -> Product | None:
    """Return a part of a recorded product, of at most ``multiplications``; None if it cannot be computed."""
    place, arrangement = run.find(key), find_arrangement(key)
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
        return make([*map(run.tensor, tensors)], run.tensor(outputs[0]), _read_integers(inputs))
    except (UnreadableTensor, MemoryError, ValueError, IndexError):  # a record that is not what it seems
        return None


def _is_float32(value: Value) -> bool:
    """Return True for a tensor of float32 whose data were recorded."""
    is_float32 = value.kind is Kind.TENSOR and str(value.dtype).endswith(FLOAT32_SUFFIXES)
    return is_float32 and value.data_name is not None


def _read_integers(inputs: Mapping[str, Value]) -> dict[str, int]:
    """Return the arguments that are whole numbers, by path; others make a product unknown.

    Raises:
        ValueError: An argument is not an integer.
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


def _arrange_linear(arrays: Sequence[Array], result: Array, numbers: Mapping[str, int]) -> Product | None:
    left, weight = arrays[0], arrays[1]
    if weight.ndim != 2 or numbers:
        return None
    left, result = left.reshape(-1, weight.shape[1]), result.reshape(-1, weight.shape[0])
    return _cut_product(left, weight.T, result, arrays[2] if len(arrays) > 2 else None)


def _arrange_matmul(arrays: Sequence[Array], result: Array, numbers: Mapping[str, int]) -> Product | None:
    left, right = arrays
    if left.ndim < 2 or right.ndim < 2 or numbers:
        return None
    if right.ndim == 2:
        left, result = (value.reshape(-1, value.shape[-1]) for value in (left, result))
    elif left.shape[:-2] == right.shape[:-2]:
        left, right, result = (value.reshape(-1, *value.shape[-2:])[0] for value in (left, right, result))
    else:
        return None
    return _cut_product(left, right, result)


def _arrange_addmm(arrays: Sequence[Array], result: Array, numbers: Mapping[str, int]) -> Product | None:
    added, left, right = arrays
    if right.ndim == 3 and left.shape[:-2] == right.shape[:-2]:
        left, right = left[0], right[0]
        added = np.broadcast_to(added, result.shape)[0]
        result = result[0]
    if left.ndim != 2 or right.ndim != 2 or numbers:
        return None
    return _cut_product(left, right, result, np.broadcast_to(added, result.shape))


def _arrange_convolution(arrays: Sequence[Array], result: Array, numbers: Mapping[str, int]) -> Product | None:
    """Return the product of a convolution: windows of one sample with the weights, without groups."""
    source, weight = arrays[:2]
    axes = weight.ndim - 2
    is_large = source[:1].size > load_settings().multiplications
    if source.ndim != weight.ndim or _find_argument(numbers, "groups", 6, 1) != [1] or is_large:
        return None
    stride, padding, dilation = (
        (_find_argument(numbers, name, place, axes) * axes)[:axes]
        for name, place in (("stride", 3), ("padding", 4), ("dilation", 5))
    )
    source = np.pad(source[0], [(0, 0), *((size, size) for size in padding)])
    extents = [(size - 1) * step + 1 for size, step in zip(weight.shape[2:], dilation)]
    windows = np.lib.stride_tricks.sliding_window_view(source, extents, tuple(range(1, axes + 1)))
    steps = (1, *stride, *dilation)
    windows = windows[tuple(slice(None, None, step) for step in steps)]
    sizes = windows.shape[1 : axes + 1]
    places = np.unravel_index(np.arange(min(load_settings().extent, math.prod(sizes))), sizes)
    left = np.moveaxis(windows, 0, axes)[places]
    if result.shape[2:] != sizes:
        return None
    left = left.reshape(len(left), -1)
    result = np.moveaxis(result[0], 0, -1).reshape(-1, weight.shape[0])[: len(left)]
    right = weight.reshape(weight.shape[0], -1).T
    return _cut_product(left, right, result, arrays[2] if len(arrays) > 2 else None)


def _cut_product(left: Array, right: Array, result: Array, added: Array | None = None) -> Product:
    """Return some rows and columns of a product of two matrices.

    Args:
        left: An array of shape (rows, summands).
        right: An array of shape (summands, columns).
        result: An array of shape (rows, columns).
        added: An array of shape (columns,) or (rows, columns); None for none.

    Raises:
        ValueError: The arrays do not fit, because they are some rows of a batch, or there are no elements.
    """
    if left.shape[1] != right.shape[0] or result.shape != (len(left), right.shape[1]) or not result.size:
        raise ValueError("the arrays do not fit")
    limits, summands = load_settings(), max(1, right.shape[0])
    columns = min(right.shape[1], limits.extent, max(1, limits.multiplications // summands))
    rows = min(len(left), limits.extent, max(1, limits.multiplications // summands // columns))
    addend = np.zeros(()) if added is None else added[..., :columns][: rows if added.ndim == 2 else None]
    left, right, result = left[:rows], right[:, :columns], result[:rows, :columns]
    return Product(*(value.astype(float) for value in (left, right, addend, result)))


def _find_argument(numbers: Mapping[str, int], name: str, place: int, count: int) -> list[int]:
    """Return the whole numbers of an argument of a convolution, by its name or place."""
    for path in (name, str(place)):
        if path in numbers:
            return [numbers[path]]
        parts = [numbers[f"{path}.{axis}"] for axis in range(count) if f"{path}.{axis}" in numbers]
        if parts:
            return parts
    return [0 if name == "padding" else 1]


_MAKERS: Mapping[Arrangement, Callable[[Sequence[Array], Array, Mapping[str, int]], Product | None]] = {
    Arrangement.LINEAR: _arrange_linear,
    Arrangement.MATMUL: _arrange_matmul,
    Arrangement.ADDMM: _arrange_addmm,
    Arrangement.CONVOLUTION: _arrange_convolution,
}


def find_formats(rounding: float, factor: float) -> tuple[str, ...]:
    """Return the formats that round about as coarsely, from coarse to fine.

    Args:
        rounding: The largest relative change of a number.
        factor: The largest factor between it and that of a format.
    """
    if not rounding > 0:
        return ()
    return tuple(
        name for name, bits in load_settings().formats.items() if abs(math.log2(rounding) + bits) <= math.log2(factor)
    )
