"""The sizes of the batches of two runs, by what their models received."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from probe_core.errors import UserError
from probe_core.files.given import read_given
from probe_core.model.run import Run
from probe_core.model.values import Kind, Side
from probe_matching.rows.places import Batch

LADDER_FILE = "ladder.json"
FIX = "Call debugger.tokens(ids) in both runs while they are recorded, and give --rows tokens.json."

Shape = tuple[int, ...]


def batches_of(target: Run, golden: Run) -> tuple[Batch, Batch]:
    """Return the sizes of both batches.

    The batch is the first tensor that both models received, by the phase ``batch`` of ``ladder.json``. If
    its shapes differ along one axis, this axis holds the samples, otherwise the first one does. Without
    this file, the first tensor that a call of both runs receives and whose shapes differ along one axis
    takes its place.

    Raises:
        UserError: Neither is on record.
    """
    received = [read_batch(run.path.parent) for run in (target, golden)]
    for first, second in zip(*received):
        if first and second:
            return _sizes(first, second)
    for first, second in _inputs(target, golden):
        if first != second and _axis(first, second) is not None:
            return _sizes(first, second)
    raise UserError("The sizes of both batches are not on record.", FIX)


def _sizes(target: Shape, golden: Shape) -> tuple[Batch, Batch]:
    axis = 0 if target == golden else _axis(target, golden)
    if axis is None:
        raise UserError(
            f"The batches have the shapes {list(target)} and {list(golden)}, which differ along "
            "several axes, so it is not known which one holds the samples.",
            FIX,
        )
    return Batch(target[axis]), Batch(golden[axis])


def _axis(target: Shape, golden: Shape) -> int | None:
    """Return the only axis along which two shapes differ; None if there is none or several."""
    if len(target) != len(golden):
        return None
    axes = [axis for axis, (first, second) in enumerate(zip(target, golden)) if first != second]
    return axes[0] if len(axes) == 1 else None


def read_batch(directory: Path) -> Sequence[Shape]:
    """Return the shapes of the tensors that a model received first; empty if they are not on record."""
    try:
        rungs = json.loads(read_given(directory / LADDER_FILE).decode("utf-8"))["rungs"]
        rung = next(rung for rung in rungs if rung["phase"] == "batch")
        leaves = [leaf for leaf in rung["values"].values() if isinstance(leaf, dict) and "shape" in leaf]
        return [tuple(int(size) for size in leaf["shape"]) for leaf in leaves]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, StopIteration):
        return ()


def _inputs(target: Run, golden: Run) -> Sequence[tuple[Shape, Shape]]:
    """Return the shapes of the tensors that calls of the same name receive in both runs."""
    found = []
    for record in target.records():
        place = golden.find(record.key)
        others = {} if place is None else {slot.place: slot.value for slot in golden.record(place).slots}
        for slot in record.slots:
            other = others.get(slot.place)
            if slot.side is Side.INPUT and slot.value.kind is Kind.TENSOR and other is not None:
                found.append((slot.value.shape or (), other.shape or ()))
    return found
