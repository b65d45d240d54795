"""Reports as JSON, for the journal from which a comparison of many ranks is resumed."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any, TypeVar

from probe_core.files.location import location
from probe_core.model import Counts, Level, Mode, Side, Suspect
from probe_core.model.report import Kept, Report

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
        "suspects": [
            {field.name: str(getattr(suspect, field.name)) for field in fields(Suspect)}
            | {"side": suspect.side.value, "level": suspect.level.value}
            for suspect in report.suspects
        ],
        "unreadable": report.unreadable,
        "unreadable_count": report.unreadable_count,
        "files": [str(path) for path in report.files],
        "notes": report.notes,
        "problems": report.problems,
        "regions": report.regions,
        "seconds": report.seconds,
    }


def report_from(plain: Any) -> Report:
    """Return the report that plain data describes.

    Raises:
        LookupError, TypeError, ValueError: The data does not describe a report.
    """
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
        Kept([_suspect(suspect) for suspect in _typed(plain["suspects"], list)]),
        unreadable=_texts(plain["unreadable"]),
        unreadable_count=_typed(plain["unreadable_count"], int),
        files=[location(path) for path in _texts(plain["files"])],
        notes=_texts(plain["notes"]),
        problems=_texts(plain["problems"]),
        regions=_texts(plain["regions"]),
        seconds=seconds,
    )


def _suspect(plain: Any) -> Suspect:
    texts = {field.name: _typed(_typed(plain, dict)[field.name], str) for field in fields(Suspect)}
    return Suspect(**{**texts, "side": Side(plain["side"]), "level": Level(plain["level"])})  # type: ignore[arg-type]


def _texts(value: Any) -> list[str]:
    return [_typed(item, str) for item in _typed(value, list)]


def _typed(value: Any, kind: type[T]) -> T:
    if type(value) is not kind:
        raise TypeError(f"{value!r:.40} is no {kind.__name__}")
    return value
