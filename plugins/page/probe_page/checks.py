"""The page of a pre-check: APIs worst first, their calls, and the command that repeats each."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probe_core import console
from probe_core.errors import make_printable
from probe_page.language import LANGUAGES
from probe_page.sheet import encode_texts, round_cell, write_sheet

if TYPE_CHECKING:
    from probe_precheck.model import ResultPaths
    from probe_precheck.written import Measure, WrittenCall, WrittenCheck, WrittenOutput

    from probe_core.plugins.manager import Manager

STATUSES = ("error", "warning", "pass", "SKIP")
"""All statuses, most severe first; any other text counts as the last status."""
DIRECTIONS = ("forward", "backward")
DISTANCE_MEASURES = ("error_rate", "max_relative_error", "max_abs_error")
"""Measures that an output is ranked by: the first that it has."""
PLACEHOLDER_FILE = "dump.json"
"""The file that a command names if the run is not known."""


def write_requested_page(manager: Manager, results: ResultPaths, values: Mapping[str, Any]) -> None:
    """Write the page of a pre-check that has just ended, as ``--page`` asks."""
    console.show(f"  wrote {write_check(results, manager)}")


def write_check(results: ResultPaths, manager: Manager, lang: str = "en") -> Path:
    """Write the page of a pre-check next to its result.

    Raises:
        UserError: The result cannot be read, or the page cannot be written.
    """
    from probe_precheck.written import read_check

    check = read_check(results, manager)
    calls = [_find_call_status(call) for call in check.calls]
    return write_sheet(
        results.result.with_suffix(".html"),
        "checks.html",
        "checks.js",
        lang,
        _collect_data(check, results.again or _format_placeholder_command),
        stage=check.stage,
        counts=Counter(calls),
        statuses=STATUSES,
        total=len(calls),
        worst=next((status for status in STATUSES if status in calls), STATUSES[-1]),
        apis=len({_parse_api(call.name) for call in check.calls}),
        tables=_count_statuses(check),
        has_details=check.has_details,
        is_known=results.again is not None,
        paths=check.paths,
    )


def _format_placeholder_command(name: str) -> str:
    return shlex.join(["probe", "run-ut", "-i", PLACEHOLDER_FILE, "--only", name, "--save-error-data"])


def _parse_api(name: str) -> str:
    """Return the API of a call: its name without the number at its end."""
    api, _, number = name.rpartition(".")
    return api if api and number.isdecimal() else name


def _find_worst_status(statuses: Iterable[str]) -> str:
    places = {status.casefold(): place for place, status in enumerate(STATUSES)}
    severities = [places.get(status.casefold(), len(STATUSES) - 1) for status in statuses if status]
    return STATUSES[min(severities, default=len(STATUSES) - 1)]


def _find_call_status(call: WrittenCall) -> str:
    return _find_worst_status(call.statuses)


def _count_statuses(check: WrittenCheck) -> list[tuple[str, list[tuple[str, tuple[str, str], Counter[str]]]]]:
    """Return what the table of statuses counts: calls by direction, then outputs by standard.

    Each row has the kind and the names of what it counts, in English and Chinese.
    """
    calls, outputs = check.calls, [output for call in check.calls for output in call.outputs]
    rows = [
        (
            direction,
            (direction, direction),
            Counter(_find_worst_status([status]) for call in calls if (status := getattr(call, direction))),
        )
        for direction in DIRECTIONS
    ]
    if any(call.standard for call in calls):
        rows.append(
            ("standard", ("", ""), Counter(_find_worst_status([call.standard]) for call in calls if call.standard))
        )
    by_standard: dict[tuple[str, str], Counter[str]] = {}
    for output in outputs:
        if any(output.standard):
            by_standard.setdefault(output.standard, Counter())[_find_worst_status([output.status])] += 1
    ordered = sorted(by_standard.items(), key=lambda item: [-item[1][status] for status in STATUSES])
    tables = [("calls", rows)]
    if ordered:
        tables.append(("outputs", [(names[0], names, counts) for names, counts in ordered]))
    return tables


def _compute_distance(output: WrittenOutput) -> float:
    """Return the distance of an output from its reference, for sorting; inf without numbers if it failed."""
    measures = output.measures
    cosine = _get_device_value(measures.get("cosine"))
    off = 0.0 if cosine is None else 1 - cosine
    for key in DISTANCE_MEASURES:
        if (value := _get_device_value(measures.get(key))) is not None:
            return _replace_nan(off + value)
    if cosine is not None:
        return _replace_nan(off)
    ratios = [measure.ratio for measure in measures.values() if isinstance(measure.ratio, float)]
    if ratios:
        return _replace_nan(max(ratios))
    return math.inf if output.status.casefold() == "error" and not measures else 0.0


def _replace_nan(value: float) -> float:
    return math.inf if math.isnan(value) else value


def _get_device_value(measure: Measure | None) -> float | None:
    return measure.device if measure is not None and isinstance(measure.device, float) else None


def _collect_data(check: WrittenCheck, format_command: Callable[[str], str]) -> dict[str, Any]:
    """Return the calls, outputs and measures as columns."""
    calls = check.calls
    outputs = [output for call in calls for output in call.outputs]
    return {
        "stage": check.stage,
        "calls": {
            "name": [make_printable(call.name, 1000) for call in calls],
            "api": encode_texts([_parse_api(call.name) for call in calls]),
            "status": [STATUSES.index(_find_call_status(call)) for call in calls],
            "forward": encode_texts([call.forward for call in calls]),
            "backward": encode_texts([call.backward for call in calls]),
            "standard": encode_texts([call.standard for call in calls]),
            "message": _encode_languages([call.message for call in calls]),
            "command": [make_printable(format_command(call.name), 4000) for call in calls],
        },
        "outputs": {
            "call": [place for place, call in enumerate(calls) for _ in call.outputs],
            "name": encode_texts([output.name for output in outputs]),
            "status": [STATUSES.index(_find_worst_status(output.statuses)) for output in outputs],
            "own": [STATUSES.index(_find_worst_status([output.status])) for output in outputs],
            "verdict": encode_texts([output.verdict for output in outputs]),
            "dtype": encode_texts([output.dtype for output in outputs]),
            "shape": encode_texts([output.shape for output in outputs]),
            "standard": _encode_languages([output.standard for output in outputs]),
            "message": _encode_languages([output.message for output in outputs]),
            "distance": [round_cell(_compute_distance(output)) for output in outputs],
        },
        "measures": _collect_measures(check, outputs),
    }


def _encode_languages(texts: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return texts in English and in Chinese as columns."""
    return {lang: encode_texts([text[place] for text in texts]) for place, lang in enumerate(LANGUAGES)}


def _collect_measures(check: WrittenCheck, outputs: Sequence[WrittenOutput]) -> list[dict[str, Any]]:
    """Return the columns of each measure that any output has, without those that are empty."""
    measures = []
    for key in dict.fromkeys(key for output in outputs for key in output.measures):
        output_measures = [output.measures.get(key) for output in outputs]
        english, chinese = check.titles.get(key, (key, key))
        measure: dict[str, Any] = {"key": key, "en": make_printable(english, 100), "zh": make_printable(chinese, 100)}
        for name in ("device", "trusted", "ratio", "verdict"):
            get = attrgetter(name)
            column = [None if output_measure is None else get(output_measure) for output_measure in output_measures]
            if any(cell is not None for cell in column):
                measure[name] = [round_cell(cell) for cell in column]
        measures.append(measure)
    return measures
