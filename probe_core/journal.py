"""What is finished of a comparison of many ranks, kept on disk so that it can be resumed.

A file of JSON lines in the output directory: the plan, then a line for each finished rank, written as it
finishes. It goes once all is done; one that is there belongs to a comparison that was interrupted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from probe_core.errors import UserError
from probe_core.model import Counts, Level, Mode, Side, Suspect
from probe_core.plan import Plan
from probe_core.report import Report
from probe_core.store.atomic import FILE_MODE, make_directory, remove_leftovers
from probe_core.store.layout import RunPair
from probe_core.store.location import location
from probe_core.suspects import Suspects

PREFIX = "compare_progress_"
NOT_COMPARED = frozenset(
    {"time_stamp", "jobs", "executor", "scheduler", "resume", "output", "ranks", "steps"}
)
"""Fields of a plan in which a comparison may differ from the one that it takes up."""


class Journal:
    """The finished ranks of one comparison.

    Attributes:
        time_stamp: That of the comparison's files.
        finished: The reports of an earlier run of it, by the name of their pair.
    """

    def __init__(self, plan: Plan) -> None:
        self._path = plan.output / f"{PREFIX}{plan.time_stamp}.jsonl"
        self._plan = _identity(plan)
        self.time_stamp = plan.time_stamp
        self.finished: dict[str, Report] = {}

    @classmethod
    def resume(cls, plan: Plan) -> Journal | None:
        """The newest journal in the output directory that is of this plan; None where there is none.

        A rank counts as finished while its two record files are what they were, and its results are there.
        """
        wanted = _identity(plan)
        with suppress(OSError):
            for path in sorted(plan.output.glob(f"{PREFIX}*.jsonl"), reverse=True):
                lines = list(_lines(path))
                if lines and lines[0].get("plan") == wanted:
                    journal = cls(plan)
                    journal._path = path
                    journal.time_stamp = path.stem.removeprefix(PREFIX)
                    journal.finished = dict(_still_valid(lines[1:]))
                    for directory in (plan.output, *plan.output.glob("**/step*")):
                        remove_leftovers(directory, journal.time_stamp)
                    return journal
        return None

    def begin(self) -> None:
        """Write the plan, unless an earlier run of it did."""
        make_directory(self._path.parent)
        if not self._path.exists():
            self._append({"plan": self._plan})

    def add(self, pair: RunPair, report: Report) -> None:
        """Note that a rank is finished."""
        record_files = [_fingerprint(path) for path in (pair.target, pair.golden)]
        self._append({"pair": key_of(pair), "record_files": record_files, "report": _plain(report)})

    def end(self) -> None:
        """All is done: nothing is left to resume."""
        self._path.unlink(missing_ok=True)

    def _append(self, value: dict[str, Any]) -> None:
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, FILE_MODE)
            with os.fdopen(descriptor, "a", encoding="utf-8") as file:
                file.write(json.dumps(value, ensure_ascii=True) + "\n")
        except OSError as error:
            raise UserError(
                f"The result cannot be written to {self._path.parent}: {error.strerror or error}.",
                "Free some space there, or give another directory with -o.",
            ) from None


def key_of(pair: RunPair) -> str:
    """What tells a pair from the others of its comparison."""
    return f"{pair.name}:{pair.target.name}"


def _identity(plan: Plan) -> dict[str, Any]:
    described = plan.describe()
    for side in ("target", "golden"):
        if "://" not in described[side]:
            described[side] = str(Path(described[side]).absolute())
    same = {name: value for name, value in described.items() if name not in NOT_COMPARED}
    return json.loads(json.dumps(same))  # type: ignore[no-any-return]


def _fingerprint(path: Path) -> list[Any]:
    found = path.stat()
    return [str(path), found.st_size, getattr(found, "st_mtime_ns", 0)]


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of a journal; its last may have been cut off."""
    for line in path.read_text("utf-8", "replace").splitlines():
        with suppress(ValueError):
            value = json.loads(line)
            if isinstance(value, dict):
                yield value


def _still_valid(lines: list[dict[str, Any]]) -> Iterator[tuple[str, Report]]:
    for line in lines:
        with suppress(OSError, LookupError, TypeError, ValueError):
            unchanged = all(
                _fingerprint(location(path)) == [path, *rest] for path, *rest in line["record_files"]
            )
            report = _report(line["report"])
            if unchanged and all(file.is_file() for file in report.files):
                yield str(line["pair"]), report


# -- reports as JSON -------------------------------------------------------------------------------


def _plain(report: Report) -> dict[str, Any]:
    """What of a report is wanted of a rank that is not compared again."""
    return {
        "label": report.label,
        "target": str(report.target),
        "golden": str(report.golden),
        "mode": report.mode.value,
        "row_count": report.row_count,
        "op_count": report.op_count,
        "levels": {level.value: count for level, count in report.counts.levels.items()},
        "matched": report.counts.matched,
        "target_only": report.counts.target_only,
        "golden_only": report.counts.golden_only,
        "suspects": [
            {**{name: getattr(suspect, name) for name in Suspect.__slots__}, "side": suspect.side.value,
             "level": suspect.level.value}
            for suspect in report.suspects
        ],
        "unreadable": report.unreadable,
        "unreadable_count": report.unreadable_count,
        "files": [str(path) for path in report.files],
        "notes": report.notes,
        "regions": report.regions,
        "seconds": report.seconds,
    }  # fmt: skip


def _report(plain: dict[str, Any]) -> Report:
    levels = {Level(name): int(count) for name, count in plain["levels"].items()}
    counts = Counts(levels, plain["matched"], plain["target_only"], plain["golden_only"])
    suspects = [
        Suspect(**{**fields, "side": Side(fields["side"]), "level": Level(fields["level"])})
        for fields in plain["suspects"]
    ]
    return Report(
        plain["label"],
        location(plain["target"]),
        location(plain["golden"]),
        Mode(plain["mode"]),
        plain["row_count"],
        plain["op_count"],
        counts,
        Suspects(suspects),
        unreadable=plain["unreadable"],
        unreadable_count=plain["unreadable_count"],
        files=[Path(path) for path in plain["files"]],
        notes=plain["notes"],
        regions=plain["regions"],
        seconds=plain["seconds"],
    )
