"""What the policies make of measurements: each rule just past its boundary, and at it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import make_row, make_slot, measure, pair_of, pair_of_values, tensor_value
from probe_metrics.accuracy import Accuracy
from probe_metrics.advisor import advise
from probe_metrics.checksum_result import ChecksumResult
from probe_metrics.cosine import Cosine
from probe_metrics.highlight import Highlight
from probe_metrics.max_error import MaxError
from probe_metrics.statistics_result import StatisticsResult

from probe_core.measure import OpenPair
from probe_core.messages import REASONS
from probe_core.model import (
    Colour,
    Kind,
    Level,
    Measurement,
    Mode,
    Pair,
    Reason,
    Row,
    Side,
    Statistics,
    Suspect,
    Value,
    Verdict,
)
from probe_core.report import Op, Report

nan, inf = math.nan, math.inf


def above(value: float) -> float:
    return math.nextafter(value, inf)


def below(value: float) -> float:
    return math.nextafter(value, -inf)


def measured(value: Any) -> Measurement:
    """A number, or the absence of one for the reason whose code is given."""
    return Measurement.absent(value) if isinstance(value, str) else Measurement(value)


# -- accuracy ----------------------------------------------------------------------------------


def accuracy(cosine: Any, absolute: Any, relative: Any = 0.0, pair: OpenPair | None = None) -> Verdict:
    return Accuracy().judge(
        pair or pair_of(np.ones(2), np.ones(2)),
        {
            "cosine.Cosine": measured(cosine),
            "max_error.MaxAbsErr": measured(absolute),
            "max_error.MaxRelativeErr": measured(relative),
        },
    )


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
    """spec/compare 5.4; strict inequalities, first hit wins."""
    assert accuracy(cosine, absolute).label == label


@pytest.mark.parametrize("code", ["target_zero", "golden_zero"])
@pytest.mark.parametrize(
    ("absolute", "label"),
    [(0.001, "Yes"), (above(0.001), "No"), (1e-30, "Yes"), (5.0, "No"), (inf, "No")],
)
def test_one_side_all_zero(code: str, absolute: float, label: str) -> None:
    """Decision D10: counts as cosine 0, so only the error of rule 5 decides, and rule 6 does not."""
    assert accuracy(code, absolute, inf).label == label


@pytest.mark.parametrize(
    ("label", "level", "failed"),
    [("Yes", Level.PASS, False), ("No", Level.ERROR, True), ("Unmatched", Level.ERROR, False)],
)
def test_levels_of_the_labels(label: str, level: Level, failed: bool) -> None:
    """The advisor looks at No alone (spec/compare 10); the summary also at shapes that differ."""
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
def test_one_element_is_judged_for_the_summary(
    code: str, absolute: float, relative: float, level: Level
) -> None:
    """The table leaves it None as the seed does; a loss that differs must still be a suspect."""
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
        pytest.param(nan, 1.0, "No", Level.ERROR, id="0-d nan on one side, D3"),
        pytest.param(1.0, inf, "No", Level.ERROR, id="0-d inf on one side, D3"),
        pytest.param(inf, -inf, "No", Level.ERROR, id="0-d inf of both signs, D3 with D11"),
        pytest.param(nan, nan, "None", Level.PASS, id="0-d nan on both sides"),
        pytest.param(2.0, 1.0, "None", Level.ERROR, id="0-d that differs"),
        pytest.param(1.0, 1.0, "None", Level.PASS, id="0-d"),
        pytest.param([0.0, 0.0], [0.0, 0.01], "No", Level.ERROR, id="zero side, D10"),
        pytest.param([0.0, 0.0], [0.0, 0.0005], "Yes", Level.PASS, id="zero side of a small error, D10"),
        pytest.param([0.0, 0.0], [0.0, 0.0], "Yes", Level.PASS, id="both zero"),
        pytest.param([nan, 1.0], [nan, 1.0], "Yes", Level.PASS, id="nan on both sides"),
        pytest.param([1e300, 1.0], [-1e300, 1.0], "No", Level.ERROR, id="huge and opposite"),
        pytest.param([1.7e308, 1.0], [-1.7e308, 1.0], "No", Level.ERROR, id="error beyond float64"),
    ],
)
def test_from_arrays_to_the_label(target: Any, golden: Any, label: str, level: Level) -> None:
    verdict = judged(target, golden)
    assert (verdict.label, verdict.level) == (label, level)


def scalar(value: Any, checksum: str | None = None) -> Value:
    return Value(Kind.SCALAR, f"<class '{type(value).__name__}'>", "[]", None,
                 Statistics(value, value, value, value), checksum)  # fmt: skip


@pytest.mark.parametrize(
    ("target", "golden", "differ"),
    [
        (scalar(1.05), scalar(1.0), True),
        (scalar(1.0), scalar(1.0), False),
        (scalar(True), scalar(False), True),
        (scalar("sum"), scalar("mean"), True),
        (scalar(nan), scalar(nan), False),
        (scalar(nan), scalar(0.0), True),
        (scalar(None, "0a"), scalar(None, "0b"), True),
        (scalar(None, "0a"), scalar(None, "0a"), False),
    ],
)
def test_scalars_in_a_table_of_tensors(target: Value, golden: Value, differ: bool) -> None:
    """Decision D20: the label stays None, but a scalar that differs may be the fault itself."""
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
        (scalar(2), scalar(2), "not_a_tensor", Level.SKIP),
    ],
)
def test_what_was_not_measured(target: Value | None, golden: Value | None, code: str, level: Level) -> None:
    """What should have been there is a warning; what cannot be measured by nature is not."""
    pair = pair_of_values(target, golden, Mode.TENSOR)
    assert pair.obstacle == Reason(code)
    verdict = accuracy(code, code, code, pair)
    assert (verdict.label, verdict.level, verdict.failed) == ("None", level, False)


def test_a_file_that_cannot_be_read_is_a_warning() -> None:
    assert accuracy("unreadable", "unreadable").level is Level.WARNING


# -- result of the table of statistics ---------------------------------------------------------


def statistics_result(target: Value | None, golden: Value | None) -> Verdict:
    return StatisticsResult().judge(pair_of_values(target, golden), {})


def of_one(target: Any, golden: Any, place: str = "max") -> Verdict:
    """One statistic differs; the others say a tensor of magnitude 1."""
    plain = {"max": 1.0, "min": -1.0, "mean": 0.5, "norm": 2.0}
    first, second = (tensor_value(Statistics(**{**plain, place: value})) for value in (target, golden))
    return statistics_result(first, second)


@pytest.mark.parametrize("place", ["max", "min", "mean", "norm"])
@pytest.mark.parametrize(
    ("target", "golden", "label"),
    [
        pytest.param(1.5, 1.0, "", id="exactly half"),
        pytest.param(above(1.5), 1.0, "Warning", id="just past half"),
        pytest.param(0.5, 1.0, "", id="exactly half below"),
        pytest.param(0.4999999999, 1.0, "Warning", id="just past half below"),
        pytest.param(-1.5, -1.0, "", id="exactly half, negative"),
        pytest.param(above(1.5) * -1, -1.0, "Warning", id="just past half, negative"),
        pytest.param(1.0, -1.0, "Warning", id="the sign"),
        pytest.param(1.6, 1.0, "Warning", id="conflict C1: the golden is the denominator"),
        pytest.param(1.0, 1.6, "", id="conflict C1, sides changed"),
        pytest.param(3, 2, "", id="integers, exactly half"),
        pytest.param(4, 2, "Warning", id="integers"),
        # the golden is zero: over the larger magnitude and 1e-10
        pytest.param(0.0, 0.0, "", id="both zero"),
        pytest.param(-0.0, 0.0, "", id="both zero, signs differ"),
        pytest.param(0.01, 0.0, "Warning", id="against zero"),
        pytest.param(-0.01, 0.0, "Warning", id="below zero against zero"),
        pytest.param(1e-10, 0.0, "", id="against zero, exactly half"),
        pytest.param(1.000001e-10, 0.0, "Warning", id="against zero, just past half"),
        pytest.param(0.0, 0.01, "Warning", id="zero against something"),
        # decision D8
        pytest.param(nan, 1.0, "Warning", id="nan on one side"),
        pytest.param(1.0, nan, "Warning", id="nan on the golden's side"),
        pytest.param(nan, nan, "", id="nan on both"),
        pytest.param(inf, 1.0, "Warning", id="inf on one side"),
        pytest.param(1.0, -inf, "Warning", id="-inf on the golden's side"),
        pytest.param(inf, inf, "", id="inf on both"),
        pytest.param(inf, -inf, "Warning", id="inf of both signs"),
        pytest.param(nan, inf, "Warning", id="nan against inf"),
        pytest.param(nan, 0.0, "Warning", id="nan against zero"),
        pytest.param("a", "b", "Warning", id="texts that differ"),
        pytest.param("a", "a", "", id="texts that agree"),
        pytest.param(True, False, "Warning", id="truth values that differ"),
        pytest.param(True, True, "", id="truth values that agree"),
        pytest.param(None, 5.0, "", id="null on one side"),
        pytest.param(5.0, None, "", id="null on the golden's side"),
        pytest.param(None, None, "", id="null on both"),
        pytest.param(None, nan, "", id="null against nan"),
    ],
)
def test_warning_of_one_statistic(place: str, target: Any, golden: Any, label: str) -> None:
    """Any of the four can warn alone; the message goes with the Warning and never without it."""
    verdict = of_one(target, golden, place)
    assert verdict.label == label
    assert (Reason("double_check") in verdict.reasons) is (label == "Warning")
    assert verdict.failed is (label == "Warning")


@pytest.mark.parametrize(
    ("target", "golden", "level"),
    [
        pytest.param(0.0003, 0.0001, Level.PASS, id="mean off by 200 % of nearly nothing"),
        pytest.param(0.05, 0.0, Level.PASS, id="exactly the share of the magnitude"),
        pytest.param(above(0.05), 0.0, Level.ERROR, id="just past the share"),
        pytest.param(-0.06, 0.0, Level.ERROR, id="below zero"),
        pytest.param(nan, 0.0001, Level.ERROR, id="nan has no scale"),
        pytest.param(inf, 0.0001, Level.ERROR, id="inf has no scale"),
    ],
)
def test_means_near_zero_are_no_suspects(target: float, golden: float, level: Level) -> None:
    """Decision D24: Warning in the table, as the seed has it, but no error unless it counts."""
    verdict = of_one(target, golden, "mean")
    assert (verdict.label, verdict.level) == ("Warning", level)
    assert any(reason.code == "evidence" for reason in verdict.reasons) is (level is Level.ERROR)


def test_the_scale_is_the_larger_end_of_the_golden() -> None:
    """A difference of 1 counts against a golden from -2 to 2, not against one from -100 to 2."""
    for least, level in ((-2.0, Level.ERROR), (-100.0, Level.PASS)):
        golden = tensor_value(Statistics(2.0, least, 0.1, 5.0))
        target = tensor_value(Statistics(2.0, least, 1.1, 5.0))
        assert statistics_result(target, golden).level is level


def test_without_a_finite_scale_every_difference_counts() -> None:
    golden = tensor_value(Statistics(None, nan, 0.0001, 5.0))
    target = tensor_value(Statistics(None, nan, 0.0003, 5.0))
    assert statistics_result(target, golden).level is Level.ERROR


@pytest.mark.parametrize(
    ("target", "golden", "label", "level"),
    [
        pytest.param(tensor_value(), None, "N/A", Level.WARNING, id="target alone"),
        pytest.param(None, tensor_value(), "N/A", Level.WARNING, id="golden alone"),
        pytest.param(tensor_value(), tensor_value(extent="[3]"), "N/A", Level.ERROR, id="other shape, D7"),
        pytest.param(tensor_value(), tensor_value(), "", Level.PASS, id="alike"),
        pytest.param(tensor_value(), tensor_value(dtype="torch.bfloat16"), "", Level.PASS, id="other dtype"),
    ],
)
def test_rows_that_are_not_compared(
    target: Value | None, golden: Value | None, label: str, level: Level
) -> None:
    verdict = statistics_result(target, golden)
    assert (verdict.label, verdict.level, verdict.failed) == (label, level, False)


@pytest.mark.parametrize(
    ("target", "golden", "label", "differ"),
    [
        pytest.param(1.05, 1.0, "", True, id="off by less than half"),
        pytest.param(2.0, 1.0, "Warning", True, id="off by more than half"),
        pytest.param(1.0, 1.0, "", False, id="alike"),
        pytest.param("sum", "mean", "Warning", True, id="texts"),
    ],
)
def test_scalars_in_a_table_of_statistics(target: Any, golden: Any, label: str, differ: bool) -> None:
    """Decision D20: a scalar that differs at all is an error, whatever the table's own rule says."""
    verdict = statistics_result(scalar(target), scalar(golden))
    assert verdict.label == label
    assert (verdict.level is Level.ERROR) is verdict.failed is differ


# -- result of the table of checksums ----------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "label", "evidence"),
    [
        ({}, "Pass", None),
        ({"checksum": "ffffffff"}, "Different", "checksum differ"),
        ({"extent": "[3]"}, "Different", "shape differ"),
        ({"dtype": "torch.bfloat16"}, "Different", "dtype differ"),
        ({"checksum": None}, "Different", "checksum differ"),
        ({"checksum": None, "dtype": "torch.int8", "extent": "[]"}, "Different",
         "shape and dtype and checksum differ"),
    ],
)  # fmt: skip
def test_checksum_result(changes: dict[str, Any], label: str, evidence: str | None) -> None:
    """Decision D9: checksum, shape and dtype must all agree; which side deviates does not matter."""
    plain = {"checksum": "0a1b2c3d"}
    for values in ((plain, {**plain, **changes}), ({**plain, **changes}, plain)):
        pair = pair_of_values(*(tensor_value(**value) for value in values), Mode.MD5)
        verdict = ChecksumResult().judge(pair, {})
        assert verdict.label == label
        assert verdict.reasons == (() if evidence is None else (Reason("evidence", evidence),))
        assert verdict.failed is (label == "Different")
        assert verdict.level is (Level.ERROR if verdict.failed else Level.PASS)


def test_checksums_absent_on_both_sides_are_equal() -> None:
    null = Value(Kind.NULL, "None", "None")
    for value in (tensor_value(checksum=None), null):
        assert ChecksumResult().judge(pair_of_values(value, value, Mode.MD5), {}).label == "Pass"


@pytest.mark.parametrize("value", [tensor_value(checksum="0a"), Value(Kind.NULL, "None", "None")])
def test_checksums_without_partner(value: Value) -> None:
    """Also for null (decision D9)."""
    for sides in ((value, None), (None, value)):
        verdict = ChecksumResult().judge(pair_of_values(*sides, Mode.MD5), {})
        assert (verdict.label, verdict.level, verdict.failed) == ("N/A", Level.WARNING, False)


# -- highlight ---------------------------------------------------------------------------------


def row(
    side: Side = Side.OUTPUT,
    *,
    error: Any = 0.0,
    ratio: Any = 1.0,
    cosine: Any = 1.0,
    npu: Any = 1.0,
    npu_min: Any = 1.0,
    bench: Any = 1.0,
    npu_grad: bool | None = False,
    mode: Mode = Mode.TENSOR,
    alone: str = "",
) -> Row:
    """A row of the table, by the numbers the rules look at; ``alone`` names the only side there is."""
    target = tensor_value(Statistics(npu, npu_min, 0.0, 1.0), requires_grad=npu_grad)
    golden = tensor_value(Statistics(bench, 1.0, 0.0, 1.0), requires_grad=False)
    numbers = {
        "cosine.Cosine": measured(cosine),
        "max_error.MaxAbsErr": measured(error),
        "error_ratio.One Thousandth Err Ratio": measured(ratio),
        "statistics.Max diff": measured(error),
    }
    return make_row(side, None if alone == "golden" else target, None if alone == "target" else golden,
                    numbers, mode)  # fmt: skip


def statistics_row(side: Side = Side.OUTPUT, **numbers: Any) -> Row:
    return row(side, mode=Mode.STATISTICS, **numbers)


def marks(*rows: Row) -> dict[int, tuple[str, set[str]]]:
    """Colour and codes, less their common beginning, by position."""
    found = Highlight().mark(rows)
    return {
        position: (mark.colour.value, {reason.code.removeprefix("mark_") for reason in mark.reasons})
        for position, mark in found.items()
    }


IN, OUT = Side.INPUT, Side.OUTPUT
RED, YELLOW = Colour.RED.value, Colour.YELLOW.value
BOTH = pytest.mark.parametrize("mode", [Mode.TENSOR, Mode.STATISTICS])


@BOTH
@pytest.mark.parametrize("side", list(Side))
@pytest.mark.parametrize(
    "ends", [{"npu": nan}, {"npu": inf}, {"npu": -inf}, {"npu_min": -inf}, {"npu_min": nan}]
)
def test_r1_nan_or_inf(mode: Mode, side: Side, ends: dict[str, float]) -> None:
    """Maximum or minimum of the target, in a row of any side."""
    assert marks(row(side, mode=mode, **ends)) == {0: (RED, {"nonfinite"})}


@BOTH
def test_r1_looks_at_the_target_alone(mode: Mode) -> None:
    assert marks(row(mode=mode, bench=inf)) == {}
    assert marks(row(mode=mode, npu="nan", npu_min=None)) == {}, "a text is no nan"


@BOTH
def test_r1_of_a_row_without_partner(mode: Mode) -> None:
    """A nan is a nan, whoever else was there."""
    assert marks(row(mode=mode, npu=nan, alone="target")) == {0: (RED, {"nonfinite"})}


@BOTH
@pytest.mark.parametrize("side", list(Side))
@pytest.mark.parametrize(("error", "fires"), [(1e10, False), (above(1e10), True), (inf, True)])
def test_r2_absolute_error(mode: Mode, side: Side, error: float, fires: bool) -> None:
    """The golden is as large, so that the relative rules keep out of it."""
    found = marks(row(side, mode=mode, error=error, npu=1e12, bench=1e12))
    assert ("absolute" in found.get(0, ("", set()))[1]) is fires


def test_r2_takes_the_sign_off_a_difference() -> None:
    """Max diff of the table of statistics is signed."""
    assert marks(statistics_row(error=-2e10, bench=1e12)) == {0: (RED, {"absolute"})}


@BOTH
def test_r1_stops_r2(mode: Mode) -> None:
    assert marks(row(IN, mode=mode, npu=inf, error=2e10)) == {0: (RED, {"nonfinite"})}


@pytest.mark.parametrize("side", [Side.INPUT, Side.PARAMETERS])
@pytest.mark.parametrize(
    ("before", "after", "fires"),
    [(above(0.9), below(0.6), True), (0.9, below(0.6), False), (above(0.9), 0.6, False), (1.0, 0.0, True)],
)
def test_r3_ratio(side: Side, before: float, after: float, fires: bool) -> None:
    """Inputs and parameters alike are what an output is held against."""
    found = marks(row(side, ratio=before), row(ratio=after))
    assert found == {1: (RED, {"ratio"}) if fires else (YELLOW, {"ratio_drop"})}


@pytest.mark.parametrize(("error", "fires"), [(0.5, False), (above(0.5), True)])
@pytest.mark.parametrize(
    ("bench", "scale"), [(1.0, 1.0), (-4.0, 4.0), (0.0, 0.01), (0.001, 0.01), (-0.001, 0.01)]
)
def test_r4_relative_error_of_the_maximum(bench: float, scale: float, error: float, fires: bool) -> None:
    """Decision D12: the golden's maximum by its size, and as 0.01 where it is smaller."""
    same = statistics_row(IN, error=0.1, bench=1.0)
    for sign in (1, -1):
        found = marks(same, statistics_row(error=sign * error * scale, bench=bench))
        assert found == ({1: (RED, {"relative"})} if fires else {})


def test_r4_is_of_statistics_and_outputs_alone() -> None:
    big = {"error": 0.9, "bench": 1.0}
    assert marks(row(IN, error=0.9), row(**big)) == {}
    assert marks(statistics_row(IN, **big), statistics_row(Side.PARAMETERS_GRAD, **big)) == {}
    assert marks(statistics_row(**big)) == {0: (RED, {"relative"})}, "it needs no input"


@BOTH
@pytest.mark.parametrize(
    ("before", "after", "fires"),
    [
        (2.0, 20.0, True),
        (2.0, below(20.0), False),
        (5.0, 50.0, True),
        (1.0, 50.0, False),
        (above(1.0), 50.0, True),
        (0.5, 50.0, False),
        (20.0, 2.0, False),
        (20.0, 20.0, False),
        (2.0, inf, True),
        (inf, inf, False),
    ],
)
def test_y1_an_order_of_magnitude(mode: Mode, before: float, after: float, fires: bool) -> None:
    """Ten times is one order, exactly; both errors exceed 1. The golden's maximum quiets R2, R4 and Y3."""
    found = marks(row(IN, mode=mode, error=before, bench=1e3), row(mode=mode, error=after, bench=1e3))
    codes = found.get(1, ("", set()))[1]
    if math.isinf(after):
        assert ("absolute" in codes) and "magnitude" not in codes, "red hides yellow"
    else:
        assert codes == ({"magnitude"} if fires else set())


def test_y1_by_the_size_of_signed_differences() -> None:
    found = marks(statistics_row(IN, error=-2.0, bench=1e3), statistics_row(error=-30.0, bench=1e3))
    assert found == {1: (YELLOW, {"magnitude"})}


@pytest.mark.parametrize(
    ("before", "after", "fires"),
    [(0.6, 0.5, False), (0.6, below(0.5), True), (0.625, 0.5, True), (0.5, 0.6, False), (0.5, 0.5, False)],
)
def test_y2_ratio_drop(before: float, after: float, fires: bool) -> None:
    """0.6 - 0.5 is a little below 0.1 in float64, and the next number a little above."""
    assert (before - after > 0.1) is fires
    assert marks(row(IN, ratio=before), row(ratio=after)) == ({1: (YELLOW, {"ratio_drop"})} if fires else {})


@BOTH
@pytest.mark.parametrize(
    ("before", "after", "fires"),
    [(below(0.01), above(0.1), True), (0.01, above(0.1), False), (below(0.01), 0.1, False), (0.0, 0.4, True)],
)
def test_y3_relative_jump(mode: Mode, before: float, after: float, fires: bool) -> None:
    """In both modes (conflict C4); the golden's maxima are 1, so the errors are the relative ones."""
    found = marks(row(IN, mode=mode, error=before), row(mode=mode, error=after))
    assert found == ({1: (YELLOW, {"relative_jump"})} if fires else {})


@pytest.mark.parametrize(
    ("before", "after", "fires"),
    [(0.6, 0.5, False), (0.6, below(0.5), True), (1.0, -1.0, True), (0.5, 1.0, False)],
)
def test_y4_cosine_drop(before: float, after: float, fires: bool) -> None:
    assert (before - after > 0.1) is fires
    assert marks(row(IN, cosine=before), row(cosine=after)) == (
        {1: (YELLOW, {"cosine_drop"})} if fires else {}
    )


@BOTH
@pytest.mark.parametrize("side", list(Side))
@pytest.mark.parametrize(("flag", "fires"), [(True, True), (False, False), (None, True)])
def test_y5_requires_grad(mode: Mode, side: Side, flag: bool | None, fires: bool) -> None:
    """The golden's is False; in a row of any side."""
    assert marks(row(side, mode=mode, npu_grad=flag)) == ({0: (YELLOW, {"requires_grad"})} if fires else {})


def test_y5_of_matched_rows_alone() -> None:
    """Decision D2: without partner there is nothing to agree with."""
    assert marks(row(npu_grad=True, alone="target")) == {}


def test_red_hides_yellow() -> None:
    """The yellow reasons of a red row are not said; all red ones are."""
    source = row(IN, error=2.0, ratio=1.0, bench=1e3)
    output = row(error=2e10, ratio=0.1, cosine=0.1, npu_grad=True)
    assert marks(source, output) == {1: (RED, {"absolute", "ratio"})}


def test_all_yellow_reasons_of_a_row_are_said_in_order() -> None:
    source = row(IN, error=2.0, ratio=0.9, bench=1e3)
    output = row(error=200.0, ratio=0.7, cosine=0.1, bench=1e3, npu_grad=True)
    (mark,) = Highlight().mark([source, output]).values()
    codes = ["magnitude", "ratio_drop", "relative_jump", "cosine_drop", "requires_grad"]
    assert [reason.code.removeprefix("mark_") for reason in mark.reasons] == codes
    assert all(reason.code in REASONS for reason in mark.reasons)


def test_any_input_is_enough_and_a_reason_is_said_once() -> None:
    rows = [row(IN, ratio=0.2), row(IN, ratio=1.0), row(Side.PARAMETERS, ratio=1.0), row(ratio=0.5)]
    assert marks(*rows) == {3: (RED, {"ratio"})}
    assert len(Highlight().mark(rows)[3].reasons) == 1


def test_each_output_is_looked_at() -> None:
    assert set(marks(row(IN), row(cosine=0.5), row(), row(cosine=0.5))) == {1, 3}


def test_outputs_are_no_sources_and_gradients_no_outputs() -> None:
    assert marks(row(ratio=1.0), row(ratio=0.1)) == {}
    assert marks(row(IN, ratio=1.0), row(Side.PARAMETERS_GRAD, ratio=0.1, cosine=0.1)) == {}


@BOTH
def test_golden_only_rows_are_never_marked(mode: Mode) -> None:
    """Decision D1, even where every rule would have something to say; nor are they sources."""
    worst = {"error": 2e10, "ratio": 0.0, "cosine": 0.0, "bench": nan, "alone": "golden"}
    assert marks(row(IN, mode=mode), row(mode=mode, **worst)) == {}
    lone = row(IN, mode=mode, alone="golden", error=2.0, bench=1e3)
    assert marks(lone, row(mode=mode, error=90.0, ratio=0.1, cosine=0.1, bench=1e3)) == {}


UNUSABLE: list[dict[str, Any]] = [
    {"error": "nan"},
    {"npu": None},
    {"npu": "text"},
    {"bench": None},
    {"bench": True},
]
"""What makes a row no partner of a pair rule: a maximum or an error that is no number."""


@pytest.mark.parametrize("broken", UNUSABLE, ids=str)
@pytest.mark.parametrize("which", ["source", "output"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({"ratio": 1.0}, {"ratio": 0.1}, id="R3 and Y2"),
        pytest.param({"error": 2.0, "bench": 1e3}, {"error": 90.0, "bench": 1e3}, id="Y1"),
        pytest.param({"error": 0.0}, {"error": 0.4}, id="Y3"),
        pytest.param({"cosine": 1.0}, {"cosine": 0.1}, id="Y4"),
    ],
)
def test_pair_rules_need_numbers(
    broken: dict[str, Any], which: str, before: dict[str, Any], after: dict[str, Any]
) -> None:
    """spec/compare 9: both maxima and the error of both rows, whatever the rule itself looks at."""
    assert set(marks(row(IN, **before), row(**after))) == {1}, "with numbers the rule fires"
    source, output = ({**before, **broken}, after) if which == "source" else (before, {**after, **broken})
    assert marks(row(IN, **source), row(**output)) == {}


def test_r4_needs_numbers() -> None:
    for broken in UNUSABLE:
        assert marks(statistics_row(IN), statistics_row(**{"error": 0.9, **broken})) == {}


@pytest.mark.parametrize("absent", ["ratio", "cosine"])
def test_a_ratio_or_cosine_that_is_no_number_skips_its_rules_alone(absent: str) -> None:
    """A 0-d tensor has neither; the rules of the error go on."""
    plain = {"ratio": 1.0, "cosine": 1.0, "error": 0.0}
    worse = {"ratio": 0.1, "cosine": 0.1, "error": 0.4}
    other = {"ratio": "cosine_drop", "cosine": "ratio"}[absent]
    for source, output in (({**plain, absent: "zero_dimensional"}, worse), (plain, {**worse, absent: "nan"})):
        codes = marks(row(IN, **source), row(**output))[1][1]
        expected = {"ratio"} if other == "ratio" else {"cosine_drop", "relative_jump"}
        assert codes == expected


def test_unmeasured_rows_are_let_be() -> None:
    """Rows without files, in a table of tensors."""
    none = {"error": "no_target_file", "ratio": "no_target_file", "cosine": "no_target_file"}
    assert marks(row(IN, **none), row(**none)) == {}
    assert marks() == {}


# -- advisor -----------------------------------------------------------------------------------


def advice(op: str, name: str, side: Side) -> tuple[str, str, str]:
    report = Report("", Path("a"), Path("b"), Mode.TENSOR, 1)
    report.first_failure = Suspect(op, name, side, "row 7", Level.ERROR, "why")
    found = advise(report)
    return found.line, found.node, found.text


INPUT = "1. Analyze the model to view the input source."
FORWARD = "This is a forward API computation error."
BACKWARD_INPUT = "Check whether the forward computation result is affected."
BACKWARD = "This is a backward API computation error."
RANDOM = "The API may be non-deterministic."
BATCH_NORM = "The input of batch_norm is not fixed."


@pytest.mark.parametrize(
    ("name", "side", "begins"),
    [
        ("Torch.add.0.forward.input.0", Side.INPUT, INPUT),
        ("Torch.add.0.forward.output.0", Side.OUTPUT, FORWARD),
        ("Module.fc.Linear.forward.0.parameters.weight", Side.PARAMETERS, INPUT),
        ("Torch.add.0.backward.input.0", Side.INPUT, BACKWARD_INPUT),
        ("Torch.add.0.backward.output.0", Side.OUTPUT, BACKWARD),
        ("Module.fc.Linear.parameters_grad.weight", Side.PARAMETERS_GRAD, BACKWARD),
        *(
            (f"Functional.{api}.0.{direction}.output.0", Side.OUTPUT, RANDOM)
            for api in ("conv2d", "conv3d", "matmul", "nll_loss", "layer_norm", "lstm")
            for direction in ("forward", "backward")
        ),
        ("Functional.conv2d.0.forward.input.0", Side.INPUT, INPUT),
        ("Functional.conv2d.0.backward.input.0", Side.INPUT, BACKWARD_INPUT),
        ("Functional.conv1d.0.forward.output.0", Side.OUTPUT, FORWARD),
        ("Functional.batch_norm.0.forward.input.1", Side.INPUT, BATCH_NORM),
        ("Functional.batch_norm.0.forward.input.0", Side.INPUT, INPUT),
        ("Functional.batch_norm.0.forward.input.10", Side.INPUT, INPUT),
        ("Functional.batch_norm.0.forward.output.0", Side.OUTPUT, FORWARD),
        ("loss.0.debug", Side.DEBUG, "A saved value differs."),
        # a layer's own name says nothing of the side
        ("Module.input_proj.Linear.forward.0.output.0", Side.OUTPUT, FORWARD),
        ("Module.input_proj.Linear.backward.0.output.0", Side.OUTPUT, BACKWARD),
    ],
)
def test_advice(name: str, side: Side, begins: str) -> None:
    """spec/compare 10, its tests in their order."""
    op = name.rpartition("put")[0].rpartition(".")[0] if "put" in name.split(".")[-2] else name
    line, node, text = advice(op, name, side)
    assert (line, node) == ("row 7", name)
    assert text.startswith(begins)


def test_advice_where_all_is_well() -> None:
    found = advise(Report("", Path("a"), Path("b"), Mode.TENSOR, 1))
    assert (found.line, found.node) == ("NA", "NA")
    assert found.text == "All data in comparison result meets the accuracy requirements."


def test_advice_is_on_the_first_row_that_fails() -> None:
    """An error that the table's own rule does not know, such as other shapes, is not what it goes by."""
    report = Report("", Path("a"), Path("b"), Mode.TENSOR, 3)
    verdicts = [accuracy("shape", "shape"), accuracy(0.5, 0.5), accuracy(0.1, 5.0)]
    rows = []
    for number, verdict in enumerate(verdicts):
        slot = make_slot(tensor_value(), name=f"Torch.add.{number}.forward.output.0")
        rows.append(Row(Pair(slot, slot), "Torch.add.0.forward", {}, verdict))
    report.add(Op("Torch.add.0.forward"), rows, ["1", "2", "3"])
    found = advise(report)
    assert (found.line, found.node) == ("2", "Torch.add.1.forward.output.0")
