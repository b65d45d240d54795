"""The answer on the terminal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from probe_diagnosis.answer.verdict.answer_printing import MAX_LINE_CHARACTERS, print_answer

from probe_core.model.answers import Answer, Coverage, Finding, Note, NoteKind, Outcome
from probe_core.model.rows import Reason

CAUSE = Finding(
    "Torch.a.0.forward", "Torch.a.0.forward.output.0", Reason("introduced", "returns values that differ"), {}, "7",
    ("Module.in.M.forward.0", "Module.out.M.forward.0"), "a.py, line 3", "", 2, ("Torch.b.0.forward",), 1200,
    ("Torch.a.1.forward",),
)  # fmt: skip


def printed(capsys: pytest.CaptureFixture[str], answer: Answer, file: Path | None = None, brief: bool = False) -> str:
    print_answer(answer, file, brief=brief)
    return capsys.readouterr().out


NOTE = Note(NoteKind.NO_EFFECT, "odd", "Torch.c.0.forward")


def test_all_that_an_answer_holds(capsys: pytest.CaptureFixture[str]) -> None:
    answer = Answer(
        Outcome.DIVERGED, "a: b", (CAUSE,), Coverage(2000, 1000), ("3 values lost",), ("Do this.",), (NOTE,)
    )  # fmt: skip
    assert printed(capsys, answer, Path("o/answer_0.json")).splitlines() == [
        "DIVERGED: a: b",
        "  1. rank 2, Torch.a.0.forward  (row 7)",
        "        returns values that differ",
        "        in Module.in.M.forward.0",
        "        a.py, line 3",
        "        the same argument differs in 1 other call: Torch.a.1.forward",
        "        values differ in 1,200 later calls; the first is Torch.b.0.forward",
        "  note: odd",
        "  compared: 1,000 of 2,000 recorded values",
        "    not compared: 3 values lost",
        "  next: Do this.",
        "  wrote o/answer_0.json",
    ]


def test_a_plain_cause_has_no_empty_lines(capsys: pytest.CaptureFixture[str]) -> None:
    cause = Finding("Torch.a.0.forward", "", Reason("introduced", "differs"))
    answer = Answer(Outcome.DIVERGED, "a", (cause,), Coverage(1, 1))
    assert printed(capsys, answer).splitlines() == [
        "DIVERGED: a",
        "  1. Torch.a.0.forward",
        "        differs",
        "  compared: 1 of 1 recorded values",
    ]


def test_the_order_of_two_values_is_explained_once(capsys: pytest.CaptureFixture[str]) -> None:
    against = Finding("Torch.a.0.forward", "", Reason("argument", "was called with input.1: 2 against 1"))
    out = printed(capsys, Answer(Outcome.DIVERGED, "a", (against, against), Coverage(1, 1)))
    assert out.count("\n  (A against B: A in the target, B in the golden)\n") == 1


@pytest.mark.parametrize(
    ("table", "row"),
    [
        ("a.xlsx", "(row 7 of a.xlsx, counting the header)"),
        ("a.jsonl", "(row 7 of a.jsonl)"),
        ("", "(row 7)"),
    ],
)
def test_a_row_is_named_with_its_file(capsys: pytest.CaptureFixture[str], table: str, row: str) -> None:
    print_answer(Answer(Outcome.DIVERGED, "a", (CAUSE,), Coverage(1, 1)), None, lambda _: table, brief=False)
    assert f"Torch.a.0.forward  {row}\n" in capsys.readouterr().out


def test_rank_0_is_named_among_several_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    answer = Answer(Outcome.DIVERGED, "a", (replace(CAUSE, rank=0),), Coverage(1, 1))
    print_answer(answer, None, brief=False, names_ranks=True)
    assert "\n  1. rank 0, Torch.a.0.forward" in capsys.readouterr().out
    assert "rank" not in printed(capsys, answer)


def test_one_and_several_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    cause = Finding(
        "Torch.a.0.forward", "", Reason("introduced", "differs"), consequences=("Torch.b.0.forward",),
        consequence_count=1, same=("Torch.a.1.forward", "Torch.a.2.forward"),
    )  # fmt: skip
    out = printed(capsys, Answer(Outcome.DIVERGED, "a", (cause,), Coverage(1, 1)))
    assert "        values differ in 1 later call: Torch.b.0.forward\n" in out
    assert "        the same argument differs in 2 other calls; the first is Torch.a.1.forward\n" in out


def test_a_brief_answer_is_its_verdict_and_its_file(capsys: pytest.CaptureFixture[str]) -> None:
    answer = Answer(Outcome.AGREE, "all", (CAUSE,), Coverage(1, 1), ("x",), ("y",))
    assert printed(capsys, answer, Path("f.json"), brief=True) == "AGREE: all\n  wrote f.json\n"


def test_many_causes_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    answer = Answer(Outcome.DIVERGED, "a", (CAUSE,) * 8, Coverage(1, 1))
    out = printed(capsys, answer)
    assert "  5. rank 2, " in out and "  6. " not in out and "  and 3 more\n" in out


def test_names_of_a_run_cannot_write_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    cause = Finding("Torch.\x1b[31m.0.forward", "", Reason("x", "d\nd" * MAX_LINE_CHARACTERS), where="\x07")
    out = printed(capsys, Answer(Outcome.DIVERGED, "\x1b[2J", (cause,), Coverage(1, 1)))
    assert "\x1b" not in out and "\x07" not in out
    assert max(map(len, out.splitlines())) <= MAX_LINE_CHARACTERS + 40
