"""Annotations: statements on lines of code, which CI systems show next to these lines."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path, PurePosixPath

from probe_core.model.answers import Finding
from probe_workflow.check_result import CheckResult
from probe_workflow.exit_codes import CheckCode
from probe_workflow.sentences import describe_cause, summarize

_FRAME = re.compile(r"File (?P<file>.+?), line (?P<line>\d{1,9}), in ")
"""A frame of a recorded call stack (docs/formats.md#stack-json)."""

MAX_CAUSES = 5
"""Largest number of causes that are annotated; a CI system shows ten annotations or fewer for a step."""


class AnnotationLevel(str, Enum):
    """Levels of annotations: the first cause, and everything else."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Annotation:
    """A statement on a line of code.

    Attributes:
        level: The level.
        message: The statement.
        file: The file, relative to the root of the repository if it is below that; empty if it is not known.
        line: The number of the line; 0 if it is not known.
        key: A text that identifies the cause.
    """

    level: AnnotationLevel
    message: str
    file: str = ""
    line: int = 0
    key: str = ""


def list_annotations(result: CheckResult, root: Path) -> list[Annotation]:
    """Return the annotations of a check, the first cause first.

    If the runs agree, only calls that were made differently are annotated, as warnings.

    Args:
        result: The result.
        root: The root of the repository.
    """
    causes = result.answer.causes[:MAX_CAUSES] if result.answer is not None else ()
    annotations = [_annotate(cause, root) for cause in causes]
    if result.code is CheckCode.AGREE:
        return annotations
    first = annotations[0] if annotations else Annotation(AnnotationLevel.ERROR, "", key="verdict")
    return [replace(first, level=AnnotationLevel.ERROR, message=summarize(result)), *annotations[1:]]


def _annotate(cause: Finding, root: Path) -> Annotation:
    match = _FRAME.match(cause.where) or _FRAME.match(str(cause.evidence.get("step_phase_where", "")))
    message = describe_cause(cause)
    key = f"{cause.reason.code} {cause.step} {cause.rank} {cause.op}"
    if match is None:
        return Annotation(AnnotationLevel.WARNING, message, key=key)
    return Annotation(AnnotationLevel.WARNING, message, _shorten(match["file"], root), int(match["line"]), key)


def _shorten(file: str, root: Path) -> str:
    """Return the path of a file relative to the root of the repository, if it is below that."""
    path = Path(file)
    return str(PurePosixPath(path.relative_to(root))) if path.is_relative_to(root) else file
