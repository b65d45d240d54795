"""The head of a page: the verdict, its causes with their evidence, and what was covered."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from probe_core.errors import make_printable
from probe_core.model.answers import Answer, Finding
from probe_core.model.report import Report

_FRAME = re.compile(
    r"^File (?P<file>.*?), line (?P<line>\d+), in (?P<function>[^,\n]+?)(?:,\s*(?P<source>.*))?$", re.DOTALL
)
PICTURE_WIDTH = 420
"""Width of the picture of a cause's evidence, in user units of the picture."""
MAX_SHOWN_CAUSES = 20
"""Largest number of causes that are shown unfolded or folded."""
MAX_LISTED_OPS = 50
"""Largest number of ops with the same cause that are listed."""


class StackFrame(NamedTuple):
    """A line of code: its file, number, function and source; only the file if it cannot be read."""

    file: str
    line: str = ""
    function: str = ""
    source: str = ""

    @classmethod
    def of(cls, text: str) -> StackFrame:
        """Return the line of code that a recorded frame names."""
        match = _FRAME.match(text.strip())
        if match is None:
            return cls(text.strip())
        parts = {name: (part or "").strip() for name, part in match.groupdict().items()}
        return cls(**parts)


class Bar(NamedTuple):
    """A bar of the picture of evidence.

    Attributes:
        key: The key of its label in the dictionary.
        value: The number that the bar represents.
        width: Its length, in units of the picture.
        kind: The word that its colour is chosen by.
    """

    key: str
    value: str
    width: int
    kind: str


class PageCause(NamedTuple):
    """A cause as the page shows it."""

    cause: Finding
    frame: StackFrame | None
    bars: Sequence[Bar]
    facts: Mapping[str, str]

    @property
    def lists(self) -> list[tuple[str, Sequence[str], int]]:
        """The non-empty lists of ops: the key of the title, the ops, and their total number."""
        cause = self.cause
        entries = [
            ("consequences", cause.consequences, cause.consequence_count),
            ("same", cause.same[:MAX_LISTED_OPS], len(cause.same)),
        ]
        return [entry for entry in entries if entry[1]]


class Head(NamedTuple):
    """All that a page says before its rows.

    Attributes:
        answer: The verdict; None without one.
        rest: The sentence without the outcome that it begins with.
        target: The path of the run under test.
        golden: The path of the reference.
        label: The step and rank; empty of a single comparison.
        causes: The causes.
        notes: Sentences of the comparison on its pairs and metrics.
        share: The share of the recorded values that were compared, in units of a picture.
        is_interrupted: True if the comparison was interrupted.
        counts: The numbers of rows, by level.
    """

    answer: Answer | None
    rest: str
    target: str
    golden: str
    label: str
    causes: Sequence[PageCause]
    notes: Sequence[str]
    share: int
    is_interrupted: bool
    counts: Mapping[str, int]

    @property
    def asides(self) -> list[tuple[str, Sequence[str]]]:
        """The non-empty lists of sentences after the causes, each with the key of its title."""
        sections = [("notes", self.notes)]
        if self.answer is not None:
            sections = [
                ("missing", self.answer.missing),
                ("no_effect", [note.text for note in self.answer.notes]),
                *sections,
            ]
        return [section for section in sections if section[1]]

    @classmethod
    def from_answer(cls, answer: Answer | None, target: str, golden: str, report: Report | None = None) -> Head:
        """Return the head for a verdict."""
        rest, share = "", 0
        causes: Sequence[Finding] = ()
        if answer is not None:
            rest = answer.text
            coverage = answer.coverage
            share = math.floor(PICTURE_WIDTH * coverage.compared / coverage.recorded) if coverage.recorded else 0
            causes = answer.causes
        notes = [] if report is None else [*report.problems, *report.notes, *report.regions]
        counts = {} if report is None else {k.value: n for k, n in report.counts.levels.items()}
        label = report.label if report else ""
        return cls(
            answer, rest, target, golden, label,
            [create_page_cause(cause) for cause in causes[:MAX_SHOWN_CAUSES]], notes,
            share, report is not None and report.interrupted, counts,
        )  # fmt: skip


def create_head(report: Report | None) -> Head:
    """Return the head of the page of one comparison."""
    if report is None:
        return Head.from_answer(None, "", "")
    return Head.from_answer(report.answer, str(report.target), str(report.golden), report)


def create_page_cause(cause: Finding) -> PageCause:
    """Return a cause as the page shows it."""
    facts = {
        name.replace("_", " "): _format_number(value) if isinstance(value, float) else make_printable(str(value), 400)
        for name, value in cause.evidence.items()
        if value != ""
    }
    return PageCause(cause, StackFrame.of(cause.where) if cause.where else None, _create_bars(cause), facts)


def _create_bars(cause: Finding) -> list[Bar]:
    """Return the bars of a cause's distance, of rounding and of its inputs, on a logarithmic scale."""
    evidence = cause.evidence
    distance, rounding = evidence.get("relative_distance"), evidence.get("rounding")
    if not (isinstance(distance, float) and isinstance(rounding, float) and distance > 0 and rounding > 0):
        return []
    values = {"bar_value": distance, "bar_rounding": rounding}
    inputs = evidence.get("inputs_times_rounding")
    if isinstance(inputs, (int, float)) and math.isfinite(inputs) and evidence.get("inputs_compared"):
        values["bar_inputs"] = inputs * rounding
    logs = {key: math.log10(value) for key, value in values.items() if value > 0}
    low, high = math.floor(min(logs.values())) - 1, max(logs.values())
    scale = (PICTURE_WIDTH - 10) / max(high - low, 1e-9)
    widths = {key: max(2, round((logs[key] - low) * scale)) if key in logs else 0 for key in values}
    kinds = {"bar_value": "error" if distance > rounding else "pass", "bar_rounding": "noise"}
    order = [key for key in ("bar_inputs", "bar_rounding", "bar_value") if key in values]
    return [Bar(key, _format_number(values[key]), widths[key], kinds.get(key, "inputs")) for key in order]


def _format_number(value: float) -> str:
    return f"{value:.3g}"
