"""Dumps of the older tools compared as all runs are: every way of pairing, every format, several ranks."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest
from support.probe import Probe
from support.runs.answer_files import first_cause, read_answer
from support.runs.older_dumps import dumps, ptdbg_row, write_rows  # noqa: F401

RANK = {"ptdbg60_all": "ptdbg_dump_v6.0/step0/rank", "ptdbg40_branch": "ptdbg_dump_v4.0.T2/rank"}


def rank_of(directory: Path) -> Path:
    (file,) = directory.rglob("*.pkl")
    return file.parent


def rows_in(directory: Path) -> list[dict[str, str]]:
    (path,) = directory.glob("compare_result_*.csv")
    with path.open(newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("way", [(), ("-f",), ("--match", "align"), ("-da", "--format", "csv")])
@pytest.mark.parametrize("name", ["ptdbg23_conv_api_stack", "ptdbg60_all"])
def test_every_way_of_pairing(dumps: Path, probe: Probe, tmp_path: Path, name: str, way: tuple[str, ...]) -> None:
    runs = [rank_of(dumps / name / side) for side in ("npu", "bench")]
    formats = () if "--format" in way else ("--format", "csv")
    assert probe("compare", *runs, "-o", tmp_path, *way, *formats) == 0, probe.err
    rows = rows_in(tmp_path)
    assert len(rows) >= 67
    if name == "ptdbg23_conv_api_stack" and "-da" not in way:  # a weight of the second convolution is wrong
        assert first_cause(tmp_path).startswith("Functional.conv2d.1.forward")


def test_every_format(dumps: Path, probe: Probe, tmp_path: Path) -> None:
    runs = [dumps / "hooks_rc3_conv" / f"{side}.pkl" for side in ("npu", "cpu")]
    assert probe("compare", *runs, "-o", tmp_path, "--format", "xlsx,csv,jsonl,html") == 0, probe.err
    assert {path.suffix for path in tmp_path.glob("compare_result_*")} == {".xlsx", ".csv", ".jsonl", ".html"}
    assert len(rows_in(tmp_path)) == 107
    assert read_answer(tmp_path)["verdict"] == "DIVERGED"


@pytest.mark.parametrize(
    ("name", "rows"), [("hooks_300_sample_conv", 77), ("ptdbg60_summary", 73), ("ptdbg32_summary_only", 77)]
)
def test_statistics(dumps: Path, probe: Probe, tmp_path: Path, name: str, rows: int) -> None:
    golden = next(path for path in sorted((dumps / name).rglob("*.pkl")))
    assert probe("compare", golden, golden, "-o", tmp_path, "--format", "csv") == 0, probe.err
    assert len(rows_in(tmp_path)) == rows
    assert read_answer(tmp_path)["verdict"] == "AGREE"


@pytest.mark.parametrize("way", [(), ("-da",)])
def test_statistics_are_not_told_as_tensors(probe: Probe, tmp_path: Path, way: tuple[str, ...]) -> None:
    """Rows of hooks name a tensor even where they hold samples; agreement is then that of statistics."""
    for side, end in (("t", 5.0), ("g", 1.0)):
        rows = [
            [f"Functional_relu_0_forward_{place}", [0.5] * 10 + [top, -1.0, 0.25], "torch.float32", [64]]
            for place, top in (("input.0", 1.0), ("output", end))
        ]
        write_rows(tmp_path / f"{side}.pkl", *rows)
    ends = tmp_path / "t.pkl", tmp_path / "g.pkl"
    assert probe("compare", *ends, "-o", tmp_path / "out", *way) == 0, probe.err
    if way:
        (path,) = (tmp_path / "out").glob("diff_analyze_*.json")
        (found,) = json.loads(path.read_text())["rank_0"]
        assert "although the statistics of its inputs agree" in found["reason"]
        return
    (cause,) = read_answer(tmp_path / "out")["causes"]
    assert cause["evidence"]["judged_by"] == "statistics"
    assert "although the statistics of its inputs agree" in cause["statement"]


def test_several_ranks_below_the_root(dumps: Path, probe: Probe, tmp_path: Path) -> None:
    for side in ("npu", "bench"):
        source = rank_of(dumps / "ptdbg23_conv_all" / side)
        for rank in range(2):
            shutil.copytree(source, tmp_path / side / "tag_v2.3" / f"rank{rank}")
    out = tmp_path / "out"
    assert probe("compare", tmp_path / "npu", tmp_path / "bench", "-o", out, "--format", "csv") == 0, probe.err
    assert len(list(out.glob("compare_result_rank*.csv"))) == 2


def test_overflow_files_are_named_where_one_must_be_chosen(dumps: Path, probe: Probe, tmp_path: Path) -> None:
    run = dumps / "ptdbg23_overflow" / "n3_filter_off"
    assert probe("compare", run, run, "-o", tmp_path) == 2
    assert "holds several record files" in probe.err and "Overflow_info_20261120_215202_2.pkl" in probe.err


def test_dumps_of_call_stacks_hold_nothing_to_compare(dumps: Path, probe: Probe, tmp_path: Path) -> None:
    run = dumps / "ptdbg23_modes" / "stack0"
    assert probe("compare", run, run, "-o", tmp_path) == 2
    assert "holds no values" in probe.err


def test_a_run_that_was_cut_off_is_unfinished(probe: Probe, tmp_path: Path) -> None:
    rows = [ptdbg_row(f"Torch_exp_{number}_forward_output", [1.0, 0.0, 0.5]) for number in range(3)]
    target = write_rows(tmp_path / "a.pkl", *rows[:2], '["Torch_ex', end="")
    golden = write_rows(tmp_path / "b.pkl", *rows)
    assert probe("compare", target, golden, "-o", tmp_path / "out", "--format", "csv") == 0, probe.err
    assert "the target is unfinished" in probe.out + probe.err
    assert "line 3 of a.pkl is cut off or damaged" in probe.out + probe.err


def test_metrics_of_the_older_tools_are_ordinary_metrics(dumps: Path, probe: Probe, tmp_path: Path) -> None:
    runs = [dumps / "hooks_rc3_conv" / f"{side}.pkl" for side in ("npu", "cpu")]
    metrics = ("--metric", "rmse", "--metric", "mape")
    assert probe("compare", *runs, "-o", tmp_path, "--format", "csv", *metrics) == 0, probe.err
    with (dumps / "hooks_rc3_conv/result.csv").open(newline="") as file:
        old = next(row for row in csv.DictReader(file) if row["Name"] == "Functional_conv2d_forward_output")
    (row,) = [row for row in rows_in(tmp_path) if row["NPU Name"] == "Functional.conv2d.0.forward.output.0"]
    assert float(row["RMSE"]) == pytest.approx(float(old["RMSE"]), rel=1e-5)
    assert 100 * float(row["MAPE"]) == pytest.approx(float(old["MAPE"].rstrip("%")), rel=1e-3)
    assert 0.5 + 0.5 * float(row["Cosine"]) == pytest.approx(float(old["Cosine"]), abs=1e-6)
