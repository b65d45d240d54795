"""The verdict on a row of the table of tensors: each rule at its boundary, and just past it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from probe_metrics.accuracy import Accuracy
from probe_metrics.cosine import Cosine
from probe_metrics.max_error import MaxError
from support.measuring import above, accuracy, below, measure, scalar_value, tensor_value

from probe_core.model import Level, Mode, Reason, Value, Verdict
from probe_core.testing import pair_of, pair_of_values

nan, inf = math.nan, math.inf


@pytest.mark.parametrize(
    ("cosine", "absolute", "label"),
    [
        pytest.param("shape", "shape", "Unmatched", id="1: shapes differ"),
        pytest.param("positions", "positions", "No", id="3: nan or inf at different places"),
        pytest.param("unreadable", "unreadable", "None", id="4: file not read"),
        pytest.param("empty", "empty", "None", id="4: no elements"),
        pytest.param("no_target_file", "no_target_file", "None", id="4: no file"),
        pytest.param("no_golden_file", "no_golden_file", "None", id="4: no golden file"),
        pytest.param("golden_unmatched", "golden_unmatched", "None", id="4: no partner"),
        pytest.param("not_a_tensor", "not_a_tensor", "None", id="4: no tensor"),
        pytest.param("zero_dimensional", 0.5, "None", id="4: 0-d has no cosine"),
        pytest.param("one_element", 0.5, "None", id="4: one element has no cosine"),
        # 5: Cosine < 0.99 and MaxAbsErr > 0.001
        pytest.param(below(0.99), above(0.001), "No", id="5: just past both"),
        pytest.param(0.99, above(0.001), "Yes", id="5: at the cosine"),
        pytest.param(below(0.99), 0.001, "Yes", id="5: at the error"),
        pytest.param(0.99, 1.0, "Yes", id="5: at the cosine, the largest error allowed"),
        # 6: Cosine < 0.9 or MaxAbsErr > 1
        pytest.param(below(0.9), 0.0, "No", id="6: just past the cosine"),
        pytest.param(0.9, 0.0, "Yes", id="6: at the cosine"),
        pytest.param(1.0, above(1.0), "No", id="6: just past the error"),
        pytest.param(1.0, 1.0, "Yes", id="6: at the error"),
        pytest.param(-1.0, 0.0, "No", id="6: opposite"),
        pytest.param(1.0, inf, "No", id="6: an error without end"),
        # 7
        pytest.param(1.0, 0.0, "Yes", id="7: alike"),
        pytest.param(0.95, 0.0005, "Yes", id="7: bad cosine of a small error"),
        pytest.param(0.999, 0.5, "Yes", id="7: large error of a good cosine"),
    ],
)
def test_accuracy_rules(cosine: Any, absolute: Any, label: str) -> None:
    """docs/tables.md#accuracy; strict inequalities, first hit wins."""
    assert accuracy(cosine, absolute).label == label


@pytest.mark.parametrize("code", ["target_zero", "golden_zero"])
@pytest.mark.parametrize(
    ("absolute", "label"),
    [(0.001, "Yes"), (above(0.001), "No"), (1e-30, "Yes"), (5.0, "No"), (inf, "No")],
)
def test_one_side_all_zero(code: str, absolute: float, label: str) -> None:
    """Counts as cosine 0, so only the error of rule 5 decides, and rule 6 does not."""
    assert accuracy(code, absolute, inf).label == label


@pytest.mark.parametrize(
    ("label", "level", "failed"),
    [("Yes", Level.PASS, False), ("No", Level.ERROR, True), ("Unmatched", Level.ERROR, False)],
)
def test_levels_of_the_labels(label: str, level: Level, failed: bool) -> None:
    """The advisor looks at No alone (docs/tables.md#advisor); the summary also at shapes that differ."""
    verdict = {
        "Yes": accuracy(1.0, 0.0), "No": accuracy(0.5, 0.5), "Unmatched": accuracy("shape", "shape"),
    }[label]  # fmt: skip
    assert (verdict.label, verdict.level, verdict.failed) == (label, level, failed)
    assert bool(verdict.reasons) is (level is Level.ERROR), "an error without evidence convinces nobody"


@pytest.mark.parametrize("code", ["zero_dimensional", "one_element"])
@pytest.mark.parametrize(
    ("absolute", "relative", "level"),
    [
        (above(0.001), above(0.05), Level.ERROR),
        (0.001, 1.0, Level.PASS),
        (1.0, 0.05, Level.PASS),
        (1.0, inf, Level.ERROR),
        (0.0, 0.0, Level.PASS),
    ],
)
def test_one_element_is_judged_for_the_summary(code: str, absolute: float, relative: float, level: Level) -> None:
    """The table leaves it None as the guide does; a loss that differs must still be a suspect."""
    verdict = accuracy(code, absolute, relative)
    assert verdict.label == "None"
    assert verdict.level is level
    assert not verdict.failed


def judged(target: Any, golden: Any) -> Verdict:
    """Arrays measured and judged."""
    target, golden = np.asarray(target), np.asarray(golden)
    (cosine,), (absolute, relative) = (measure(metric, target, golden) for metric in (Cosine(), MaxError()))
    measurements = {
        "cosine.Cosine": cosine,
        "max_error.MaxAbsErr": absolute,
        "max_error.MaxRelativeErr": relative,
    }
    return Accuracy().judge(pair_of(target, golden), measurements)


@pytest.mark.parametrize(
    ("target", "golden", "label", "level"),
    [
        pytest.param(nan, 1.0, "No", Level.ERROR, id="0-d nan on one side"),
        pytest.param(1.0, inf, "No", Level.ERROR, id="0-d inf on one side"),
        pytest.param(inf, -inf, "No", Level.ERROR, id="0-d inf of both signs"),
        pytest.param(nan, nan, "None", Level.PASS, id="0-d nan on both sides"),
        pytest.param(2.0, 1.0, "None", Level.ERROR, id="0-d that differs"),
        pytest.param(1.0, 1.0, "None", Level.PASS, id="0-d"),
        pytest.param([0.0, 0.0], [0.0, 0.01], "No", Level.ERROR, id="zero side"),
        pytest.param([0.0, 0.0], [0.0, 0.0005], "Yes", Level.PASS, id="zero side of a small error"),
        pytest.param([0.0, 0.0], [0.0, 0.0], "Yes", Level.PASS, id="both zero"),
        pytest.param([nan, 1.0], [nan, 1.0], "Yes", Level.PASS, id="nan on both sides"),
        pytest.param([1e300, 1.0], [-1e300, 1.0], "No", Level.ERROR, id="huge and opposite"),
        pytest.param([1.7e308, 1.0], [-1.7e308, 1.0], "No", Level.ERROR, id="error beyond float64"),
    ],
)
def test_from_arrays_to_the_label(target: Any, golden: Any, label: str, level: Level) -> None:
    verdict = judged(target, golden)
    assert (verdict.label, verdict.level) == (label, level)


@pytest.mark.parametrize(
    ("target", "golden", "differ"),
    [
        (scalar_value(1.05), scalar_value(1.0), True),
        (scalar_value(1.0), scalar_value(1.0), False),
        (scalar_value(True), scalar_value(False), True),
        (scalar_value("sum"), scalar_value("mean"), True),
        (scalar_value(nan), scalar_value(nan), False),
        (scalar_value(nan), scalar_value(0.0), True),
        (scalar_value(None, "0a"), scalar_value(None, "0b"), True),
        (scalar_value(None, "0a"), scalar_value(None, "0a"), False),
    ],
)
def test_scalars_in_a_table_of_tensors(target: Value, golden: Value, differ: bool) -> None:
    """The label stays None, but a scalar that differs may be the fault itself."""
    verdict = accuracy("not_a_tensor", "not_a_tensor", pair=pair_of_values(target, golden, Mode.TENSOR))
    assert verdict.label == "None"
    assert (verdict.level is Level.ERROR) is verdict.failed is differ


@pytest.mark.parametrize(
    ("target", "golden", "code", "level"),
    [
        (tensor_value(), None, "golden_unmatched", Level.WARNING),
        (None, tensor_value(), "no_target", Level.WARNING),
        (tensor_value(data_name=None), tensor_value(), "no_target_file", Level.WARNING),
        (tensor_value(), tensor_value(data_name=None), "no_golden_file", Level.WARNING),
        (tensor_value(extent="[0]"), tensor_value(extent="[0]"), "empty", Level.SKIP),
        (scalar_value(2), scalar_value(2), "not_a_tensor", Level.SKIP),
    ],
)
def test_what_was_not_measured(target: Value | None, golden: Value | None, code: str, level: Level) -> None:
    """Missing measurements are a warning; those that cannot exist are not."""
    pair = pair_of_values(target, golden, Mode.TENSOR)
    assert pair.obstacle == Reason(code)
    verdict = accuracy(code, code, code, pair)
    assert (verdict.label, verdict.level, verdict.failed) == ("None", level, False)


def test_a_file_that_cannot_be_read_is_a_warning() -> None:
    assert accuracy("unreadable", "unreadable").level is Level.WARNING
