"""Pictures of two tensors: histograms of values and differences, and a map of the worst elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

HISTOGRAM_BINS = 40
"""Number of bars of a histogram of values."""
MAX_MAP_CELLS = 32
"""Largest number of cells of a map along either axis."""
MAX_WORST_ELEMENTS = 5
"""Number of worst elements in the list."""
SHADE_COUNT = 9
"""Number of shades of a map, not counting the shade of cells within rounding."""
MIN_SHADE_SHARE = 1e-6
"""Smallest share of the largest difference that has a separate shade."""
MIN_EXPONENT = -12
"""Power of ten below which differences share the first bar."""
RANGE_SAMPLE_SIZE = 1 << 14
"""Number of sampled elements that determine the range of a histogram."""
MAX_RANGE_WIDTHS = 20
"""Largest margin of a histogram, as a multiple of the width of the middle 98 % of the elements."""


def draw_picture(target: Array, golden: Array, noise: float, limit: int) -> dict[str, Any]:
    """Return the picture of two tensors of equal shape as JSON data.

    Args:
        target: The tensor under test.
        golden: The reference.
        noise: The relative difference that rounding explains.
        limit: Number of elements to examine; larger tensors are sampled with a stride.

    Returns:
        ``every`` (the stride), ``values`` (``low`` and ``high`` of the bars, their counts for ``target`` and
        ``golden``), ``difference`` (``low``: the power of ten of the first bar, ``counts``: elements by
        the power of ten of their difference, ``equal``, ``apart``: elements that are nan or inf on one
        side, or whose difference overflows), ``map`` (``height``, ``width`` and the ``shades`` as digits,
        row by row), ``worst`` (index, target, golden). Differences are relative to the root mean square of
        the golden.
    """
    shape = target.shape
    width = shape[-1] if shape else 1
    every, across = _choose_strides(target.size, width, limit)
    first, second = (_widen(array.reshape(-1, width)[::every, ::across]) for array in (target, golden))
    with np.errstate(all="ignore"):
        finite = np.isfinite(first) & np.isfinite(second)
        same = first == second
        difference = np.abs(first - second)
        difference[~finite] = 0.0
        magnitudes = np.abs(second[finite])
        largest = float(magnitudes.max(initial=0.0))
        scale = largest * math.sqrt(float(np.mean((magnitudes / largest) ** 2))) if largest else 0.0
        relative = difference / (scale or float(difference.max(initial=0.0)) or 1.0)
    is_sized = finite & np.isfinite(relative)
    apart = ~is_sized & ~same & ~(np.isnan(first) & np.isnan(second))
    ranked = np.where(apart, np.inf, relative)
    return {
        "every": every * across,
        "values": _compute_histograms(first, second),
        "difference": _count_exponents(relative[is_sized], int(apart.sum())),
        "map": _draw_map(ranked, shape, every, noise),
        "worst": _find_worst(ranked, first, second, shape, every, across),
        "noise": noise,
    }


def _choose_strides(size: int, width: int, limit: int) -> tuple[int, int]:
    """Return the strides over rows and within a row that sample about ``limit`` elements."""
    height = max(1, size // max(1, width))
    across = math.ceil(width / limit)
    return min(height, math.ceil(size / across / limit)), across


def _widen(array: Array) -> Array:
    """Return the elements as float64; the magnitudes of complex elements."""
    if array.dtype.kind == "c":
        return np.abs(array.astype(np.complex128))
    return array.astype(np.float64)


def _compute_histograms(target: Array, golden: Array) -> dict[str, Any]:
    """Return the histograms of both sides over a shared range; values outside count in the outer bars."""
    finite_values = [array[np.isfinite(array)] for array in (target, golden)]
    sample = np.sort(np.concatenate([array[:: max(1, array.size // RANGE_SAMPLE_SIZE)] for array in finite_values]))
    if not sample.size:
        return {"low": 0.0, "high": 0.0, "target": [], "golden": []}
    low = min(float(array.min(initial=np.inf)) for array in finite_values)
    high = max(float(array.max(initial=-np.inf)) for array in finite_values)
    near, far = (float(sample[int(share * (sample.size - 1))]) for share in (0.01, 0.99))
    margin = (far - near) * MAX_RANGE_WIDTHS
    if margin > 0:
        low, high = max(low, near - margin), min(high, far + margin)
    if not (high > low and math.isfinite(high - low)):
        high = low + (abs(low) or 1.0) * 1e-6
    counts = [
        np.histogram(np.clip(array, low, high), HISTOGRAM_BINS, (low, high))[0].tolist() for array in finite_values
    ]
    return {"low": _round_number(low), "high": _round_number(high), "target": counts[0], "golden": counts[1]}


def _count_exponents(relative: Array, apart: int) -> dict[str, Any]:
    """Return the number of elements by the power of ten of their difference, in steps of one half."""
    nonzero = relative[relative > 0]
    halves = np.floor(2 * np.maximum(np.log10(nonzero), MIN_EXPONENT)).astype(np.int64)
    low = int(halves.min()) if halves.size else 0
    counts = np.bincount(halves - low).tolist() if halves.size else []
    return {"low": low / 2, "counts": counts, "equal": int(relative.size - nonzero.size), "apart": apart}


def _draw_map(ranked: Array, shape: tuple[int, ...], every: int, noise: float) -> dict[str, Any]:
    """Return the largest difference in each cell of a coarse map over the last two axes."""
    rows, width = ranked.shape
    height = shape[-2] if len(shape) > 1 else 1
    map_rows, place = np.unique(np.arange(rows) * every % height, return_inverse=True)
    columns, lines = min(MAX_MAP_CELLS, width), min(MAX_MAP_CELLS, len(map_rows))  # every cell contains elements
    edges = np.arange(columns) * width // columns
    by_column = np.maximum.reduceat(ranked, edges, axis=1)
    cells = np.zeros((lines, columns))
    np.maximum.at(cells, place.reshape(-1) * lines // len(map_rows), by_column)
    finite = cells[np.isfinite(cells)]
    top = float(finite.max(initial=0.0))
    floor = max(noise, top * MIN_SHADE_SHARE)
    with np.errstate(all="ignore"):
        if top > floor:
            shades = np.ceil(SHADE_COUNT * np.log(cells / floor) / math.log(top / floor))
        else:
            shades = np.where(cells > floor, SHADE_COUNT, 0.0)
    shades = np.nan_to_num(np.clip(shades, 0, SHADE_COUNT), nan=0.0).astype(np.int64)
    return {"height": lines, "width": columns, "shades": "".join(map(str, shades.ravel().tolist()))}


def _find_worst(
    ranked: Array, target: Array, golden: Array, shape: tuple[int, ...], every: int, across: int
) -> list[tuple[list[int], Any, Any]]:
    """Return the worst elements with their indices and both values, the worst first."""
    flat = ranked.ravel()
    count = min(MAX_WORST_ELEMENTS, flat.size)
    least = np.partition(flat, flat.size - count)[flat.size - count]
    places = np.concatenate([np.flatnonzero(flat > least), np.flatnonzero(flat == least)[:count]])[:count]
    places = places[np.argsort(-flat[places], kind="stable")]
    elements = []
    for place in places.tolist():
        if flat[place] > 0:
            row, column = divmod(place, ranked.shape[1])
            index = np.unravel_index(row * every * (shape[-1] if shape else 1) + column * across, shape)
            values = [_round_number(float(array.ravel()[place]), 9) for array in (target, golden)]
            elements.append(([int(number) for number in index], values[0], values[1]))
    return elements


def _round_number(value: float, digits: int = 6) -> float | str:
    """Return a number rounded to ``digits`` digits; nan and inf as texts, because JSON has no such numbers."""
    return float(f"{value:.{digits}g}") if math.isfinite(value) else str(value)
