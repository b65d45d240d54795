"""The command ``probe nan-analyze``."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from probe_recording.file_names import PROBE_FIELD, UNFINISHED_FIELD
from support.programs import nan_training
from support.programs.rank_processes import run_ranks
from support.runs.nan_dumps import load_cases, write_case


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two processes: step 0 is clean, and in step 1 a nan spreads from rank 1."""
    out = tmp_path_factory.mktemp("training")
    run_ranks([sys.executable, nan_training.__file__, str(out)], out, nan_training.WORLD)
    return out / "run"


def written(out: Path) -> dict[str, Any]:
    return {path.name.rpartition("_")[0]: json.loads(path.read_text()) for path in out.glob("*.json")}


def test_nan_of_rank_1_that_spreads_is_named(training: Path, tmp_path: Path, probe: Any) -> None:
    assert probe("nan-analyze", "-i", training / "step1", "-o", tmp_path) == 0, probe.err
    first, *others = probe.out.splitlines()
    assert first.startswith("rank 1, step1: Torch.sqrt.0.forward returns nan, from finite inputs (File ")
    assert "nan_training.py" in first and "torch.sqrt(found - 100)" in first
    assert any("rank 0 receives it from rank 1 by Distributed.all_reduce.0.forward" in line for line in others)
    files = written(tmp_path)
    assert [node["op_name"] for node in files["anomaly_analyze"]["rank_1"]] == ["Torch.sqrt.0.forward"]
    own = files["nan_analysis"]
    assert (own["step"], own["first"][0]["origin"]) == ("step1", "computed")
    assert [(step["rank"], step["received_from"]) for step in own["path"]] == [(1, []), (0, [1])]
    assert own["ranks"]["1"]["levels"]["critical"] > 0


def test_clean_step_with_masks_writes_nothing(training: Path, tmp_path: Path, probe: Any) -> None:
    out = tmp_path / "out"
    assert probe("nan_analyze", "--input_path", training / "step0", "--output_path", out) == 0, probe.err
    assert probe.out.startswith("step0: No value is harmfully nan or infinite.")
    assert "with intentional infinities" in probe.out
    assert not out.exists()


def test_first_step_with_a_finding_is_reported(training: Path, tmp_path: Path, probe: Any) -> None:
    assert probe("nan-analyze", "-i", training, "-o", tmp_path, "--fail-on", "found") == 1
    assert "step0: No value is" in probe.out and "rank 1, step1: Torch.sqrt" in probe.out
    assert probe("nan-analyze", "-i", training, "-o", tmp_path, "--step", "0", "--fail-on", "found") == 0


def test_single_rank_may_be_given(training: Path, tmp_path: Path, probe: Any) -> None:
    assert probe("nan-analyze", "-i", training / "step1" / "rank0", "-o", tmp_path) == 0, probe.err
    text = probe.out.splitlines()[0]
    assert text.startswith("rank 0, step1: Distributed.all_reduce.0.forward delivers nan")


def test_runs_without_stacks_are_analyzed(tmp_path: Path, probe: Any) -> None:
    step = write_case(load_cases()["no_stack"], tmp_path / "step3")
    (step / "rank0" / "stack.json").write_text("{")
    assert probe("nan-analyze", "-i", step, "-o", tmp_path / "out") == 0, probe.err
    assert "rank 0, step3: Torch.log.0.forward returns nan" in probe.out
    assert "line of code not recorded" in probe.out


def _truncate(rank: Path) -> None:
    content = (rank / "dump.json").read_bytes()
    (rank / "dump.json").write_bytes(content[: len(content) // 2])


def _write(text: str) -> Any:
    return lambda rank: (rank / "dump.json").write_text(text)


def _remove(rank: Path) -> None:
    for path in rank.iterdir():
        path.unlink()


def _set_statistic(rank: Path) -> None:
    content = json.loads((rank / "dump.json").read_text())
    content["data"]["Torch.log.0.forward"]["output"][0]["shape"] = "wide"
    (rank / "dump.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    "spoil",
    [_truncate, _write(""), _write("[]"), _write("null"), _write('{"task": 3, "data": {}}'), _remove,
     _write('{"task": "statistics", "data": []}'), _write('{"task": "structure", "data": {}}'),
     _write("\x00" * 50), _set_statistic],
)  # fmt: skip
def test_damaged_runs_are_one_sentence(spoil: Any, tmp_path: Path, probe: Any) -> None:
    step = write_case(load_cases()["all_reduce_spreads"], tmp_path / "step0")
    spoil(step / "rank1")
    code = probe("nan-analyze", "-i", step, "-o", tmp_path / "out")
    if code == 0:  # a rank without a record is left out
        assert spoil is _remove and "rank 0, step0" in probe.out
        assert "rank 1 has no record of calls and is left out" in probe.err
    else:
        assert code == 2 and "Traceback" not in probe.err and probe.err.startswith("error: ")


@pytest.mark.parametrize("path", ["missing", "", "empty", "file.txt"])
def test_wrong_paths_are_one_sentence(path: str, tmp_path: Path, probe: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.txt").write_text("x")
    assert probe("nan-analyze", "-i", path, "-o", "out") == 2
    assert "Traceback" not in probe.err and probe.err.startswith("error: ")


def test_run_without_statistics_is_refused(tmp_path: Path, probe: Any) -> None:
    case = {"ranks": {0: ["Torch.mul.0.forward: u -> u"]}}
    step = write_case(case, tmp_path / "step0")
    assert probe("nan-analyze", "-i", step, "-o", tmp_path / "out") == 2
    assert "holds no statistics" in probe.err and "summary_mode" in probe.err


def test_missing_statistics_are_a_warning(tmp_path: Path, probe: Any) -> None:
    case = {"ranks": {0: ["Torch.mul.0.forward: u -> f"]}}
    step = write_case(case, tmp_path / "step0")
    assert probe("nan-analyze", "-i", step, "-o", tmp_path / "out") == 0
    assert "1 of 2 tensors" in probe.err


def test_unfinished_record_is_a_warning(tmp_path: Path, probe: Any) -> None:
    case = {**load_cases()["one_rank"], "head": {PROBE_FIELD: {UNFINISHED_FIELD: True}}}
    step = write_case(case, tmp_path / "step0")
    assert probe("nan-analyze", "-i", step, "-o", tmp_path / "out") == 0
    assert "the record of rank 0 is unfinished" in probe.err and "Torch.log.0.forward" in probe.out


def test_long_lists_are_cut(tmp_path: Path, probe: Any) -> None:
    lines = [f"Torch.exp.{number}.forward: f -> i" for number in range(9)]
    step = write_case({"ranks": dict.fromkeys(range(12), lines)}, tmp_path / "step0")
    assert probe("nan-analyze", "-i", step, "-o", tmp_path / "out") == 0
    lines = probe.out.splitlines()
    assert sum("independently, rank" in line for line in lines) == 8
    assert sum(line.startswith("  also, rank") for line in lines) == 3
    assert any("and independently on 3 further ranks" in line for line in lines)
    assert any("further calls with finite inputs" in line for line in lines)


def test_output_that_cannot_be_written_is_one_sentence(tmp_path: Path, probe: Any) -> None:
    step = write_case(load_cases()["one_rank"], tmp_path / "step0")
    (tmp_path / "out").write_text("")
    assert probe("nan-analyze", "-i", step, "-o", tmp_path / "out") == 2
    assert "Traceback" not in probe.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_file_without_permission_is_one_sentence(tmp_path: Path, probe: Any) -> None:
    step = write_case(load_cases()["one_rank"], tmp_path / "step0")
    (step / "rank0" / "dump.json").chmod(0)
    assert probe("nan-analyze", "-i", step, "-o", tmp_path / "out") == 2
    assert "Permission denied" in probe.err
