"""Reports as JSON, for the journal from which a comparison of many ranks is resumed."""

from __future__ import annotations

import math
from typing import Any, TypeVar

from probe_core.files.location import location
from probe_core.model import Counts, Level, Mode
from probe_core.model.answers import Answer
from probe_core.model.report import Finder, Report

T = TypeVar("T")
COUNTED = ("measured", "matched", "target_only", "golden_only")


def report_to(report: Report) -> dict[str, Any]:
    """Return a report as plain data."""
    return {
        "label": report.label,
        "target": str(report.target),
        "golden": str(report.golden),
        "mode": report.mode.value,
        "row_count": report.row_count,
        "op_count": report.op_count,
        "levels": {level.value: count for level, count in report.counts.levels.items()},
        "measured": report.counts.measured,
        "matched": report.counts.matched,
        "target_only": report.counts.target_only,
        "golden_only": report.counts.golden_only,
        "finder": report.finder.plain(),
        "answer": report.answer and report.answer.plain(),
        "unreadable": report.unreadable,
        "unreadable_count": report.unreadable_count,
        "files": [str(path) for path in report.files],
        "notes": report.notes,
        "problems": report.problems,
        "regions": report.regions,
        "seconds": report.seconds,
    }


def report_from(plain: Any, finder: Finder) -> Report:
    """Return the report that plain data describes, with a new finder that takes in what was found.

    Raises:
        LookupError, TypeError, ValueError: The data does not describe a report.
    """
    finder.restore(_typed(plain, dict)["finder"])
    levels = {level: _typed(_typed(plain, dict)["levels"][level.value], int) for level in Level}
    counts = Counts(levels, *(_typed(plain[name], int) for name in COUNTED))
    seconds = float(_typed(plain["seconds"], float))
    if not math.isfinite(seconds):
        raise ValueError(seconds)
    return Report(
        _typed(plain["label"], str),
        location(_typed(plain["target"], str)),
        location(_typed(plain["golden"], str)),
        Mode(plain["mode"]),
        _typed(plain["row_count"], int),
        _typed(plain["op_count"], int),
        counts,
        finder,
        unreadable=_texts(plain["unreadable"]),
        unreadable_count=_typed(plain["unreadable_count"], int),
        files=[location(path) for path in _texts(plain["files"])],
        notes=_texts(plain["notes"]),
        problems=_texts(plain["problems"]),
        regions=_texts(plain["regions"]),
        answer=None if plain["answer"] is None else Answer.of(plain["answer"]),
        seconds=seconds,
    )


def _texts(value: Any) -> list[str]:
    return [_typed(item, str) for item in _typed(value, list)]


def _typed(value: Any, kind: type[T]) -> T:
    if type(value) is not kind:
        raise TypeError(f"{value!r:.40} is no {kind.__name__}")
    return value
