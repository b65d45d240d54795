"""Measurements of arrays and recorded values, and the verdict on them."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from probe_metrics.accuracy import Accuracy

from probe_core.files import mapped
from probe_core.model import Kind, Measurement, Statistics, Value, Verdict
from probe_core.model.measure import OpenPair
from probe_core.plugins.protocols import Metric
from probe_core.testing import pair_of
from support.sampling import examples

PROPERTY = settings(
    deadline=None,
    max_examples=examples(150),
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.filter_too_much],
)
"""Property tests run the same examples each time: a failure belongs to the change that made it."""

ALL_ONE = Statistics(1.0, 1.0, 1.0, 1.0)


def above(value: float) -> float:
    """The next number."""
    return math.nextafter(value, math.inf)


def below(value: float) -> float:
    """The number before."""
    return math.nextafter(value, -math.inf)


def measure(metric: Metric, target: Any, golden: Any) -> Sequence[Measurement]:
    """Return what ``metric`` says of two arrays; the pair must be one that is measured at all."""
    pair: OpenPair = pair_of(np.asarray(target), np.asarray(golden))
    assert pair.measurable, pair.obstacle
    return metric.measure(pair)


def look(metric: Metric, target: Any, golden: Any) -> list[Any]:
    """The measured values; where there is none, the code of the reason."""
    return [item.reason.code if item.reason else item.value for item in measure(metric, target, golden)]


def measured(value: Any) -> Measurement:
    """A number, or the absence of one for the reason whose code is given."""
    return Measurement.absent(value) if isinstance(value, str) else Measurement(value)


def tensor_value(
    statistics: Statistics = ALL_ONE,
    *,
    extent: str = "[2]",
    dtype: str = "torch.float32",
    checksum: str | None = None,
    requires_grad: bool | None = False,
    data_name: str | None = "x.pt",
) -> Value:
    """A recorded value, of a tensor of two elements unless told."""
    shape = tuple(int(part) for part in extent.strip("[]").split(",") if part.strip())
    return Value(Kind.TENSOR, dtype, extent, shape, statistics, checksum, requires_grad, data_name)


def scalar_value(value: Any, checksum: str | None = None) -> Value:
    """A recorded scalar."""
    return Value(Kind.SCALAR, f"<class '{type(value).__name__}'>", "[]", None,
                 Statistics(value, value, value, value), checksum)  # fmt: skip


def accuracy(cosine: Any, absolute: Any, relative: Any = 0.0, pair: OpenPair | None = None) -> Verdict:
    """The verdict of the table of tensors on these measurements."""
    return Accuracy().judge(
        pair or pair_of(np.ones(2), np.ones(2)),
        {
            "cosine.Cosine": measured(cosine),
            "max_error.MaxAbsErr": measured(absolute),
            "max_error.MaxRelativeErr": measured(relative),
        },
    )


class EasyGuard:
    """A guard over mapped files that never sees one torn."""

    def watch(self, memory: mmap.mmap) -> int:
        return 0

    def unwatch(self, number: int) -> None:
        pass

    def torn(self, number: int) -> bool:
        return False


@contextmanager
def mapping(guard: mapped.Guard | None) -> Iterator[None]:
    """Within the block large tensor files are mapped, under ``guard``; with None, read."""
    before = mapped._GuardHolder.guard
    mapped.install_guard(guard)
    try:
        with mapped.allow_mapping:
            yield
    finally:
        mapped.install_guard(before)
