"""Rounding of long sums, by operator, dtype and number of summands (docs/first-difference.md#long-sums)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from probe_core.files.packaged import load_yaml
from probe_core.model import Side
from probe_core.model.batches import RowBatch
from probe_core.model.columns import SIDES, Array
from probe_diagnosis.timeline.value_table import NO_QUANTITY, SAME_CODE, ValueTable, largest_of_each

ALONG = ("normalisation", "softmax", "scan")
"""Classes that sum along an axis that their results still have."""


@cache
def data() -> Mapping[str, Any]:
    """Return the contents of ``floors.yaml``."""
    loaded: dict[str, Any] = load_yaml(__package__, "floors.yaml")
    return loaded


@cache
def _classes() -> Mapping[tuple[str, str], str]:
    """Return the class of operators by the bare name and the direction of an API."""
    return {
        (api, direction): name
        for name, directions in data()["apis"].items()
        for direction, apis in directions.items()
        for api in apis
    }


def class_of(op: str) -> str:
    """Return the class of operators that a call belongs to; empty if none was calibrated for it."""
    parts = op.split(".")
    if len(parts) < 4 or not parts[-2].isdecimal():
        return ""
    return _classes().get((parts[-3].strip("_"), parts[-1]), "")


def floor_of(name: str, dtype: str, length: float) -> float:
    """Return the largest relative distance of right results of a class that was measured.

    Args:
        name: The class.
        dtype: The dtype without its framework, such as ``bfloat16``.
        length: The number of summands. Between two that were measured the larger one serves; beyond the last
            one the floor grows by the square root, as errors of independent signs do.

    Returns:
        At most the ceiling; 0 if nothing was measured for the dtype.
    """
    found: Sequence[float] = data()["floors"][name].get(dtype, ())
    if not found:
        return 0.0
    lengths: Sequence[int] = data()["lengths"]
    place = next((n for n, one in enumerate(lengths[: len(found)]) if length <= one), len(found) - 1)
    growth = math.sqrt(max(1.0, length / lengths[place]))
    most = min(found[place] * growth, math.sqrt(length))
    return float(min(most * data()["eps"][dtype], data()["ceiling"]))


def apply_floors(batch: RowBatch, table: ValueTable) -> None:
    """Mark results as the same that differ by no more than the floor of the class of their call.

    Args:
        batch: The rows.
        table: Their differences, one line per row.
    """
    lines = table.lines
    is_open = table.differs & table.is_tensor & (lines["side"] == SIDES.index(Side.OUTPUT))
    is_open &= (lines["noise"] > 0) & (lines["scale"] > 0) & np.isfinite(lines["scale"])
    if not is_open.any():
        return
    shapes = _shapes(batch)
    with np.errstate(over="ignore"):
        relative = np.divide(lines["distance"], lines["scale"], out=np.zeros(len(lines)), where=is_open)
    lengths = _lengths(batch, shapes[0], table.is_source)
    is_open &= (relative > lines["noise"]) & (relative <= data()["ceiling"])
    names = _coarser(batch)
    most = np.sqrt(np.maximum(lengths, shapes[1])) * np.array([data()["eps"].get(n, math.inf) for n in names])
    places = np.flatnonzero(is_open & (relative <= most))
    ops = np.searchsorted(batch.starts, places, "right") - 1
    for place, op in zip(places.tolist(), ops.tolist()):
        name = class_of(batch.ops[op])
        along = shapes[1][place] if name in ALONG else 1.0
        floor = floor_of(name, names[place], max(along, lengths[place])) if name else 0.0
        if relative[place] <= floor:
            lines[place]["noise"], lines[place]["state"] = floor, SAME_CODE
            lines[place]["quantity"] = NO_QUANTITY
            table.texts.pop(place, None)


def _shapes(batch: RowBatch) -> tuple[Array, Array]:
    """Return the number of elements and the largest dimension of each row; 1 for a scalar."""
    found = []
    for measure in (math.prod, lambda shape: max(shape, default=1)):
        sides = [
            np.array([float(measure(shape or ())) for _, shape in side.columns.extents] or [1.0])[
                side.column("extent")
            ]
            for side in (batch.target, batch.golden)
        ]
        found.append(np.where(batch.target.is_present, *sides))
    return found[0], found[1]


def _coarser(batch: RowBatch) -> list[str]:
    """Return the dtype of each row's tensors whose eps is larger, without its framework."""
    eps = data()["eps"]
    names = [
        [name.rpartition(".")[2] for name in side.columns.dtypes] for side in (batch.target, batch.golden)
    ]
    codes = batch.target.column("dtype"), batch.golden.column("dtype")
    sizes = [np.array([eps.get(name, math.inf) for name in table])[code] for table, code in zip(names, codes)]
    sizes[0][~batch.target.is_present], sizes[1][~batch.golden.is_present] = -1.0, -1.0
    is_golden = (sizes[1] > sizes[0]).tolist()
    return [names[side][codes[side][line]] for line, side in enumerate(is_golden)]


def _lengths(batch: RowBatch, sizes: Array, is_source: Array) -> Array:
    """Return the largest possible number of summands of an element, by the sizes of the inputs."""
    received = np.where(is_source, sizes, -1.0)
    ops = np.repeat(np.arange(len(batch.ops)), np.diff(batch.starts))
    first = largest_of_each(received, batch.starts)
    places = np.flatnonzero(received == first[ops])
    received[places[np.diff(ops[places], prepend=-1) != 0]] = -1.0
    second = largest_of_each(received, batch.starts)
    first, second = (np.where(largest < 0, 1.0, largest)[ops] for largest in (first, second))
    own = np.maximum(sizes, 1.0)
    lengths: Array = np.maximum(np.maximum(first / own, np.sqrt(first * second / own)), 1.0)
    return lengths
