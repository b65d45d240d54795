"""Comparisons that are resumed: they answer what comparisons answer that nothing came between."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.runs.answer_files import read_answer
from support.runs.resumed import cut, mend

CASES = {"tensor_L1_dist2": "8.3.3", "stat_mix_dist2": "26.2.0", "md5_L1_dist2": "26.2.0"}


def said(text: str) -> list[str]:
    """The lines of the verdict: all that is printed before the first file is named."""
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
    assert whole["verdict"] == ("CANNOT TELL" if "md5" in case else "DIVERGED") and whole["causes"]
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
