"""Rules of the verdict, and its sentences."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from probe_diagnosis.answer.verdict.rank_verdict import build_rank_answer
from probe_diagnosis.timeline.coverage import CoverageTally
from support.probe import Probe
from support.runs.answered import call, normal, record
from support.runs.differences import strictly

from probe_core.model.answers import Finding, Note, NoteKind, Outcome
from probe_core.model.rows import Reason

CAUSE = Finding("Torch.a.0.forward", "", Reason("introduced", "differs"), where="a.py:3")
OTHER = Finding("Torch.b.0.forward", "", Reason("made differently", "computes in another dtype"))


def tally(compared: int = 100, of: int = 100, golden: int | None = None, **fields: Any) -> CoverageTally:
    """Counts of tensors of floating point."""
    floats = [of, of if golden is None else golden]
    return CoverageTally(of, compared, floats, [compared, compared], **fields)


def lacking(**counts: int) -> dict[str, Any]:
    return {"lacking": Counter(counts), "first": {code: f"Torch.{code}.0.forward" for code in counts}}


def sentence(*arguments: Any, **keywords: Any) -> str:
    return build_rank_answer(*arguments, **keywords).sentence


# -- AGREE -----------------------------------------------------------------------------------------------


def test_agreement_needs_every_value_of_both_runs() -> None:
    assert sentence([], [], tally()) == "AGREE: within rounding in all 100 values that both runs recorded"
    assert build_rank_answer([], [], tally(compared=99, **lacking(unreadable=1))).outcome is Outcome.CANNOT_TELL
    assert sentence([], [], tally(equal=100)) == "AGREE: equal in all 100 values that both runs recorded"
    assert sentence([], [], tally(equal=99)).startswith("AGREE: within rounding in all 100 values")


def test_verdict_agrees_with_a_single_value_in_number() -> None:
    assert sentence([], [], tally(1, 1)) == "AGREE: within rounding in the only value that both runs recorded"
    lost = lacking(no_target_file=1)
    assert sentence([], [], tally(0, 1, **lost)).startswith(
        "NOT COMPARABLE: the target's only floating-point tensor could not be compared"
    )
    assert sentence([], [], CoverageTally(2, 1, tensors=1, **lost)).startswith(
        "NOT COMPARABLE: the only recorded tensor could not be compared"
    )
    by_statistics = CoverageTally(2, 1, by_statistics=Counter(no_target_file=1), **lost)
    assert (
        "1 value without a tensor file in the target (only its statistics were recorded)"
        in by_statistics.format_reasons()[0]
    )


@pytest.mark.parametrize("code", ["uninitialised", "empty", "not_recorded"])
def test_exceptions_are_excused_by_name(code: str) -> None:
    answer = build_rank_answer([], [], tally(compared=98, **lacking(**{code: 2})))
    assert answer.outcome is Outcome.AGREE
    assert answer.sentence.startswith("AGREE: within rounding in all 98 values that both runs recorded; ")
    assert "not compared: 2 " in answer.sentence
    assert answer.missing == (answer.missing[0],)
    assert f"the first is Torch.{code}.0.forward" in answer.missing[0]


def test_an_agreement_says_what_one_run_lacks_and_what_was_made_differently() -> None:
    text = sentence([], [OTHER], tally(compared=90, **lacking(target_only=7, golden_only=3)))
    assert text.endswith("; 10 further values were recorded in one run only, the first is Torch.target_only.0.forward; 1 call was "
                         "made differently: Torch.b.0.forward")  # fmt: skip
    text = sentence([], [OTHER, CAUSE], tally())
    assert text.endswith(
        "values that both runs recorded; 2 calls were made differently, the first is Torch.b.0.forward"
    )
    assert build_rank_answer([], [OTHER], tally()).causes == (OTHER,)


# -- NOT COMPARABLE ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("compared", "outcome"), [(9, "NOT COMPARABLE"), (10, "CANNOT TELL")])
def test_less_than_a_tenth_of_the_target_is_not_comparable(compared: int, outcome: str) -> None:
    answer = build_rank_answer([], [], tally(compared, **lacking(no_golden_file=100 - compared)))
    assert answer.outcome.value == outcome
    assert f"({100 - compared} values without a tensor file in the golden; the first is " in answer.sentence
    assert answer.next == ("Copy or record the missing tensor files again, and compare again.",)


def test_causes_in_less_than_a_tenth_show_nothing() -> None:
    answer = build_rank_answer([CAUSE], [], tally(compared=9, **lacking(target_only=91)))
    assert answer.sentence.startswith(
        "NOT COMPARABLE: only 9 of the target's 100 floating-point tensors could be compared (91 values "
        "recorded in the target only; the first is Torch.target_only.0.forward"
    )


def test_runs_without_tensors_of_floating_point_are_judged_by_all_values() -> None:
    assert build_rank_answer([], [], CoverageTally(both=10, compared=10)).outcome is Outcome.AGREE
    text = sentence([], [], CoverageTally(both=100, compared=5, **lacking(target_only=900)))
    assert text.startswith("NOT COMPARABLE: only 5 of the target's 1,000 values could be compared (")
    assert build_rank_answer([], [], CoverageTally()).outcome is Outcome.NOT_COMPARABLE


# -- CANNOT TELL -----------------------------------------------------------------------------------------


def test_a_value_of_both_runs_that_was_not_measured() -> None:
    text = sentence([], [], tally(compared=98, **lacking(metric_failed=2)))
    assert text.startswith("CANNOT TELL: no compared value differs, but 2 values were not compared (2 values ")


@pytest.mark.parametrize("golden", [None, 100])
def test_much_that_one_run_lacks(golden: int | None) -> None:
    """It counts for either run."""
    found = tally(40, 100 if golden is None else 40, golden, **lacking(target_only=60))
    assert sentence([], [], found).startswith(
        f"CANNOT TELL: no compared value differs, but only 40% of the {'golden' if golden else 'target'}'s"
    )
    assert build_rank_answer([], [], tally(50, 100, **lacking(target_only=50))).outcome is Outcome.AGREE


def test_rows_that_fail_by_the_rule_of_the_table() -> None:
    text = sentence([], [], tally(failing_at=dict.fromkeys(["Torch.x.0.forward.output.0", "b", "c"], 0.0)))
    assert text.startswith(
        "CANNOT TELL: 3 rows, starting with Torch.x.0.forward.output.0, are errors by the rule of the table, although "
    )


def test_an_interrupted_comparison() -> None:
    answer = build_rank_answer([], [], tally(), is_interrupted=True)
    assert (
        answer.sentence == "CANNOT TELL: the comparison was interrupted; all values that were compared until then agree"
    )
    answer = build_rank_answer([CAUSE], [], tally(), is_interrupted=True)
    assert answer.outcome is Outcome.DIVERGED
    assert answer.missing == ("the comparison was interrupted before its end",)


def test_causes_in_doubt() -> None:
    answer = build_rank_answer([CAUSE], [], tally(), doubt="checksums do not say")
    assert answer.sentence == "CANNOT TELL: Torch.a.0.forward differs, at a.py:3; checksums do not say"
    assert answer.causes == (CAUSE,)


# -- DIVERGED --------------------------------------------------------------------------------------------


NOTE = Note(NoteKind.NO_EFFECT, "a note")


def test_the_first_cause_is_the_sentence() -> None:
    answer = build_rank_answer([CAUSE, OTHER], [], tally(), notes=[NOTE], unfinished=["the target is unfinished"])
    assert answer.sentence == "DIVERGED: Torch.a.0.forward differs, at a.py:3"
    assert (answer.causes, answer.notes) == ((CAUSE, OTHER), (NOTE,))
    assert answer.missing == ("the target is unfinished",)


LINE = "File /home/me, too/a (1)/net.py, line 26, in forward, return x / scale(2, 3)"


@pytest.mark.parametrize(
    "where, shown",
    [
        (LINE, ", at net.py, line 26, in forward"),
        (r"File C:\x\net.py, line 3, in <module>, f()", ", at net.py, line 3, in <module>"),
        ("net.py:3", ", at net.py:3"),
        ("", ""),
    ],
)
def test_the_first_line_is_brief(where: str, shown: str) -> None:
    """The values behind the statement and the whole line of code are those of the cause below it."""
    reason = Reason("introduced", "differs (output.0: off by 1)")
    cause = Finding("Torch.a.0.forward", "", reason, where=where, brief="differs")
    assert sentence([cause], [], tally()) == f"DIVERGED: Torch.a.0.forward differs{shown}"


def test_a_verdict_on_a_part_of_the_target_says_so() -> None:
    text = sentence([CAUSE], [], tally(compared=30, **lacking(target_only=70)))
    assert text.endswith("a.py:3; only 30% of the target's floating-point tensors could be compared")


# -- several ranks -----------------------------------------------------------------------------------------

X, Y = normal(seed=1), normal(seed=2)
GOOD = {f"Torch.f{number}.0.forward": call(X, out=X) for number in range(4)}
BAD = GOOD | {"Torch.f1.0.forward": call(X, out=Y), "Torch.f2.0.forward": call(Y, out=Y)}


def step(directory: Path, *ranks: Any) -> Path:
    for number, calls in enumerate(ranks):
        record(directory / f"rank{number}", calls)
    return directory


def folded(tmp_path: Path, probe: Probe, target: list[Any], golden: list[Any], code: int = 0) -> Any:
    """The answer over all ranks."""
    sides = step(tmp_path / "t", *target), step(tmp_path / "g", *golden)
    assert probe("compare", *sides, "-o", tmp_path / "o", "-j", "1") == code, probe.err
    (path,) = (tmp_path / "o").glob("answer_*.json")
    found = strictly(path)
    assert probe.out.startswith(found["sentence"])
    return found


def test_ranks_that_agree(tmp_path: Path, probe: Probe) -> None:
    found = folded(tmp_path, probe, [GOOD, GOOD], [GOOD, GOOD])
    assert found["verdict"] == "AGREE"
    assert found["sentence"].startswith("AGREE: equal in all 16 values that both runs recorded (")
    assert found["sentence"].endswith("(2 of 2 comparisons agree)")
    assert found["coverage"]["compared"] == found["coverage"]["equal"] == 16


def test_one_rank_of_two_diverged(tmp_path: Path, probe: Probe) -> None:
    found = folded(tmp_path, probe, [GOOD, BAD], [GOOD, GOOD])
    assert found["sentence"].startswith("DIVERGED: on rank 1, Torch.f1.0.forward returns values that differ, ")
    assert found["sentence"].endswith("(1 of 2 comparisons diverged)")
    assert [rank["verdict"] for rank in found["steps"][0]["ranks"]] == ["AGREE", "DIVERGED"]
    (cause,) = found["causes"]
    assert (cause["op"], cause["rank"]) == ("Torch.f1.0.forward", 1)
    assert cause["consequences"] == {"count": 1, "first": ["Torch.f2.0.forward"]}


def test_a_rank_that_cannot_be_compared_is_no_agreement(tmp_path: Path, probe: Probe) -> None:
    few = {"Torch.f0.0.forward": GOOD["Torch.f0.0.forward"]}
    many = {f"Torch.g{number}.0.forward": call(X, out=X) for number in range(30)}
    found = folded(tmp_path, probe, [GOOD, few | many], [GOOD, few])
    assert found["verdict"] == "NOT COMPARABLE"
    assert found["sentence"].endswith("(1 of 2 comparisons cannot be compared)")


def test_a_rank_that_failed_is_no_agreement(tmp_path: Path, probe: Probe) -> None:
    golden = step(tmp_path / "g", GOOD, GOOD)
    target = step(tmp_path / "t", GOOD, GOOD)
    (target / "rank1" / "dump.json").write_text("{")
    assert probe("compare", target, golden, "-o", tmp_path / "o", "-j", "1") == 2
    assert probe.out.startswith("CANNOT TELL: 1 of 2 comparisons did not finish; the others agree")
    (path,) = (tmp_path / "o").glob("answer_*.json")
    failed = next(rank for rank in strictly(path)["steps"][0]["ranks"] if rank["verdict"] is None)
    assert failed["rank"] == 1
    assert "dump.json" in failed["error"]


def test_a_rank_that_failed_hides_no_difference(tmp_path: Path, probe: Probe) -> None:
    golden = step(tmp_path / "g", GOOD, GOOD)
    target = step(tmp_path / "t", BAD, GOOD)
    (target / "rank1" / "dump.json").write_text("{")
    assert probe("compare", target, golden, "-o", tmp_path / "o", "-j", "1") == 2
    assert probe.out.startswith("DIVERGED: on rank 0, Torch.f1.0.forward returns values that differ")


def test_the_first_step_with_causes_is_named(tmp_path: Path, probe: Probe) -> None:
    for side, steps in (("t", (GOOD, BAD, BAD)), ("g", (GOOD, GOOD, GOOD))):
        for number, calls in enumerate(steps):
            step(tmp_path / side / f"step{number}", calls)
    assert probe("compare", tmp_path / "t", tmp_path / "g", "-o", tmp_path / "o", "-j", "1") == 0, probe.err
    assert probe.out.startswith("DIVERGED: in step1, Torch.f1.0.forward returns values that differ")
    (path,) = (tmp_path / "o").glob("answer_*.json")
    found = strictly(path)
    assert [cause["step"] for cause in found["causes"]] == ["step1"]
    assert [one["step"] for one in found["steps"]] == ["step0", "step1", "step2"]
