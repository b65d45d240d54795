"""The sizes of the batches of two runs, by what their models received."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from probe_core.errors import UserError
from probe_core.files.user_files import read_regular_file
from probe_core.model.run import Run
from probe_core.model.values import Kind, Side
from probe_matching.rows.places import BatchSize

PHASES_KEYS = {"step_phases.json": "phases", "ladder.json": "rungs"}
"""For the file of the step phases, its key; up to version 0.1 the file and the key were the last ones."""
RECORD_TOKENS_FIX = "Call debugger.tokens(ids) in both runs while they are recorded, and give --rows tokens.json."

Shape = tuple[int, ...]


def find_batches(target: Run, golden: Run) -> tuple[BatchSize, BatchSize]:
    """Return the sizes of both batches.

    The batch is the first tensor that both models received, by the phase ``batch`` of ``step_phases.json``. If
    its shapes differ along one axis, this axis holds the samples, otherwise the first one does. Without
    this file, the first tensor that a call of both runs receives and whose shapes differ along one axis
    takes its place.

    Raises:
        UserError: Neither is on record.
    """
    received = [read_batch(run.path.parent) for run in (target, golden)]
    for first, second in zip(*received):
        if first and second:
            return _create_batches(first, second)
    for first, second in _pair_input_shapes(target, golden):
        if first != second and _find_differing_axis(first, second) is not None:
            return _create_batches(first, second)
    raise UserError("The sizes of both batches are not on record.", RECORD_TOKENS_FIX)


def _create_batches(target: Shape, golden: Shape) -> tuple[BatchSize, BatchSize]:
    axis = 0 if target == golden else _find_differing_axis(target, golden)
    if axis is None:
        raise UserError(
            f"The batches have the shapes {list(target)} and {list(golden)}, which differ along "
            "several axes, so it is not known which one holds the samples.",
            RECORD_TOKENS_FIX,
        )
    return BatchSize(target[axis]), BatchSize(golden[axis])


def _find_differing_axis(target: Shape, golden: Shape) -> int | None:
    """Return the only axis along which two shapes differ; None if there is none or several."""
    if len(target) != len(golden):
        return None
    axes = [axis for axis, (first, second) in enumerate(zip(target, golden)) if first != second]
    return axes[0] if len(axes) == 1 else None


def read_batch(directory: Path) -> Sequence[Shape]:
    """Return the shapes of the tensors that a model received first; empty if they are not on record."""
    name = next((name for name in PHASES_KEYS if (directory / name).exists()), "")
    try:
        step_phases = json.loads(read_regular_file(directory / name).decode("utf-8"))[PHASES_KEYS[name]]
        step_phase = next(step_phase for step_phase in step_phases if step_phase["phase"] == "batch")
        leaves = [leaf for leaf in step_phase["values"].values() if isinstance(leaf, dict) and "shape" in leaf]
        return [tuple(int(size) for size in leaf["shape"]) for leaf in leaves]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, StopIteration):
        return ()


def _pair_input_shapes(target: Run, golden: Run) -> Sequence[tuple[Shape, Shape]]:
    """Return the shapes of the tensors that calls of the same name receive in both runs."""
    shapes = []
    for record in target.records():
        place = golden.find(record.key)
        golden_values = {} if place is None else {slot.place: slot.value for slot in golden.record(place).slots}
        for slot in record.slots:
            golden_value = golden_values.get(slot.place)
            if slot.side is Side.INPUT and slot.value.kind is Kind.TENSOR and golden_value is not None:
                shapes.append((slot.value.shape or (), golden_value.shape or ()))
    return shapes
