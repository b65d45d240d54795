"""Integers and booleans agree exactly or differ, whatever label the guide's rule gives their row."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from probe_metrics.accuracy import Accuracy
from probe_metrics.cosine import Cosine
from probe_metrics.max_error import MaxError
from probe_metrics.statistics_result import StatisticsResult
from support.measuring import measure, scalar_value, tensor_value
from support.runs.comparing import compare
from support.runs.recorded import forward, scalar, tensor, write_run, write_tensor_run

from probe_core.flow.comparison import RunComparison
from probe_core.model import Level, Statistics, Verdict
from probe_core.model.plan import Plan
from probe_core.model.report import Report
from probe_core.plugins.manager import Manager
from probe_core.testing import pair_of, pair_of_values

CODE = "exact"


def judged(target: Any, golden: Any) -> Verdict:
    (cosine,), (absolute, relative) = (measure(metric, target, golden) for metric in (Cosine(), MaxError()))
    measurements = {
        "cosine.Cosine": cosine,
        "max_error.MaxAbsErr": absolute,
        "max_error.MaxRelativeErr": relative,
    }
    return Accuracy().judge(pair_of(target, golden), measurements)


@pytest.mark.parametrize(
    ("target", "golden", "label", "evidence"),
    [
        pytest.param([1, 2, 4], [1, 2, 5], "Yes", "differs in integers, by up to 1", id="ids"),
        pytest.param([50256, 7], [50257, 7], "Yes", "differs in integers, by up to 1", id="one token"),
        pytest.param(50256, 50257, "None", "differs in integers, by up to 1", id="0-d"),
        pytest.param([100], [101], "None", "differs in integers, by up to 1", id="one element"),
        pytest.param([2**53, 1], [2**53 + 1, 1], "Yes",
                     "differs in integers, in digits beyond the precision of float64", id="beyond float64"),
        pytest.param([True] * 100 + [False], [True] * 101, "Yes", "differs in booleans", id="booleans"),
        pytest.param([1, 2, 4], [1, 2, 50], "No", None, id="No says it itself"),
    ],
)  # fmt: skip
def test_tensors_that_differ(target: Any, golden: Any, label: str, evidence: str | None) -> None:
    verdict = judged(np.asarray(target), np.asarray(golden))
    assert (verdict.label, verdict.level) == (label, Level.ERROR)
    assert verdict.failed, "the advisor counts it, as it counts scalars"
    assert verdict.reasons[0].code == CODE
    if evidence is not None:
        assert [reason.detail for reason in verdict.reasons[1:]] == [evidence]
    assert verdict.drift is None


@pytest.mark.parametrize(
    ("target", "golden"),
    [
        pytest.param(np.array([1, 2, 5]), np.array([1, 2, 5]), id="equal"),
        pytest.param(np.array([1, 2, 5], np.int32), np.array([1, 2, 5]), id="another width, equal"),
        pytest.param(np.array([1, 0]), np.array([True, False]), id="booleans as integers, equal"),
        pytest.param(np.array([2**63], np.uint64), np.array([2**63], np.uint64), id="largest"),
        pytest.param(np.array([1.0, 2.0]), np.array([1.0, 2.0000002]), id="floats round"),
    ],
)
def test_tensors_that_agree(target: Any, golden: Any) -> None:
    verdict = judged(target, golden)
    assert verdict.level is Level.PASS
    assert verdict.reasons == ()


def test_widths_that_float64_would_confuse() -> None:
    verdict = judged(np.array([2**63, 1], np.uint64), np.array([2**63 - 1, 1], np.int64))
    assert verdict.level is Level.ERROR


@pytest.mark.parametrize("dtype", ["torch.int64", "Int64", "torch.uint8"])
@pytest.mark.parametrize(
    ("place", "target", "golden", "label", "level"),
    [
        pytest.param("max", 50256, 50257, "", Level.ERROR, id="one token"),
        pytest.param("max", 50256.0, 50257.0, "", Level.ERROR, id="recorded as floats"),
        pytest.param("min", 4, 5, "", Level.ERROR, id="minimum"),
        pytest.param("min", 0, 1, "Warning", Level.ERROR, id="off by more than half"),
        pytest.param("mean", 250.0, 251.0, "", Level.ERROR, id="mean beyond rounding"),
        pytest.param("mean", 0.0, 1e-9, "Warning", Level.WARNING, id="a mean near zero"),
        pytest.param("mean", 250.0, 250.00002, "", Level.WARNING, id="mean within rounding"),
        pytest.param("norm", 900.0, 901.0, "", Level.ERROR, id="norm beyond rounding"),
        pytest.param("norm", 900.0, 900.0001, "", Level.WARNING, id="norm within rounding"),
        pytest.param("max", 2**24 + 1, float(2**24), "", Level.PASS, id="one side noted in float32"),
        pytest.param("max", 2**60 + 1, 2**60, "", Level.ERROR, id="integers that float64 confuses"),
        pytest.param("max", None, 5, "", Level.PASS, id="null on one side"),
    ],
)
def test_statistics_of_integers(place: str, target: Any, golden: Any, label: str, level: Level, dtype: str) -> None:
    plain = {"max": 50257, "min": 0, "mean": 250.0, "norm": 900.0}
    values = (tensor_value(Statistics(**{**plain, place: value}), dtype=dtype) for value in (target, golden))
    verdict = StatisticsResult().judge(pair_of_values(*values), {})
    assert (verdict.label, verdict.level) == (label, level)
    assert verdict.failed is (label == "Warning" or level is Level.ERROR)
    codes = [reason.code for reason in verdict.reasons]
    assert (CODE in codes) is (level is Level.ERROR)
    assert ("exact_in_last_digits" in codes) is (level is Level.WARNING)


@pytest.mark.parametrize(
    ("statistics", "level"),
    [
        ((Statistics(), Statistics()), Level.SKIP),
        ((Statistics(1.0, 1.0, 1.0, 1.0), Statistics()), Level.WARNING),
        ((Statistics(1.0), Statistics(1.0)), Level.PASS),
    ],
)
def test_statistics_that_are_not_on_record_are_no_agreement(statistics: Any, level: Level) -> None:
    target, golden = (tensor_value(one) for one in statistics)
    assert StatisticsResult().judge(pair_of_values(target, golden), {}).level is level


def test_scalars_known_by_checksum_alone() -> None:
    verdict = StatisticsResult().judge(pair_of_values(scalar_value(None, "0a"), scalar_value(None, "0b")), {})
    assert [reason.detail for reason in verdict.reasons] == ["checksum 0a against 0b"]


# -- digits --------------------------------------------------------------------------------------------


def test_machines_get_all_digits_and_old_columns_stay(tmp_path: Path) -> None:
    """A distance of 4e-30 is no 0.0 in JSON lines and from Python; csv keeps the guide's 12 and 6 decimals."""
    golden = np.array([1e-17, 2e-17], np.float64)
    target = golden * np.array([1.0, 1.0000000001])
    runs = [
        write_tensor_run(tmp_path / side, {"Torch.a.0.forward": ([array], [])})
        for side, array in (("t", target), ("g", golden))
    ]
    plan = Plan(runs[0], runs[1], tmp_path / "o", "0", formats=("jsonl", "csv"))
    list(compare(plan, Manager()))
    exact = json.loads((tmp_path / "o" / "compare_result_0.jsonl").read_text("utf-8"))
    with (tmp_path / "o" / "compare_result_0.csv").open(encoding="utf-8", newline="") as file:
        (rounded,) = csv.DictReader(file)
    assert list(rounded) == list(exact), "the columns are the same"
    absolute = float(np.abs(target - golden).max())
    assert exact["MaxAbsErr"] == absolute > 0
    assert float(rounded["MaxAbsErr"]) == 0.0
    assert exact["MaxRelativeErr"] == pytest.approx(1e-10, rel=1e-3)
    assert exact["MaxRelativeErr"] != round(exact["MaxRelativeErr"], 12)
    assert 0 < 1 - exact["Cosine"] < 1e-15 or exact["Cosine"] == 1
    comparison = RunComparison.open(plan, Manager(), *runs)
    ((_, (row,)),) = next(comparison.batches()).all_rows()
    assert row.measurements["max_error.MaxAbsErr"].number == absolute
    comparison.close()


# -- suspects -----------------------------------------------------------------------------------------


def ids(value: int, **fields: Any) -> dict[str, Any]:
    return tensor(value=value, dtype="torch.int64", **fields)


def compared(tmp_path: Path, target: dict[str, Any], golden: dict[str, Any]) -> Report:
    paths = [write_run(tmp_path / side, data) for side, data in (("t", target), ("g", golden))]
    (report,) = compare(Plan(paths[0], paths[1], tmp_path / "o", "0", formats=("csv",)), Manager())
    return report


def why(report: Report) -> list[tuple[str, str]]:
    return [(one.row, one.why.split(" (")[0]) for one in report.suspects]


def test_a_consumer_is_not_accused_where_other_integers_went_in(tmp_path: Path) -> None:
    """``embedding`` of another token gives out other values; that is not its own doing."""
    embed = "Functional.embedding.0.forward"
    target = {embed: forward(ids(50256), tensor(value=1.0), output=[tensor(value=9.0)])}
    golden = {embed: forward(ids(50257), tensor(value=1.0), output=[tensor(value=1.0)])}
    report = compared(tmp_path, target, golden)
    assert why(report) == [(f"{embed}.input.0", "receives values that differ, and no earlier difference explains them")]
    assert "max off by 1.99e-05 times the golden's largest magnitude; nothing is rounded" in report.suspects[0].why
    assert report.advice is not None
    assert report.advice.node == f"{embed}.input.0", "nor does the advisor accuse it"


def test_the_call_that_gives_out_other_integers_is_named(tmp_path: Path) -> None:
    embed = "Functional.embedding.0.forward"
    one, other = ({"Torch.randint.0.forward": forward(output=[ids(value)]),
                   embed: forward(ids(value), output=[tensor(value=value / 1e4)])}
                  for value in (50256, 50257))  # fmt: skip
    assert why(compared(tmp_path, one, other)) == [
        ("Torch.randint.0.forward.output.0", "returns values that differ, and it receives no tensor")
    ]


def test_integers_that_follow_from_rounding(tmp_path: Path) -> None:
    """An index that tips over because its input is off by rounding is a consequence, and says so."""
    argmax, embed = "Torch.argmax.0.forward", "Functional.embedding.0.forward"
    one, other = (
        {
            argmax: forward(tensor(value=logit), output=[ids(index)]),
            embed: forward(ids(index), output=[tensor(value=vector)]),
            "Torch.relu.0.forward": forward(tensor(value=vector), output=[tensor(value=vector)]),
        }
        for logit, index, vector in ((1.0, 5, 1.0), (1.0000001, 7, 9.0))
    )
    report = compared(tmp_path, one, other)
    (suspect,) = report.suspects
    assert suspect.row == f"{argmax}.output.0"
    assert report.advice is not None
    assert report.advice.node == f"{embed}.input.0", "rounding is no error of argmax"
    assert suspect.why.startswith(
        "returns different integers, which inputs that differ within rounding may cause (output.0: "
    )
    assert "inputs agree" not in suspect.why, "statistics that differ are no agreement"


def test_inputs_that_nearly_agree_are_not_said_to_agree(tmp_path: Path) -> None:
    one, other = ({"Torch.a.0.forward": forward(tensor(value=a), output=[tensor(value=b)])}
                  for a, b in ((1.0, 1.0), (1.25, 9.0)))  # fmt: skip
    ((_, text),) = why(compared(tmp_path, one, other))
    assert text == "receives values that differ, and no earlier difference explains them"
    assert "agree" not in text


def test_uninitialised_integers_are_not_judged(tmp_path: Path) -> None:
    one, other = ({"Torch.empty.0.forward": forward(output=[ids(value)])} for value in (3, 77))
    report = compared(tmp_path, one, other)
    assert not report.suspects
    assert report.counts.levels[Level.ERROR] == 0


def test_scalars_that_differ_say_so_in_statistics(tmp_path: Path) -> None:
    one, other = ({"Torch.add.0.forward": forward(tensor(), scalar(value))} for value in (5, 4))
    report = compared(tmp_path, one, other)
    assert report.suspects[0].row == "Torch.add.0.forward.input.1"
    text = (tmp_path / "o" / "compare_result_0.csv").read_text("utf-8")
    assert "Scalar of NPU and bench do not match." in text
