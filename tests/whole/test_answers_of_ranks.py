"""Answers over several ranks: what they count, whom they name, and that resuming changes nothing."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.runs.answer_files import read_answer
from support.runs.recorded import forward, scalar, tensor, write_run
from support.runs.resumed import cut, mend

CASES = {"tensor_L1_dist2": "8.3.3", "stat_mix_dist2": "26.2.0", "md5_L1_dist2": "26.2.0"}


def said(text: str) -> list[str]:
    """The lines of the verdict: all that is printed before the first file is named, without time stamps."""
    text = re.sub(r"_\d{14}\b", "", text)
    return re.split(r"^  wrote ", text, maxsplit=1, flags=re.M)[0].splitlines()


@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("case", CASES)
def test_a_resumed_comparison_gives_the_same_answer(
    case: str, rank: int, jobs: str, runs: Any, probe: Any, tmp_path: Path
) -> None:
    """One rank was cut off at first: its collective calls are matched with those of the rank that was kept."""
    sides = []
    for side in ("npu_dump", "bench_dump"):
        shutil.copytree(runs(case, CASES[case]) / side / "step0", tmp_path / side)
        sides.append(tmp_path / side)
    options = ["-j", jobs, "--format", "csv"]
    assert probe("compare", *sides, "-o", tmp_path / "whole", *options) == 0, probe.err
    whole, printed = read_answer(tmp_path / "whole"), said(probe.out)
    assert whole["verdict"] == "DIVERGED" and whole["causes"]
    assert len(whole["steps"][0]["ranks"]) == 2

    record = sides[1] / f"rank{rank}/dump.json"
    data = cut(record)
    assert probe("compare", *sides, "-o", tmp_path / "o", *options) == 2
    assert probe.out.startswith(f"{read_answer(tmp_path / 'o')['verdict']}: ")
    (step,) = read_answer(tmp_path / "o")["steps"]
    assert [one["verdict"] is None for one in step["ranks"]] == [number == rank for number in (0, 1)]
    mend(record, data)
    assert probe("compare", *sides, "-o", tmp_path / "o", *options, "--resume") == 0, probe.err
    assert "1 of them in an earlier run" in probe.out
    assert read_answer(tmp_path / "o") == whole
    assert said(probe.out) == printed


def calls(argument: int = 1, value: float = 1.0) -> dict[str, Any]:
    """A call that receives an argument and returns a value."""
    return {"Torch.add.0.forward": forward(tensor(), scalar(argument), output=[tensor(value=value)])}


def test_ranks_that_agree_are_not_said_to_differ(probe: Any, tmp_path: Path) -> None:
    """Calls made with another argument, whose values agree, on one rank of two."""
    for rank in (0, 1):
        write_run(tmp_path / f"t/rank{rank}", calls(argument=1 + rank))
        write_run(tmp_path / f"g/rank{rank}", calls())
    assert probe("compare", tmp_path / "t", tmp_path / "g", "-o", tmp_path / "o", "--fail-on", "suspect") == 1
    assert probe.out.startswith("AGREE: within rounding in all 5 other values that both runs recorded; 1 call was ")
    assert "  agree, but with calls made differently: rank1\n" in probe.out
    assert "  differ:" not in probe.out and "all agree" not in probe.out


def test_a_rank_that_gives_no_verdict_is_named(probe: Any, tmp_path: Path) -> None:
    for rank in (0, 1):
        write_run(tmp_path / f"g/rank{rank}", calls())
        write_run(tmp_path / f"t/rank{rank}", calls())
    unknown = tensor(Max=None, Min=None, Mean=None, Norm=None)
    write_run(tmp_path / "t/rank1", {"Torch.add.0.forward": forward(unknown, scalar(1), output=[unknown])})
    assert probe("compare", tmp_path / "t", tmp_path / "g", "-o", tmp_path / "o") == 0, probe.err
    assert probe.out.startswith("NOT COMPARABLE: rank1: none of the target's 2 floating-point tensors could ")
    assert " (1 of 2 comparisons cannot be compared)\n" in probe.out
    assert "  no call is named as a cause; no decision on: rank1\n" in probe.out


def test_a_rank_without_its_partner_is_no_agreement(probe: Any, tmp_path: Path) -> None:
    for rank in (0, 1):
        path = write_run(tmp_path / f"t/rank{rank}", calls())
        write_run(tmp_path / f"g/rank{rank}", calls())
    path.write_text("{")
    assert probe("compare", tmp_path / "t", tmp_path / "g", "-o", tmp_path / "o") == 2
    assert probe.out.startswith("CANNOT TELL: 1 of 2 comparisons did not finish; the others agree\n")


@pytest.mark.parametrize("faulty", ["dump.json", "debug.json"])
def test_calls_and_saved_variables_of_one_rank_each_have_a_verdict(probe: Any, tmp_path: Path, faulty: str) -> None:
    for rank in (0, 1):
        for side in ("t", "g"):
            off = 9.0 if (side, rank) == ("t", 1) else 1.0
            data = calls(value=off if faulty == "dump.json" else 1.0)
            saved = {"loss.0.debug": tensor(value=off if faulty == "debug.json" else 1.0)}
            write_run(tmp_path / side / f"rank{rank}", data)
            write_run(tmp_path / side / f"rank{rank}", saved, name="debug.json", level="debug")
    assert probe("compare", tmp_path / "t", tmp_path / "g", "-o", tmp_path / "o") == 0, probe.err
    answer = read_answer(tmp_path / "o")
    (step,) = answer["steps"]
    found = {(one["rank"], one["file"]): one["verdict"] for one in step["ranks"]}
    assert len(found) == 4 and found.pop((1, faulty)) == "DIVERGED" and set(found.values()) == {"AGREE"}
    op = "Torch.add.0.forward" if faulty == "dump.json" else "loss.0.debug"
    assert [(cause["rank"], cause["op"]) for cause in answer["causes"]] == [(1, op)]
    assert probe.out.startswith(f"DIVERGED: on rank 1, {op} ")


def test_a_later_step_does_not_speak_of_earlier_ones(probe: Any, tmp_path: Path) -> None:
    """Its differences may follow from the step before, which another comparison saw."""
    for side in ("t", "g"):
        for step in (0, 1):
            value = tensor(value=9.0 if side == "t" and step else 1.0)
            out = tensor(value=9.0 if side == "t" else 1.0)
            data = {"Torch.add.0.forward": forward(value, output=[out])}
            write_run(tmp_path / f"{side}/step{step}/rank0", data)
    assert probe("compare", tmp_path / "t", tmp_path / "g", "-o", tmp_path / "o") == 0, probe.err
    answer = read_answer(tmp_path / "o")
    assert probe.out.startswith("DIVERGED: in step0, Torch.add.0.forward returns values that differ")
    later = answer["steps"][1]["ranks"][0]["causes"][0]["statement"]
    assert later.startswith("receives values that differ, and no earlier difference of this step explains them (")
