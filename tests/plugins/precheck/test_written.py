"""Result files of a pre-check, read back: both stages, other headers, files that are cut or of another kind."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from probe_precheck.model import ResultPaths
from probe_precheck.written import read_check
from support.runs.checked_files import APIS, CALLS, SKIPPED, TIME, WRONG, details_of, write_check

from probe_core.errors import UserError
from probe_core.plugins.manager import Manager


def test_the_first_stage_is_read_back(tmp_path: Path) -> None:
    check = read_check(ResultPaths(write_check(tmp_path)), Manager())
    assert check.stage == 1 and check.has_details and len(check.calls) == len(APIS) * CALLS
    wrong = next(call for call in check.calls if call.name == WRONG)
    assert (wrong.forward, wrong.backward) == ("error", "error") and "too large" in wrong.message[0]
    assert [output.name for output in wrong.outputs] == ["forward.output.0", "backward.output.0"]
    measure = wrong.outputs[0].measures["max_relative_error"]
    assert measure.device == pytest.approx(0.4) and measure.trusted is None and measure.ratio is None
    skipped = next(call for call in check.calls if call.name == SKIPPED)
    assert skipped.outputs == [] and skipped.backward == ""


def test_both_devices_of_the_second_stage_are_read_back(probe: Any, tmp_path: Path) -> None:
    npu, gpu = (details_of(write_check(tmp_path / side, wrong=side == "npu")) for side in ("npu", "gpu"))
    assert probe("api-precision-compare", "--npu", npu, "--gpu", gpu, "-o", tmp_path / "out") == 0, probe.err
    (result,) = (tmp_path / "out").glob("*_result_*.csv")
    check = read_check(ResultPaths(result, npu, gpu), Manager())
    assert check.stage == 2
    output = next(call for call in check.calls if call.name == WRONG).outputs[0]
    measure = output.measures["max_relative_error"]
    assert measure.device == pytest.approx(0.4) and measure.trusted == pytest.approx(2e-6)
    assert measure.ratio == pytest.approx(2e5) and measure.verdict == "error"
    assert output.standard == ("Benchmark Ratio", "标杆比对法") and output.dtype == "torch.float32"
    alone = read_check(ResultPaths(result), Manager())
    measure = next(call for call in alone.calls if call.name == WRONG).outputs[0].measures["max_relative_error"]
    assert measure.device is None and measure.ratio == pytest.approx(2e5)


@pytest.mark.parametrize("cut", [1, 10])
def test_a_file_that_is_being_written_is_read_up_to_its_last_row(cut: int, tmp_path: Path) -> None:
    result = write_check(tmp_path)
    for path in (result, details_of(result)):
        path.write_bytes(path.read_bytes()[:-cut])
    assert len(read_check(ResultPaths(result), Manager()).calls) == len(APIS) * CALLS - 1


def test_what_is_no_result_is_said(tmp_path: Path) -> None:
    result = write_check(tmp_path)
    with pytest.raises(UserError, match="does not have the name of a pre-check result"):
        read_check(ResultPaths(details_of(result)), Manager())
    result.write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match="no column for backward"):
        read_check(ResultPaths(result), Manager())


def test_the_columns_of_mindspore_are_known(tmp_path: Path) -> None:
    result = tmp_path / f"accuracy_checking_result_{TIME}.csv"
    tables = {
        result: [
            ("API Name", "Forward Test Success", "Backward Test Success", "Message", "Standard"),
            ("Mint.add.0", "error", " ", " ", "pass"),
        ],
        details_of(result): [
            ("API Name", "Bench Dtype", "Tested Dtype", "Shape", "Cosine", "MaxAbsErr", "MaxRelativeErr", "Status",
             "Message", "Standard", "Standard Message"),
            ("Mint.add.0.forward.output.0", "Float64", "Float32", "(2,)", "0.5", "nan", "0.25", "error", "a", "pass", "b"),
        ],
    }  # fmt: skip
    for path, rows in tables.items():
        with path.open("w", newline="") as file:
            csv.writer(file).writerows(rows)
    (call,) = read_check(ResultPaths(result), Manager()).calls
    (output,) = call.outputs
    assert (call.forward, call.backward, call.standard, output.verdict) == ("error", "", "pass", "pass")
    assert {key: measure.device for key, measure in output.measures.items()} == {
        "cosine": 0.5, "max_abs_error": pytest.approx(float("nan"), nan_ok=True), "max_relative_error": 0.25,
    }  # fmt: skip
    assert output.dtype == "Float32" and output.message == ("a b", "a b") and output.direction == "forward"
