"""The verdict on a run of several ranks names the rank of each cause, rank 0 as well."""

from __future__ import annotations

from pathlib import Path

import pytest
from probe_explain.printing import print_verdict
from probe_explain.run import Explanation, RankResult, UnexplainedResult
from probe_explain.verdict import conclude_verdict
from probe_precheck.yardstick import ErrorMeasurement

OFF = ErrorMeasurement("output.0", "torch.float32", (2,), 0.1, 0.1, 1e-7, 1e6)


@pytest.mark.parametrize(("ranks", "named"), [([0, 1], True), ([0], False), ([3], True)])
def test_the_rank_of_a_cause(ranks: list[int], named: bool, capsys: pytest.CaptureFixture[str]) -> None:
    results = [RankResult(Path(f"rank{rank}/dump.json"), "", rank) for rank in ranks]
    results[0].unexplained_results.append(UnexplainedResult("Torch.a.0.forward", OFF, rank=ranks[0]))
    verdict = conclude_verdict(Explanation(Path("run"), results))
    start = f"on rank {ranks[0]}, " if named else ""
    assert verdict.sentence.startswith(f"ERROR INTRODUCED: {start}Torch.a.0.forward returns values that are off")
    print_verdict(verdict, [])
    place = f"rank {ranks[0]}, " if named else ""
    assert f"\n  1. {place}Torch.a.0.forward\n" in capsys.readouterr().out
