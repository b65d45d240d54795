"""``probe compare -da`` on recorded runs: the paths it takes and the files it writes."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.runs.differences import (  # noqa: F401
    GOOD,
    HEADERS,
    TRANSFER,
    Analysis,
    analyze,
    named,
    program,
    write_ranks,
    written,
)
from support.runs.recorded import write_run

from probe_core.model import Mode

RECORDED = [
    ("tensor_L1_dist2", "8.3.3"), ("stat_mix_dist2", "8.3.3"), ("tensor_L1_dist2", "26.2.0"),
    ("stat_mix_dist2", "26.2.0"), ("md5_L1_dist2", "26.2.0"),
]  # fmt: skip
MODES = ["tensor_L1_dist2", "stat_mix_dist2", "md5_L1_dist2"]
FAULT = "Tensor.__mul__.0.forward"
# -- recorded runs -----------------------------------------------------------------------------


@pytest.mark.parametrize(("case", "version"), RECORDED)
def test_the_fault_of_a_recorded_run(case: str, version: str, analyze: Analysis, runs: Any) -> None:
    """Rank 1 multiplies by 1.05 before the sum over both ranks, and nothing else is wrong."""
    run = runs(case, version)
    found = analyze(run / "npu_dump/step0", run / "bench_dump/step0")
    assert named(found) == [("rank_1", FAULT)]
    (node,) = found["rank_1"]
    assert list(node["data_info"]) == ["input", "output"]
    assert list(node["data_info"]["input"]) == [f"{FAULT}.input.0", f"{FAULT}.input.1"]
    assert list(node["data_info"]["output"]) == [f"{FAULT}.output.0"]
    assert "was called with a different argument" in node["reason"]
    assert any("in f, " in frame for frame in node["stack_info"])
    assert analyze.names() == [
        "answer.json", "compare_result_rank0.json", "compare_result_rank1.json", "diff_analyze.json",
    ]  # fmt: skip


@pytest.mark.parametrize(("case", "version"), RECORDED)
def test_the_files_of_the_ranks_of_a_recorded_run(case: str, version: str, analyze: Analysis, runs: Any) -> None:
    run = runs(case, version)
    analyze(run / "npu_dump/step0", run / "bench_dump/step0")
    mode = Mode.MD5 if case.startswith("md5") else Mode.STATISTICS
    for rank in (0, 1):
        record = json.loads((run / f"npu_dump/step0/rank{rank}/dump.json").read_text())["data"]
        content = analyze.rank(rank)
        assert list(content) == list(record), "each op once, in the order of the run"
        for op, entry in content.items():
            assert type(entry["is_same"]) is bool
            for item in entry["op_items"]:
                columns = list(item)
                assert columns[: len(HEADERS[mode])] == HEADERS[mode]
                assert [column for column in columns if column in TRANSFER] == TRANSFER
                assert item["api_origin_name"] == op
                assert item["state"] in ("input", "output", "parameters", "parameters_grad")
                assert item["NPU Name"].startswith(op)
                assert [item[column] for column in TRANSFER] == ["None"] * 4
    assert analyze.rank(1)[FAULT]["is_same"] is False
    assert analyze.rank(0)[FAULT]["is_same"] is True
    assert analyze.rank(0)["Distributed.all_reduce.0.forward"]["is_same"] is False
    first = analyze.rank(1)[FAULT]["op_items"]
    assert [item["state"] for item in first] == ["input", "input", "output"]
    assert isinstance(first[0]["NPU_Stack_Info"], list) and first[1]["NPU_Stack_Info"] == "N/A"


def test_what_is_shown_of_the_values(analyze: Analysis, runs: Any) -> None:
    """The guide's columns, and those of the golden beside them."""
    for case, version in RECORDED:
        run = runs(case, version)
        node = analyze(run / "npu_dump/step0", run / "bench_dump/step0")["rank_1"][0]
        argument = node["data_info"]["input"][f"{FAULT}.input.1"]
        if case.startswith("md5"):
            assert set(argument) == {"NPU MD5", "BENCH MD5", "NPU P2POp peer"}
            assert argument["NPU MD5"] != argument["BENCH MD5"]
        else:
            assert argument["NPU max"] == argument["NPU l2norm"] == 1.05
            assert argument["Bench max"] == argument["Bench mean"] == 1.0
        assert argument["NPU P2POp peer"] == "None"


@pytest.mark.parametrize("case", MODES)
def test_a_run_against_itself_names_nothing(case: str, analyze: Analysis, runs: Any) -> None:
    for version in ("8.3.3", "26.2.0") if case != "md5_L1_dist2" else ("26.2.0",):
        golden = runs(case, version) / "bench_dump/step0"
        assert analyze(golden, golden) == {}
        assert analyze.names() == ["answer.json", "compare_result_rank0.json", "compare_result_rank1.json"]
        agree = "within rounding" if case.startswith("stat") else "equal"
        assert analyze.probe.out.startswith(f"AGREE: {agree} in all ")
        assert "no difference beyond rounding in 2 ranks" in analyze.probe.out
        for rank in (0, 1):
            assert all(entry["is_same"] for entry in analyze.rank(rank).values())


@pytest.mark.parametrize("version", ["8.3.3", "26.2.0"])
def test_half_precision_names_nothing(version: str, analyze: Analysis, runs: Any) -> None:
    """A bias in front of a BatchNorm has a gradient of 0, which rounding makes 1e-9 or 1e-5."""
    run = runs("stat_L1_mlp_fp16", version)
    assert analyze(run / "npu_dump/step0", run / "bench_dump/step0") == {}


def test_both_sides_are_printed(analyze: Analysis, runs: Any) -> None:
    run = runs("tensor_L1_dist2")
    analyze(run / "npu_dump/step0", run / "bench_dump/step0")
    lines = [line.split() for line in analyze.probe.out.splitlines()]
    heads = "NPU: max min mean norm    Bench: max min mean norm"
    assert "first difference among 2 ranks:" in analyze.probe.out
    assert f"  rank 1: {FAULT}\n" in analyze.probe.out
    assert "r = y.detach().clone() * (1.05" in analyze.probe.out
    start = lines.index(heads.split())
    assert lines[start + 1][0] == "input.0" and "differs" not in lines[start + 1]
    assert lines[start + 2] == ["input.1", "1.05", "1.0", "differs"]
    assert lines[start + 3][0] == "output.0" and lines[start + 3][-1] == "differs"
    numbers = lines[start + 3][1:-1]
    assert len(numbers) == 8 and numbers[:4] != numbers[4:]
    assert lines[start + 4][0] == "wrote" and "diff_analyze_" in lines[start + 4][1]


def test_the_checksums_of_both_sides_are_printed(analyze: Analysis, runs: Any) -> None:
    run = runs("md5_L1_dist2", "26.2.0")
    node = analyze(run / "npu_dump/step0", run / "bench_dump/step0")["rank_1"][0]
    output = node["data_info"]["output"][f"{FAULT}.output.0"]
    shown = " ".join(analyze.probe.out.split())
    assert " NPU: checksum Bench: checksum " in shown
    assert f" output.0 {output['NPU MD5']} {output['BENCH MD5']} differs " in shown


# -- which paths, which files ----------------------------------------------------------------------


def test_one_pair_of_files(analyze: Analysis, runs: Any) -> None:
    """By file, by directory, by compare file: the rank is that of the directory."""
    run = runs("tensor_L1_dist2")
    target, golden = run / "npu_dump/step0/rank1", run / "bench_dump/step0/rank1"
    compare = analyze.out.with_suffix(".compare.json")
    compare.write_text(json.dumps({"npu_path": str(target / "dump.json"), "bench_path": str(golden / "dump.json")}))
    for arguments in ((target / "dump.json", golden / "dump.json"), (target, golden), ("-i", compare)):
        assert named(analyze(*arguments)) == [("rank_1", FAULT)]
        assert analyze.names() == ["answer.json", "compare_result_rank1.json", "diff_analyze.json"]
        assert "first difference among 1 rank:" in analyze.probe.out


def test_a_pair_of_files_without_number_is_rank_0(analyze: Analysis, tmp_path: Path) -> None:
    target = write_run(tmp_path / "a", program(1.05, 1.05))
    golden = write_run(tmp_path / "b", GOOD)
    assert named(analyze(target, golden)) == [("rank_0", "Torch.mul.0.forward")]
    assert analyze.names() == ["answer.json", "compare_result_rank0.json", "diff_analyze.json"]


def test_a_row_is_named_only_of_a_table_that_is_written(analyze: Analysis, runs: Any) -> None:
    both = [runs("tensor_L1_dist2") / f"{side}_dump/step0/rank1" for side in ("npu", "bench")]
    analyze(*both)
    assert "\n  1. rank 1, Tensor.__mul__.0.forward\n" in analyze.probe.out and "(row" not in analyze.probe.out
    analyze(*both, "--format", "csv", "-c")
    row = r"\n  1\. rank 1, Tensor\.__mul__\.0\.forward  \(row 10 of \w+\.csv, counting the header\)\n"
    assert re.search(row, analyze.probe.out)


def test_tables_are_written_only_where_they_are_asked_for(analyze: Analysis, written: Any) -> None:
    both = written([program(1.05, 1.05), GOOD], [GOOD, GOOD])
    analyze(*both, "--format", "csv,xlsx", "-c")
    assert [name for name in analyze.names() if not name.endswith(".json")] == [
        "compare_result_rank0.csv", "compare_result_rank0.xlsx", "compare_result_rank1.csv",
        "compare_result_rank1.xlsx", "compare_summary.csv", "compare_summary.xlsx",
    ]  # fmt: skip
    analyze(*both)
    assert all(name.endswith(".json") for name in analyze.names())


def test_each_step_is_analysed_by_itself(analyze: Analysis, tmp_path: Path) -> None:
    for step, scale in ((0, 1.0), (1, 1.05), (2, 1.05)):
        write_ranks(tmp_path / f"t/step{step}", [program(scale, 1.02), program(1.0, 1.02 if step else 1.0)])
        write_ranks(tmp_path / f"g/step{step}", [program(1.0, 1.02 if not step else 1.0), GOOD])
    analyze(tmp_path / "t", tmp_path / "g")
    assert analyze.found("step0") == {}
    for step in (1, 2):
        assert named(analyze.found(f"step{step}")) == [("rank_0", "Torch.mul.0.forward")]
        assert f"step{step}: first difference among 2 ranks:" in analyze.probe.out
    assert "step0: no difference beyond rounding in 2 ranks" in analyze.probe.out
    for step in range(3):
        assert list(analyze.rank(1, f"step{step}")) == list(GOOD)
    assert named(analyze(tmp_path / "t", tmp_path / "g", "--step", "1")) == [
        ("rank_0", "Torch.mul.0.forward")
    ]  # fmt: skip


def test_several_workers_write_the_same_files(analyze: Analysis, runs: Any) -> None:
    run = runs("stat_mix_dist2")
    both = run / "npu_dump/step0", run / "bench_dump/step0"
    alone = analyze(*both), analyze.rank(0), analyze.rank(1)
    shutil.rmtree(analyze.out)
    assert analyze.probe("compare", *both, "-o", analyze.out, "-da", "-j", "2") == 0
    assert (analyze.found(), analyze.rank(0), analyze.rank(1)) == alone


def test_a_finished_comparison_exits_with_0_unless_asked(analyze: Analysis, written: Any) -> None:
    both = written([program(9.0, 9.0)], [GOOD])
    assert analyze(*both, "--fail-on", "error", code=1) == analyze(*both) != {}
    assert analyze(both[1], both[1], "--fail-on", "error") == {}


def test_fuzzy_pairs_are_analysed(analyze: Analysis, runs: Any) -> None:
    """One more relu in front moves every name by one; in their order the calls agree."""
    run = runs("tensor_L1_fuzzy")
    assert analyze(run / "npu_dump/step0", run / "bench_dump/step0", "-f") == {}
