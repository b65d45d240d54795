"""Rounding of long sums, by operator, dtype and number of summands (docs/first-difference.md#long-sums)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from probe_core.files.packaged import load_yaml
from probe_core.model import Row, Side
from probe_diagnosis.difference.facts import DIFFERS, SAME, Apart

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


def with_floors(op: str, rows: Sequence[Row], values: Sequence[Apart]) -> list[Apart]:
    """Return the values of a call; results that differ by no more than the floor of its class are the same.

    Args:
        op: The key of the call.
        rows: Its rows.
        values: Their distances.
    """
    found = list(values)
    if not any(map(_is_open, values)):
        return found
    name = class_of(op)
    if not name:
        return found
    sizes = [_size(row) for row in rows]
    for n, value in enumerate(values):
        if not _is_open(value):
            continue
        floor = floor_of(name, _coarser(rows[n]), _length(name, rows, sizes, n))
        if value.noise < value.distance / value.scale <= floor:
            found[n] = value._replace(noise=floor, state=SAME, why="")
    return found


def _is_open(value: Apart) -> bool:
    """Return True for a result that differs by a distance that a floor may explain."""
    return (
        value.state == DIFFERS
        and value.side is Side.OUTPUT
        and not value.is_scalar
        and value.noise > 0
        and 0 < value.scale < math.inf
        and value.distance < math.inf
    )


def _coarser(row: Row) -> str:
    """Return the dtype of a row's tensors whose eps is larger, without its framework."""
    names = [slot.value.dtype.rpartition(".")[2] for slot in row.pair[:2] if slot is not None]
    eps = data()["eps"]
    return max(names, key=lambda name: eps.get(name, math.inf))


def _length(name: str, rows: Sequence[Row], sizes: Sequence[int], place: int) -> float:
    """Return the number of summands of each element of a result, at most."""
    taken = sorted((size for row, size in zip(rows, sizes) if row.pair.side.is_source), reverse=True)
    first, second = [*taken, 1, 1][:2]
    size = max(1, sizes[place])
    along = max(_shape(rows[place]), default=1) if name in ALONG else 1
    return max(1.0, along, first / size, math.sqrt(first * second / size))


def _shape(row: Row) -> Sequence[int]:
    slot = row.pair.target or row.pair.golden
    return () if slot is None else slot.value.shape or ()


def _size(row: Row) -> int:
    return math.prod(_shape(row))
