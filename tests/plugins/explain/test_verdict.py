"""The reason that the verdict states if a run cannot be judged."""

from __future__ import annotations

from pathlib import Path

from probe_explain.replaying import CallResult
from probe_explain.run import Explanation, RankResult
from probe_explain.verdict import ExplainOutcome, conclude_verdict
from probe_precheck.replaying import NOTHING_TO_JUDGE


def conclude(*reasons: str) -> tuple[ExplainOutcome, str]:
    calls = [CallResult(f"Torch.f.{n}", reason) for n, reason in enumerate(reasons)]
    verdict = conclude_verdict(Explanation(Path("run"), [RankResult(Path("rank0/dump.json"), calls=calls)]))
    return verdict.outcome, verdict.text


def test_the_reason_of_a_run_without_judged_records_is_not_a_harmless_one() -> None:
    outcome, text = conclude(*[NOTHING_TO_JUDGE] * 3, "no memory", "no memory", "other")
    assert outcome is ExplainOutcome.CANNOT_TELL
    assert text == ("none of 6 records were computed again; 2 records: no memory; the first is Torch.f.3.forward")


def test_a_harmless_reason_is_stated_if_there_is_no_other() -> None:
    assert NOTHING_TO_JUDGE in conclude(NOTHING_TO_JUDGE)[1]
