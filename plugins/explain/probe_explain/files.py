"""Files of an explanation: ``explain_{time stamp}.json`` and a table (docs/explain.md#files)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from probe_core import __version__
from probe_core.errors import counted
from probe_core.files.atomic import make_directory, remove_leftovers, write_text, writing
from probe_core.flow.writing import write_table
from probe_core.model import Cell
from probe_core.plugins.blame import blamed
from probe_core.plugins.protocols import Reporter
from probe_core.plugins.specs import ReporterSpec
from probe_explain.run import Explanation
from probe_explain.verdict import Cause, Verdict

SCHEMA = 1
"""Version of the layout; it grows where a reader of an older one would read something wrong."""
HEADERS = ("Step", "Rank", "Record", "Result", "Dtype", "Shape", "Error", "Largest error",
           "Rounding explains", "Times", "Status", "Reason")  # fmt: skip
"""Columns of the table."""
BEYOND, WITHIN, NOT_JUDGED = "beyond rounding", "within rounding", "not computed"
FRAGILE = "fragile, not wrong: it moves as much where what it is computed from is rounded"


def write_files(
    explanation: Explanation, verdict: Verdict, output: Path, time_stamp: str, spec: ReporterSpec | None
) -> list[Path]:
    """Write the verdict, and with ``spec`` the table of all results; return the paths.

    Raises:
        UserError: The output directory cannot be written to.
    """
    make_directory(output)
    remove_leftovers(output)
    path = output / f"explain_{time_stamp}.json"
    write_text(path, json.dumps(_content(explanation, verdict), indent=2, allow_nan=False) + "\n")
    if spec is None:
        return [path]
    table = output / f"explain_{time_stamp}{spec.suffix}"
    with writing(table, "The result") as temporary, blamed(spec.title, spec.origin, OSError):
        reporter: Reporter = spec.make()
        write_table(reporter, temporary, HEADERS, list(_rows(explanation)))
    return [path, table]


def _content(explanation: Explanation, verdict: Verdict) -> dict[str, Any]:
    return {
        "verdict": verdict.outcome.value,
        "sentence": verdict.sentence,
        "schema": SCHEMA,
        "probe": __version__,
        "run": str(explanation.run),
        "interrupted": explanation.interrupted,
        "causes": [_cause(cause) for cause in verdict.causes],
        "coverage": {
            "recorded": verdict.recorded,
            "judged": verdict.judged,
            "not_judged": [
                {"reason": one.reason, "count": one.count, "first": one.first} for one in verdict.missing
            ],
            "not_reached": sum(rank.unfinished for rank in explanation.ranks),
        },
        "notes": [
            *(f"{rank.file}: {rank.note}" for rank in explanation.ranks if rank.note),
            *([verdict.fragile] if verdict.fragile else []),
        ],
    }


def _cause(cause: Cause) -> dict[str, Any]:
    beyond, measured = cause.beyond, cause.beyond.measured
    return {
        "op": beyond.op,
        "row": f"{beyond.op}.{measured.name}",
        "statement": cause.statement,
        "evidence": {
            "dtype": measured.dtype,
            "shape": list(measured.shape),
            "error": _finite(measured.error),
            "largest_error": _finite(measured.largest),
            "rounding_explains": _finite(measured.rounding),
            "times": _finite(measured.times),
            "nan_or_inf_on_one_side": measured.apart,
        },
        "module": list(beyond.modules),
        "where": beyond.where,
        "step": beyond.step,
        "rank": beyond.rank,
        "same": list(cause.same),
    }


def _finite(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _rows(explanation: Explanation) -> Iterator[list[Cell]]:
    """Yield a row for each result, and for each record without one."""
    for rank in explanation.ranks:
        for call in rank.calls:
            for direction, found in call.directions.items():
                place: list[Cell] = [rank.step, rank.rank, f"{call.name}.{direction}"]
                if isinstance(found, str):
                    yield [*place, "", "", "", "", "", "", "", NOT_JUDGED, found]
                    continue
                for one in found:
                    numbers: list[Cell] = [one.error, one.largest, one.rounding, one.times]
                    status = BEYOND if one.is_beyond else WITHIN
                    reason = FRAGILE if one.is_fragile else ""
                    if one.apart:
                        are = "is" if one.apart == 1 else "are"
                        reason = f"{counted(one.apart, 'element')} {are} nan or inf on one side"
                    yield [*place, one.name, one.dtype, str(list(one.shape)), *numbers, status, reason]
