"""The kit for policies, judges and highlighters: the installed ones pass, and each check finds the fault that it is for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from probe_diagnosis.hooks import probe_judges
from probe_metrics.hooks import probe_highlighters
from probe_reporters.api import HighlightSpec
from probe_reporters.testing import HighlighterConformance
from support.conformance import METRICS, TENSOR_POLICIES, failing

from probe_core.model import Colour, Level, Mark, Reason, Ruling, Verdict
from probe_core.plugins.specs import (
    JudgeSpec,
    PolicySpec,
)
from probe_core.testing import (
    JudgeConformance,
    PolicyConformance,
)

# -- policies and highlighters ---------------------------------------------------------------------


@pytest.mark.parametrize("spec", TENSOR_POLICIES, ids=lambda spec: spec.name)
def test_the_policies_pass(spec: PolicySpec, tmp_path: Path) -> None:
    assert failing(PolicyConformance, tmp_path, spec=spec, metrics=METRICS) == set()


class Lenient:
    def judge(self, pair: Any, measurements: Any) -> Any:
        return Verdict(Level.PASS, "fine")


class Severe(Lenient):
    def judge(self, pair: Any, measurements: Any) -> Any:
        return Verdict(Level.ERROR, "bad", (Reason("nothing"),), failed=True)


class Trusting(Lenient):
    def judge(self, pair: Any, measurements: Any) -> Any:
        assert measurements["cosine.Cosine"].value is not None
        return super().judge(pair, measurements)


class Wordy(Lenient):
    def judge(self, pair: Any, measurements: Any) -> Any:
        return "fine"


class Tired(Lenient):
    calls = 0

    def judge(self, pair: Any, measurements: Any) -> Any:
        self.calls += 1
        return Verdict(Level.PASS if self.calls < 5 else Level.WARNING, "")


@pytest.mark.parametrize(
    "policy, faults",
    [
        (Lenient, set()),
        (Severe, {"equal_tensors_are_no_error"}),
        (Trusting, {"every_pair_gets_a_verdict", "verdicts_are_repeatable"}),
        (Wordy, {"every_pair_gets_a_verdict", "equal_tensors_are_no_error"}),
        (Tired, {"verdicts_are_repeatable"}),
    ],
)
def test_a_fault_of_a_policy_is_found(policy: Any, faults: set[str], tmp_path: Path) -> None:
    spec = PolicySpec("mine", "mine", policy, "my team's", ("cosine",))
    assert failing(PolicyConformance, tmp_path / "c", spec=spec, metrics=METRICS[:1]) == faults
    unread = PolicySpec("mine", "mine", policy, "my team's", ("sign_flips",))
    found = failing(PolicyConformance, tmp_path / "d", spec=unread, metrics=METRICS[:1])
    assert found == faults | {"spec_lists_its_metrics"}


@pytest.mark.parametrize("spec", probe_judges(), ids=lambda spec: spec.name)
def test_the_judges_pass(spec: JudgeSpec, tmp_path: Path) -> None:
    assert failing(JudgeConformance, tmp_path, spec=spec) == set()


class Silent:
    def judge(self, op: Any, rows: Any) -> Any:
        return {}


class Harsh(Silent):
    def judge(self, op: Any, rows: Any) -> Any:
        return {n: Ruling(row.verdict._replace(level=Level.ERROR), Reason("x")) for n, row in enumerate(rows)}


class Beside(Silent):
    def judge(self, op: Any, rows: Any) -> Any:
        return {len(rows): Ruling(Verdict(Level.PASS, ""), Reason("x"))}


class Meddling(Silent):
    def judge(self, op: Any, rows: Any) -> Any:
        rows.clear()
        return {}


class Moody(Silent):
    moods = 0

    def judge(self, op: Any, rows: Any) -> Any:
        Moody.moods += 1
        verdict = Verdict(Level.PASS, str(Moody.moods))
        return {0: Ruling(verdict, Reason("x"))} if rows else {}


@pytest.mark.parametrize(
    "judge, faults",
    [
        (Silent, set()),
        (Harsh, {"equal_rows_are_no_error"}),
        (Beside, {"rulings_refer_to_rows"}),
        (Meddling, {"rulings_refer_to_rows"}),
        (Moody, {"rulings_are_repeatable"}),
    ],
)
def test_a_fault_of_a_judge_is_found(judge: Any, faults: set[str], tmp_path: Path) -> None:
    assert failing(JudgeConformance, tmp_path, spec=JudgeSpec("mine", "mine", judge)) == faults


@pytest.mark.parametrize("spec", probe_highlighters(), ids=lambda spec: spec.name)
def test_the_highlighters_pass(spec: HighlightSpec, tmp_path: Path) -> None:
    assert failing(HighlighterConformance, tmp_path, spec=spec, metrics=METRICS) == set()


RED = Mark(Colour.RED, (Reason("nothing"),))


class NoMarks:
    def mark(self, rows: Any) -> Any:
        return {}


class AllMarks(NoMarks):
    def mark(self, rows: Any) -> Any:
        return dict.fromkeys(range(len(rows)), RED)


class Beyond(NoMarks):
    def mark(self, rows: Any) -> Any:
        return {len(rows): RED}


class Plain(NoMarks):
    def mark(self, rows: Any) -> Any:
        return {0: "red"} if len(rows) > 10 else {}


class Once(NoMarks):
    calls = 0

    def mark(self, rows: Any) -> Any:
        self.calls += 1
        return {0: RED} if rows and self.calls > 3 else {}


@pytest.mark.parametrize(
    "highlighter, faults",
    [
        (NoMarks, set()),
        (AllMarks, {"equal_tensors_are_not_marked"}),
        (Beyond, {"marks_refer_to_rows", "equal_tensors_are_not_marked"}),
        (Plain, {"marks_refer_to_rows"}),
        (Once, {"marks_are_repeatable"}),
    ],
)
def test_a_fault_of_a_highlighter_is_found(highlighter: Any, faults: set[str], tmp_path: Path) -> None:
    spec = HighlightSpec("mine", "mine", highlighter)
    assert failing(HighlighterConformance, tmp_path, spec=spec, metrics=METRICS[:1]) == faults
