"""Rows that the table marks, their colour and reason: each rule at its boundary, and just past it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from probe_metrics.highlight import Highlight
from probe_metrics.reasons import REASONS as METRIC_REASONS
from support.measuring import above, below, measured, tensor_value

from probe_core.model import Colour, Level, Mode, Pair, Row, Side, Slot, Statistics, Verdict

nan, inf = math.nan, math.inf


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
    first, second = (Slot("Torch.op.0.forward.output.0", side, "0", value) for value in (target, golden))
    pair = Pair(None if alone == "golden" else first, None if alone == "target" else second)
    measurements = {
        Mode.TENSOR: {
            "cosine.Cosine": measured(cosine),
            "max_error.MaxAbsErr": measured(error),
            "error_ratio.One Thousandth Err Ratio": measured(ratio),
        },
        Mode.STATISTICS: {"statistics.Max diff": measured(error)},
    }[mode]
    return Row(pair, "Torch.op.0.forward", measurements, Verdict(Level.PASS, ""))


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
@pytest.mark.parametrize("ends", [{"npu": nan}, {"npu": inf}, {"npu": -inf}, {"npu_min": -inf}, {"npu_min": nan}])
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
@pytest.mark.parametrize(("bench", "scale"), [(1.0, 1.0), (-4.0, 4.0), (0.0, 0.01), (0.001, 0.01), (-0.001, 0.01)])
def test_r4_relative_error_of_the_maximum(bench: float, scale: float, error: float, fires: bool) -> None:
    """The golden's maximum by its size, and as 0.01 where it is smaller."""
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
    assert marks(row(IN, cosine=before), row(cosine=after)) == ({1: (YELLOW, {"cosine_drop"})} if fires else {})


@BOTH
@pytest.mark.parametrize("side", list(Side))
@pytest.mark.parametrize(("flag", "fires"), [(True, True), (False, False), (None, True)])
def test_y5_requires_grad(mode: Mode, side: Side, flag: bool | None, fires: bool) -> None:
    """The golden's is False; in a row of any side."""
    assert marks(row(side, mode=mode, npu_grad=flag)) == ({0: (YELLOW, {"requires_grad"})} if fires else {})


def test_y5_of_matched_rows_alone() -> None:
    """Without partner there is nothing to agree with."""
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
    assert all(reason.code in METRIC_REASONS for reason in mark.reasons)


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
    """Even where every rule would have something to say; nor are they sources."""
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
"""Cells that keep a row out of a pair rule: a maximum or an error that is no number."""


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
    """docs/tables.md#highlighting: both maxima and the error of both rows, whatever the rule itself looks at."""
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
