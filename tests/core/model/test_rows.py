"""Reasons keep what raised them as data."""

from __future__ import annotations

import pickle

from probe_core.model import Measurement, MetricFailure, Reason


def test_failed_keeps_metric_and_error_through_pickling() -> None:
    measurement = Measurement.failed(ValueError("it failed: badly"), "mine:limit=4")
    for reason in (measurement.reason, pickle.loads(pickle.dumps(measurement)).reason):
        assert isinstance(reason, MetricFailure)
        assert (reason.metric, reason.error) == ("mine:limit=4", "ValueError: it failed: badly")
        assert reason == Reason("metric_failed", "mine:limit=4 failed: ValueError: it failed: badly")
