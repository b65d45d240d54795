"""The answer as plain data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from probe_ranks.report_json import parse_report, serialize_report

from probe_core.model import Mode, Reason
from probe_core.model.answers import Answer, Coverage, Finding, Note, NoteKind, Outcome
from probe_core.model.report import FailureNote, Report

CAUSE = Finding(
    "Torch.mul.0.forward",
    "Torch.mul.0.forward.output.0",
    Reason("argument", "was called with a different argument"),
    {"times_rounding": 7.5, "inputs_compared": 2, "argument": "Torch.mul.0.forward.input.1"},
    "12",
    ("Module.a.A.forward.0", "Module.M.forward.0"),
    "File train.py, line 3",
    "step2",
    1,
    ("Torch.add.0.forward", "Torch.exp.0.forward"),
    7,
    ("Torch.mul.1.forward",),
)
FULL = Answer(
    Outcome.DIVERGED,
    "Torch.mul.0.forward was called with a different argument",
    (CAUSE, Finding("Torch.b.0.forward", "", Reason("one sided", "is called in the target only"))),
    Coverage(12, 10, {"unreadable": 2}),
    ("2 values whose tensor file is missing",),
    ("Copy the files.",),
    (Note(NoteKind.NO_EFFECT, "Torch.c.0.forward differs without an effect", "Torch.c.0.forward"),),
    incomplete=("the target is unfinished",),
)


def serialize_answer(answer: Answer) -> dict[str, Any]:
    """Return an answer as the journal holds it."""
    plain: dict[str, Any] = serialize_report(Report("", Path("t"), Path("g"), Mode.MD5, 1, answer=answer))["answer"]
    return plain


def parse_answer(plain: dict[str, Any]) -> Answer:
    """Return the answer that data of the journal describes."""
    report = parse_report({**serialize_report(Report("", Path("t"), Path("g"), Mode.MD5, 1)), "answer": plain})
    assert report.answer is not None
    return report.answer


@pytest.mark.parametrize("outcome", Outcome)
def test_plain_data_and_back(outcome: Outcome) -> None:
    """Through JSON, as the journal and the workers do; the answer is the same object as before."""
    for answer in (FULL, Answer(Outcome.AGREE, "all", (), Coverage(0, 0))):
        answer = parse_answer({**serialize_answer(answer), "outcome": outcome.value})
        again = parse_answer(json.loads(json.dumps(serialize_answer(answer))))
        assert again == answer and again.outcome is outcome
        assert all(isinstance(cause.reason, Reason) for cause in again.causes)


@pytest.mark.parametrize(
    "broken",
    [
        {"outcome": "MAYBE"},
        {"causes": [{"op": "a"}]},
        {"causes": 3},
        {"coverage": {"recorded": 1}},
        {"coverage": None},
    ],
)
def test_data_that_describes_no_answer(broken: dict[str, Any]) -> None:
    with pytest.raises((LookupError, TypeError, ValueError)):
        parse_answer({**serialize_answer(FULL), **broken})
    for name in serialize_answer(FULL):
        with pytest.raises(LookupError):
            parse_answer({key: value for key, value in serialize_answer(FULL).items() if key != name})


def test_notes_on_failures_keep_their_parts() -> None:
    failure = FailureNote('The metric "m" of x failed: E. Update it.', 'The metric "m" of x', "Update it.")
    report = Report("rank0", Path("t"), Path("g"), Mode.MD5, 1, notes=("a note", failure), problems=(failure,))
    again = parse_report(json.loads(json.dumps(serialize_report(report))))
    assert again.notes == report.notes and again.problems == report.problems
    assert isinstance(again.notes[1], FailureNote) and again.notes[1].fix == failure.fix
