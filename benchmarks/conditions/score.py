"""Comparison of two recorded runs, and the score of what it states."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from conditions.case import Bits, Case, Kind
from conditions.planted_secrets import leaks
from conditions.workspace import NotRunError, RecordingError, Workspace, probe

VERDICTS = ("DIVERGED", "AGREE", "CANNOT TELL", "NOT COMPARABLE")
CONDITION = "condition:"
MAX_CONDITION_LINES = 3
CAUSE_OF_CONDITIONS = "conditions."
ACCUSATION = re.compile(r"\b(returns|leaves)\b.*\balthough\b")
"""A statement that takes all inputs of a call as equal, and therefore accuses it."""


class Word(Enum):
    """Result of a case."""

    RIGHT = "right"
    WRONG = "wrong"
    MISSING = "missing"
    FAILED = "failed"
    INVALID = "invalid"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Answer:
    """Statements of a comparison.

    Attributes:
        first_line: The line with the verdict.
        condition_lines: At most three lines of conditions below it.
        causes: The causes in ``answer_*.json``, the first one first.
        conditions: The objects of the list ``conditions`` there, or None if there is no such list.
    """

    verdict: str
    first_line: str
    condition_lines: tuple[str, ...]
    causes: Sequence[Mapping[str, Any]]
    conditions: Sequence[Mapping[str, Any]] | None
    printed: str = ""

    @property
    def head(self) -> tuple[str, ...]:
        """The first line and the lines of conditions."""
        return (self.first_line, *self.condition_lines)

    @property
    def first_op(self) -> str:
        """The ``op`` of the first cause, or an empty string."""
        return str(self.causes[0].get("op") or "") if self.causes else ""

    @property
    def first_cause(self) -> str:
        """The ``op`` and the statements of the first cause."""
        names = ("op", "argument_name", "statement", "brief")
        cause = self.causes[0] if self.causes else {}
        return " ".join(str(cause[name]) for name in names if cause.get(name))


@dataclass(frozen=True)
class Result:
    """Score of a case.

    Attributes:
        reason: Why the case is not right.
        is_in_file: Whether an object of ``conditions`` in ``answer_*.json`` names the condition.
    """

    case: Case
    word: Word
    reason: str = ""
    answer: Answer | None = None
    is_in_file: bool = False


def read_answer(printed: str, output: Path) -> Answer:
    """Return what a comparison printed and wrote.

    Args:
        printed: The output of ``probe compare``.
        output: The directory with ``answer_*.json``.
    """
    lines = printed.splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith(VERDICTS)), None)
    if start is None:
        raise RecordingError(f"no verdict is printed: {printed[:500]}")
    below: list[str] = []
    for line in lines[start + 1 : start + 1 + MAX_CONDITION_LINES]:
        if not line.strip().startswith(CONDITION):
            break
        below.append(line)
    files = sorted(output.glob("answer_*.json"))
    if not files:
        raise RecordingError("there is no answer_*.json")
    content = json.loads(files[-1].read_text("utf-8"))
    return Answer(
        verdict=str(content["verdict"]).upper(),
        first_line=lines[start],
        condition_lines=tuple(below),
        causes=content["causes"],
        conditions=content.get("conditions"),
        printed=printed,
    )


def finds(names: Sequence[str], text: str) -> bool:
    """Return True if one of the regular expressions is found."""
    return any(re.search(name, text, re.IGNORECASE | re.DOTALL) for name in names)


def states_equality(first_line: str, task: str) -> bool:
    """Return True if a line states that all values agree, with equal bits if tensors were recorded."""
    if "AGREE: equal" in first_line:
        return True
    is_within_rounding = "AGREE: within rounding in all" in first_line and ", but " not in first_line
    return is_within_rounding and task != "tensor"


def accused_operator(case: Case, answer: Answer) -> str:
    """Return the operator that the first line accuses, or an empty string.

    A cause of the conditions accuses no operator. A line is accepted if it names an operator only as the
    place at which the batch or the random state arrives.
    """
    if answer.verdict == "AGREE" or not answer.causes or answer.first_op.startswith(CAUSE_OF_CONDITIONS):
        return ""
    if ACCUSATION.search(answer.first_line) or not finds(case.names, answer.first_line):
        return answer.first_op
    return ""


def score(case: Case, answer: Answer) -> Result:
    """Score the answer of a case whose programs computed what they should."""
    obstacle = next(_errors(case, answer), None)
    in_file = any(finds(case.names, json.dumps(one)) for one in answer.conditions or ()) if case.names else False
    word, reason = obstacle or (Word.RIGHT, "")
    return Result(case, word, reason, answer, in_file)


def _errors(case: Case, answer: Answer) -> Iterator[tuple[Word, str]]:
    if case.bits is Bits.EQUAL:
        if answer.verdict != "AGREE":
            yield Word.WRONG, "an alarm, although both programs compute the same bits"
        elif case.kind is not Kind.CONDITIONS and not states_equality(answer.first_line, case.golden.task):
            yield Word.WRONG, "the first line does not state that all values are equal"
    if case.kind is Kind.EQUAL and (answer.condition_lines or answer.conditions):
        yield Word.WRONG, "a condition is stated to differ"
    if case.kind in (Kind.EQUAL, Kind.SECRETS):
        return
    if case.kind is Kind.RESUME:
        yield from _errors_on_resume(case, answer)
        return
    if case.accuses_none:
        if answer.verdict == "AGREE":
            yield Word.WRONG, "the verdict is AGREE, although the values differ"
        if accused := accused_operator(case, answer):
            yield Word.WRONG, f"accuses {accused}"
    if not finds(case.names, "\n".join(answer.head)):
        yield Word.MISSING, f"the first four lines lack {' or '.join(case.names)}"


def _errors_on_resume(case: Case, answer: Answer) -> Iterator[tuple[Word, str]]:
    if not case.names:
        if answer.causes or answer.condition_lines:
            yield Word.WRONG, "a cause or a condition, although everything was restored"
        return
    if not answer.causes:
        yield Word.MISSING, "there is no cause"
    elif not answer.first_op.startswith(CAUSE_OF_CONDITIONS) and ACCUSATION.search(answer.first_cause):
        yield Word.WRONG, f"accuses {answer.first_op}"
    elif not finds(case.names, answer.first_cause):
        yield Word.WRONG, f"the first cause lacks {' or '.join(case.names)}"


def digest(printed: str) -> str:
    """Return the digest of losses and parameters that a program printed."""
    match = re.search(r"^digest: (\w+)$", printed, re.MULTILINE)
    if not match:
        raise RecordingError("the program printed no digest")
    return match[1]


def check(case: Case, workspace: Workspace) -> Result:
    """Record the runs of a case unless they are recorded, compare them, and score the comparison."""
    try:
        golden, target = (digest(workspace.record(run)) for run in (case.golden, case.target))
        if case.bits is not Bits.ANY and (golden == target) is not (case.bits is Bits.EQUAL):
            return Result(case, Word.INVALID, f"the programs do not compute {case.bits.value} bits")
        answer = _compare(case, workspace)
    except NotRunError as error:
        return Result(case, Word.NOT_RUN, str(error))
    except RecordingError as error:
        return Result(case, Word.FAILED, str(error))
    result = score(case, answer)
    if case.kind is Kind.SECRETS:
        leaked = list(_leaks(case, workspace, answer))
        if leaked:
            return Result(case, Word.WRONG, "; ".join(leaked), answer)
    return result


def _output(case: Case, workspace: Workspace) -> Path:
    return workspace.directory / "comparisons" / f"{case.kind.value}-{case.name}"


def _compare(case: Case, workspace: Workspace) -> Answer:
    output = _output(case, workspace)
    shutil.rmtree(output, ignore_errors=True)
    runs = [str(workspace.output(run)) for run in (case.target, case.golden)]
    formats = [] if case.kind is Kind.SECRETS else ["--format", "csv"]
    printed = probe(["compare", *runs, *case.options, "-o", str(output), *formats], workspace.directory)
    return read_answer(printed, output)


def _leaks(case: Case, workspace: Workspace, answer: Answer) -> Iterator[str]:
    outputs = [workspace.output(run) for run in (case.target, case.golden)]
    printed = "\n".join([answer.printed, *(output.with_suffix(".log").read_text() for output in outputs)])
    yield from leaks([*outputs, _output(case, workspace)], printed, workspace.repository(case.target.source))
