"""Columns of results return what was set."""

from __future__ import annotations

import numpy as np

from probe_core.model import Drift, Level, Measurement, Reason, Verdict
from probe_core.model.results import MeasurementColumn, VerdictColumn


def test_measurements_come_back_as_they_were_set() -> None:
    items = [Measurement(item) for item in (0.5, -0.0, 1, True, "text", float("inf"))]
    items += [Measurement.absent("nan"), Measurement.absent("metric_failed", "x"), Measurement.absent("nan")]
    column = MeasurementColumn(len(items))
    for line, item in enumerate(items):
        column[line] = item
    assert [repr(column[line]) for line in range(len(items))] == [*map(repr, items)]
    assert column.has_value.tolist() == [True] * 6 + [False] * 3


def test_verdicts_come_back_as_they_were_set() -> None:
    drift = Drift(0.5, 2.0, 1e-7, 10.0)
    verdicts = [
        Verdict(Level.PASS, ""), Verdict(Level.PASS, "", drift=drift), Verdict(Level.ERROR, "x", (Reason("a", "b"),)),
        Verdict(Level.PASS, ""), Verdict(Level.ERROR, "x", (Reason("a", "c"),), True, drift),
    ]  # fmt: skip
    column = VerdictColumn([], np.zeros(len(verdicts), np.int32))
    for line, verdict in enumerate(verdicts):
        column[line] = verdict
    assert column.items(slice(0, 5)) == verdicts and [column[line] for line in range(5)] == verdicts
    column[1] = verdicts[0]
    assert column[1] == verdicts[0] and not column.has_drift[1]
    assert len(column.table) == 3, "equal verdicts share an entry"
