"""The lines that are printed at the end of a recording that is compared with a golden."""

from __future__ import annotations

from pathlib import Path

import pytest
from probe_recording.diff_check.call_judge import CallJudge, StoredCall
from probe_recording.diff_check.comparison import list_result_lines
from probe_recording.diff_check.golden_run import GoldenRun

GOLDEN = GoldenRun(Path("golden"), "golden dir", "tensor", "L1", "pytorch", "statistics", None, {})


@pytest.fixture
def judge() -> CallJudge:
    judge = CallJudge.__new__(CallJudge)
    judge.golden = GOLDEN
    judge.stored_calls, judge.missing_steps = [], []
    judge.differing_count = judge.compared_count = judge.unpaired_count = judge.left_out_count = 0
    return judge


def test_list_result_lines_without_a_comparison(judge: CallJudge) -> None:
    judge.missing_steps = [3, 4]
    assert list_result_lines(judge, "run", "") == [
        "probe: the golden does not have this rank in steps 3, 4, so nothing was compared there."
    ]


@pytest.mark.parametrize(("count", "text"), [(1, "1 compared record agrees"), (2, "2 compared records agree")])
def test_list_result_lines_of_equal_runs(judge: CallJudge, count: int, text: str) -> None:
    judge.compared_count = count
    assert list_result_lines(judge, "run", "") == [f"probe: {text} with golden dir, so no tensors were kept."]


def test_list_result_lines_of_runs_that_differ(judge: CallJudge) -> None:
    judge.stored_calls = [StoredCall(0, "a", None), StoredCall(1, "b", "c"), StoredCall(2, "d", "d")]
    judge.differing_count, judge.unpaired_count, judge.left_out_count = 2, 1, 1
    assert list_result_lines(judge, "my run", "") == [
        "probe: 2 calls differ from golden dir and keep their tensors, with 1 call that only this run makes:",
        "  step0 a  (not in the golden)",
        "  step1 b  (c in the golden)",
        "  step2 d",
        "probe: 1 record has no partner in the golden.",
        "probe: the memory did not suffice for 1 tensor of these calls.",
        "Compare:",
        "  probe compare 'my run' 'golden dir' -o out",
    ]
