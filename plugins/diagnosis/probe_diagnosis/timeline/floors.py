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
from probe_core.store.names import get_api_name, get_phase, is_module
from probe_diagnosis.timeline.value_table import NO_QUANTITY, SAME_CODE, ValueTable, find_group_maxima

AXIS_CLASSES = ("normalization", "softmax", "scan")
"""Classes that sum along an axis that their results still have."""


@cache
def load_floors() -> Mapping[str, Any]:
    """Return the contents of ``floors.yaml``."""
    loaded: dict[str, Any] = load_yaml(__package__, "floors.yaml")
    return loaded


@cache
def _load_classes() -> Mapping[tuple[str, str], str]:
    """Return the class of operators by the bare name and the direction of an API."""
    return {
        (api, direction): name
        for name, directions in load_floors()["apis"].items()
        for direction, apis in directions.items()
        for api in apis
    }


def find_class(op: str) -> str:
    """Return the class of operators that a call belongs to; empty if none was calibrated for it."""
    return "" if is_module(op) else _load_classes().get((get_api_name(op).strip("_"), get_phase(op)), "")


def find_floor(name: str, dtype: str, length: float) -> float:
    """Return the largest relative distance of right results of a class that was measured.

    Args:
        name: The class.
        dtype: The dtype without its framework, such as ``bfloat16``.
        length: The number of summands. Between two that were measured the larger one serves; beyond the last
            one the floor grows by the square root, as errors of independent signs do.

    Returns:
        At most the ceiling; 0 if nothing was measured for the dtype.
    """
    floors: Sequence[float] = load_floors()["floors"][name].get(dtype, ())
    if not floors:
        return 0.0
    lengths: Sequence[int] = load_floors()["lengths"]
    place = next((n for n, bound in enumerate(lengths[: len(floors)]) if length <= bound), len(floors) - 1)
    growth = math.sqrt(max(1.0, length / lengths[place]))
    limit = min(floors[place] * growth, math.sqrt(length))
    return float(min(limit * load_floors()["eps"][dtype], load_floors()["ceiling"]))


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
    shapes = _measure_shapes(batch)
    with np.errstate(over="ignore"):
        relative = np.divide(lines["distance"], lines["scale"], out=np.zeros(len(lines)), where=is_open)
    lengths = _estimate_lengths(batch, shapes[0], table.is_source)
    is_open &= (relative > lines["noise"]) & (relative <= load_floors()["ceiling"])
    names = _list_coarser_dtypes(batch)
    limit = np.sqrt(np.maximum(lengths, shapes[1])) * np.array([load_floors()["eps"].get(n, math.inf) for n in names])
    places = np.flatnonzero(is_open & (relative <= limit))
    ops = np.searchsorted(batch.starts, places, "right") - 1
    for place, op in zip(places.tolist(), ops.tolist()):
        name = find_class(batch.ops[op])
        along = shapes[1][place] if name in AXIS_CLASSES else 1.0
        floor = find_floor(name, names[place], max(along, lengths[place])) if name else 0.0
        if relative[place] <= floor:
            lines[place]["noise"], lines[place]["state"] = floor, SAME_CODE
            lines[place]["quantity"] = NO_QUANTITY
            table.texts.pop(place, None)


def _measure_shapes(batch: RowBatch) -> tuple[Array, Array]:
    """Return the number of elements and the largest dimension of each row; 1 for a scalar."""
    results = []
    for measure in (math.prod, lambda shape: max(shape, default=1)):
        sides = [
            np.array([float(measure(shape or ())) for _, shape in side.columns.extents] or [1.0])[side.column("extent")]
            for side in (batch.target, batch.golden)
        ]
        results.append(np.where(batch.target.is_present, *sides))
    return results[0], results[1]


def _list_coarser_dtypes(batch: RowBatch) -> list[str]:
    """Return the dtype of each row's tensors whose eps is larger, without its framework."""
    eps = load_floors()["eps"]
    names = [[name.rpartition(".")[2] for name in side.columns.dtypes] for side in (batch.target, batch.golden)]
    codes = batch.target.column("dtype"), batch.golden.column("dtype")
    sizes = [np.array([eps.get(name, math.inf) for name in table])[code] for table, code in zip(names, codes)]
    sizes[0][~batch.target.is_present], sizes[1][~batch.golden.is_present] = -1.0, -1.0
    is_golden = (sizes[1] > sizes[0]).tolist()
    return [names[side][codes[side][line]] for line, side in enumerate(is_golden)]


def _estimate_lengths(batch: RowBatch, sizes: Array, is_source: Array) -> Array:
    """Return the largest possible number of summands of an element, by the sizes of the inputs."""
    received = np.where(is_source, sizes, -1.0)
    ops = np.repeat(np.arange(len(batch.ops)), np.diff(batch.starts))
    first = find_group_maxima(received, batch.starts)
    places = np.flatnonzero(received == first[ops])
    received[places[np.diff(ops[places], prepend=-1) != 0]] = -1.0
    second = find_group_maxima(received, batch.starts)
    first, second = (np.where(largest < 0, 1.0, largest)[ops] for largest in (first, second))
    element_counts = np.maximum(sizes, 1.0)
    lengths: Array = np.maximum(np.maximum(first / element_counts, np.sqrt(first * second / element_counts)), 1.0)
    return lengths
