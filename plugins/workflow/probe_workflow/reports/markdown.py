"""The result of a check in Markdown, for the summary page of a CI system."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from probe_core.errors import make_printable
from probe_core.model.answers import Answer
from probe_workflow.check_result import CheckResult
from probe_workflow.reports.annotations import Annotation
from probe_workflow.sentences import describe_cause, summarize

MAX_CELL_CHARACTERS = 600
_SPECIAL = re.compile(r"[\\`*_{}\[\]()#+!|~$@:]")
_HTML = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def format_summary(result: CheckResult, annotations: Sequence[Annotation]) -> str:
    """Return the summary: the verdict, a table of causes with their lines, the coverage."""
    answer = result.answer
    title = result.code.name.replace("_", " ") if answer is None or result.lacks_steps else answer.outcome.value
    lines = [f"### probe check: {title}", "", escape_markdown(summarize(result)), ""]
    if answer is not None:
        lines += _list_causes(answer, annotations)
        coverage = answer.coverage
        lines += [f"Compared {coverage.compared:,} of {coverage.recorded:,} recorded values.", ""]
        lines += [f"* not compared: {escape_markdown(sentence)}" for sentence in answer.missing]
    return "\n".join(lines).rstrip("\n") + "\n"


def _list_causes(answer: Answer, annotations: Sequence[Annotation]) -> Iterator[str]:
    if not answer.causes or not annotations:
        return
    yield from ("| | call | statement | line of code |", "|---|---|---|---|")
    for number, (cause, annotation) in enumerate(zip(answer.causes, annotations), 1):
        place = f"{annotation.file}, line {annotation.line}" if annotation.file else ""
        cells = cause.op, describe_cause(cause, names_call=False), place
        yield f"| {number} | {' | '.join(map(escape_markdown, cells))} |"
    yield ""


def escape_markdown(text: str) -> str:
    """Return a text in one line that Markdown shows as it is."""
    text = make_printable(text, MAX_CELL_CHARACTERS)
    text = _SPECIAL.sub(lambda match: f"\\{match[0]}", text)
    return "".join(_HTML.get(char, char) for char in text)
