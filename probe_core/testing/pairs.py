"""Opened pairs for tests, created from arrays or recorded values."""

from __future__ import annotations

from typing import Any

import numpy as np

from probe_core.model import Kind, Mode, Pair, Side, Slot, Statistics, Value
from probe_core.model.measure import OpenPair

Array = np.ndarray[Any, Any]


class _SingleTensorRun:
    """A stand-in for a run, with a single tensor in memory."""

    def __init__(self, array: Array) -> None:
        self._array = array

    def tensor(self, value: Value) -> Array:
        return self._array


def pair_of(target: Array, golden: Array, name: str = "Functional.op.0.forward.output.0") -> OpenPair:
    """Return an opened pair of two tensors."""
    pair = Pair(_create_slot(name, value_of(target)), _create_slot(name, value_of(golden)))
    return OpenPair(pair, Mode.TENSOR, _SingleTensorRun(target), _SingleTensorRun(golden))


def pair_of_values(
    target: Value | None, golden: Value | None, mode: Mode = Mode.STATISTICS,
    name: str = "Functional.op.0.forward.output.0",
) -> OpenPair:  # fmt: skip
    """Return a pair of recorded values without data; None for a missing side."""
    first, second = (None if value is None else _create_slot(name, value) for value in (target, golden))
    empty_run = _SingleTensorRun(np.empty(0))
    return OpenPair(Pair(first, second), mode, empty_run, empty_run)


def _create_slot(name: str, value: Value) -> Slot:
    side = Side.OUTPUT if ".output" in name else Side.INPUT
    return Slot(name, side, name.rpartition(".")[2], value)


def value_of(array: Array) -> Value:
    """Return the value that a recorder writes for an array, with its statistics."""
    numbers: Array = np.abs(array) if array.dtype.kind == "c" else array
    statistics = Statistics()
    if array.size and array.dtype.kind in "fiu":
        wide = numbers.astype(np.float64)
        with np.errstate(all="ignore"):
            statistics = Statistics(
                float(wide.max()), float(wide.min()), float(wide.mean()), float(np.sqrt((wide**2).sum()))
            )
    shape = array.shape
    return Value(Kind.TENSOR, array.dtype.name, str(list(shape)), shape, statistics, None, False, "tensor")
