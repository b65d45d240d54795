"""Files of an explanation: ``explain_{time stamp}.json`` and a table (docs/explain.md#files)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from probe_reporters.api import Reporter, write_table

from probe_core import __version__
from probe_core.errors import format_count
from probe_core.files.atomic import make_directory, remove_leftovers, write_atomically, write_text
from probe_core.model import Cell
from probe_core.plugins.blame import blame_plugin
from probe_core.plugins.specs import ReporterSpec
from probe_explain.run import Explanation
from probe_explain.verdict import ExplainCause, ExplainVerdict

SCHEMA = 1
"""Version of the layout; it grows where a reader of an older one would read something wrong."""
HEADERS = ("Step", "Rank", "Record", "Result", "Dtype", "Shape", "Error", "Largest error",
           "Rounding explains", "Times", "Status", "Reason")  # fmt: skip
"""Columns of the table."""
BEYOND_STATUS, WITHIN_STATUS, NOT_JUDGED_STATUS = "beyond rounding", "within rounding", "not computed"
FRAGILE_REASON = "fragile, not wrong: it moves as much where what it is computed from is rounded"


def write_files(
    explanation: Explanation, verdict: ExplainVerdict, output: Path, time_stamp: str, spec: ReporterSpec | None
) -> list[Path]:
    """Write the verdict, and with ``spec`` the table of all results; return the paths.

    Raises:
        UserError: The output directory cannot be written to.
    """
    make_directory(output)
    remove_leftovers(output)
    path = output / f"explain_{time_stamp}.json"
    write_text(path, json.dumps(_build_content(explanation, verdict), indent=2, allow_nan=False) + "\n")
    if spec is None:
        return [path]
    table = output / f"explain_{time_stamp}{spec.suffix}"
    with write_atomically(table, "The result") as temporary, blame_plugin(spec.title, spec.origin, OSError):
        reporter: Reporter = spec.make()
        write_table(reporter, temporary, HEADERS, list(_iterate_rows(explanation)))
    return [path, table]


def _build_content(explanation: Explanation, verdict: ExplainVerdict) -> dict[str, Any]:
    return {
        "verdict": verdict.outcome.value,
        "sentence": verdict.sentence,
        "schema": SCHEMA,
        "probe": __version__,
        "run": str(explanation.run),
        "interrupted": explanation.interrupted,
        "causes": [_serialize_cause(cause) for cause in verdict.causes],
        "coverage": {
            "recorded": verdict.recorded,
            "judged": verdict.judged,
            "not_judged": [
                {"reason": group.reason, "count": group.count, "first": group.first} for group in verdict.missing
            ],
            "not_reached": sum(rank.unfinished for rank in explanation.ranks),
        },
        "notes": [
            *(f"{rank.file}: {rank.note}" for rank in explanation.ranks if rank.note),
            *([verdict.fragile] if verdict.fragile else []),
        ],
    }


def _serialize_cause(cause: ExplainCause) -> dict[str, Any]:
    result = cause.worst_result
    measured = result.measured
    return {
        "op": result.op,
        "row": f"{result.op}.{measured.name}",
        "statement": cause.statement,
        "evidence": {
            "dtype": measured.dtype,
            "shape": list(measured.shape),
            "error": _format_finite(measured.error),
            "largest_error": _format_finite(measured.largest),
            "rounding_explains": _format_finite(measured.rounding),
            "times": _format_finite(measured.times),
            "nan_or_inf_on_one_side": measured.nonfinite_mismatches,
        },
        "module": list(result.modules),
        "where": result.where,
        "step": result.step,
        "rank": result.rank,
        "same": list(cause.other_records),
    }


def _format_finite(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _iterate_rows(explanation: Explanation) -> Iterator[list[Cell]]:
    """Yield a row for each result, and for each record without one."""
    for rank in explanation.ranks:
        for call in rank.calls:
            for direction, results in call.directions.items():
                place: list[Cell] = [rank.step, rank.rank, f"{call.name}.{direction}"]
                if isinstance(results, str):
                    yield [*place, "", "", "", "", "", "", "", NOT_JUDGED_STATUS, results]
                    continue
                for result in results:
                    numbers: list[Cell] = [result.error, result.largest, result.rounding, result.times]
                    status = BEYOND_STATUS if result.is_beyond else WITHIN_STATUS
                    reason = FRAGILE_REASON if result.is_fragile else ""
                    if result.nonfinite_mismatches:
                        are = "is" if result.nonfinite_mismatches == 1 else "are"
                        reason = f"{format_count(result.nonfinite_mismatches, 'element')} {are} nan or inf on one side"
                    yield [*place, result.name, result.dtype, str(list(result.shape)), *numbers, status, reason]
