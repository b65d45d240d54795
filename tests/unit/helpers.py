"""What the unit tests share: measuring arrays, recorded values, and rows made of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import settings

from probe_core.measure import OpenPair
from probe_core.model import Kind, Level, Measurement, Mode, Pair, Row, Side, Slot, Statistics, Value, Verdict
from probe_core.protocols import Metric
from probe_core.testing import pair_of, pair_of_values

__all__ = [
    "PROPERTY",
    "look",
    "make_row",
    "make_slot",
    "measure",
    "pair_of",
    "pair_of_values",
    "tensor_value",
]

Array = np.ndarray[Any, Any]

ALL_ONE = Statistics(1.0, 1.0, 1.0, 1.0)

PROPERTY = settings(deadline=None, max_examples=150, derandomize=True, database=None)
"""Property tests run the same examples each time: a failure belongs to the change that made it."""


def measure(metric: Metric, target: Any, golden: Any) -> Sequence[Measurement]:
    """What ``metric`` says of two arrays; the pair must be one that is measured at all."""
    pair: OpenPair = pair_of(np.asarray(target), np.asarray(golden))
    assert pair.measurable, pair.obstacle
    return metric.measure(pair)


def look(metric: Metric, target: Any, golden: Any) -> list[Any]:
    """The measured values; where there is none, the code of the reason."""
    return [item.reason.code if item.reason else item.value for item in measure(metric, target, golden)]


def tensor_value(
    statistics: Statistics = ALL_ONE,
    *,
    extent: str = "[2]",
    dtype: str = "torch.float32",
    checksum: str | None = None,
    requires_grad: bool | None = False,
    kind: Kind = Kind.TENSOR,
    data_name: str | None = "x.pt",
) -> Value:
    """A recorded value, of a tensor of two elements unless told."""
    shape = tuple(int(part) for part in extent.strip("[]").split(",") if part.strip())
    return Value(
        kind,
        dtype,
        extent,
        shape if kind is Kind.TENSOR else None,
        statistics,
        checksum,
        requires_grad,
        data_name,
    )


def make_slot(value: Value, side: Side = Side.OUTPUT, name: str = "Torch.op.0.forward.output.0") -> Slot:
    """``value`` in its place."""
    return Slot(name, side, "0", value)


def make_row(
    side: Side,
    target: Value | None,
    golden: Value | None,
    numbers: dict[str, Measurement],
    mode: Mode = Mode.TENSOR,
) -> Row:
    """A row with these measurements; those of its mode's table that are not given are absent."""
    columns = {
        Mode.TENSOR: ("cosine.Cosine", "max_error.MaxAbsErr", "error_ratio.One Thousandth Err Ratio"),
        Mode.STATISTICS: ("statistics.Max diff",),
    }[mode]
    measurements = {name: numbers.get(name, Measurement.absent("no_number")) for name in columns}
    first, second = (None if value is None else make_slot(value, side) for value in (target, golden))
    return Row(Pair(first, second), "Torch.op.0.forward", measurements, Verdict(Level.PASS, ""))
