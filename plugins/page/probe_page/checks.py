"""The page of a pre-check: APIs worst first, their calls, and the command that repeats each."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probe_core.cli import console
from probe_core.errors import printable
from probe_page.language import LANGUAGES
from probe_page.sheet import coded, shown_cell, write_sheet

if TYPE_CHECKING:
    from probe_precheck import Measure, Results, WrittenCall, WrittenCheck, WrittenOutput

    from probe_core.plugins.manager import Manager

STATUSES = ("error", "warning", "pass", "SKIP")
"""All statuses, gravest first; texts that are none of them count as the last."""
DIRECTIONS = ("forward", "backward")
DISTANCES = ("error_rate", "max_relative_error", "max_abs_error")
"""Measures that an output is ranked by: the first that it has."""
PLACEHOLDER = "dump.json"
"""The file that a command names if the run is not known."""


def write_asked(manager: Manager, results: Results, values: Mapping[str, Any]) -> None:
    """Write the page of a pre-check that has just ended, as ``--page`` asks."""
    console.show(f"  wrote {write_check(results, manager)}")


def write_check(results: Results, manager: Manager, lang: str = "en") -> Path:
    """Write the page of a pre-check beside its result.

    Raises:
        UserError: The result cannot be read, or the page cannot be written.
    """
    from probe_precheck import read_check

    check = read_check(results, manager)
    calls = [_status_of(call) for call in check.calls]
    return write_sheet(
        results.result.with_suffix(".html"),
        "checks.html",
        "checks.js",
        lang,
        _data(check, results.again or _unknown_run),
        stage=check.stage,
        counts=Counter(calls),
        statuses=STATUSES,
        total=len(calls),
        worst=next((status for status in STATUSES if status in calls), STATUSES[-1]),
        apis=len({_api_of(call.name) for call in check.calls}),
        tables=_tables(check),
        has_details=check.has_details,
        is_known=results.again is not None,
        paths=check.paths,
    )


def _unknown_run(name: str) -> str:
    return shlex.join(["probe", "run-ut", "-i", PLACEHOLDER, "--only", name, "--save-error-data"])


def _api_of(name: str) -> str:
    """Return the API of a call: its name without the number at its end."""
    api, _, number = name.rpartition(".")
    return api if api and number.isdecimal() else name


def _worst(statuses: Iterable[str]) -> str:
    places = {status.casefold(): place for place, status in enumerate(STATUSES)}
    found = [places.get(status.casefold(), len(STATUSES) - 1) for status in statuses if status]
    return STATUSES[min(found, default=len(STATUSES) - 1)]


def _status_of(call: WrittenCall) -> str:
    return _worst(call.statuses)


def _tables(check: WrittenCheck) -> list[tuple[str, list[tuple[str, tuple[str, str], Counter[str]]]]]:
    """Return what the table of statuses counts: calls by direction, then outputs by standard.

    Each row has the kind and the names of what it counts, in English and Chinese.
    """
    calls, outputs = check.calls, [output for call in check.calls for output in call.outputs]
    rows = [
        (way, (way, way), Counter(_worst([status]) for call in calls if (status := getattr(call, way))))
        for way in DIRECTIONS
    ]
    if any(call.standard for call in calls):
        rows.append(
            ("standard", ("", ""), Counter(_worst([call.standard]) for call in calls if call.standard))
        )
    by_standard: dict[tuple[str, str], Counter[str]] = {}
    for output in outputs:
        if any(output.standard):
            by_standard.setdefault(output.standard, Counter())[_worst([output.status])] += 1
    ordered = sorted(by_standard.items(), key=lambda item: [-item[1][status] for status in STATUSES])
    tables = [("calls", rows)]
    if ordered:
        tables.append(("outputs", [(names[0], names, counts) for names, counts in ordered]))
    return tables


def _distance(output: WrittenOutput) -> float:
    """Return the distance of an output from its reference, for sorting; inf without numbers if it failed."""
    measures = output.measures
    cosine = _number(measures.get("cosine"))
    off = 0.0 if cosine is None else 1 - cosine
    for key in DISTANCES:
        if (value := _number(measures.get(key))) is not None:
            return _finite(off + value)
    if cosine is not None:
        return _finite(off)
    ratios = [one.ratio for one in measures.values() if isinstance(one.ratio, float)]
    if ratios:
        return _finite(max(ratios))
    return math.inf if output.status.casefold() == "error" and not measures else 0.0


def _finite(value: float) -> float:
    return math.inf if math.isnan(value) else value


def _number(measure: Measure | None) -> float | None:
    return measure.device if measure is not None and isinstance(measure.device, float) else None


def _data(check: WrittenCheck, again: Callable[[str], str]) -> dict[str, Any]:
    """Return the calls, outputs and measures as columns."""
    calls = check.calls
    outputs = [output for call in calls for output in call.outputs]
    return {
        "stage": check.stage,
        "calls": {
            "name": [printable(call.name, 1000) for call in calls],
            "api": coded([_api_of(call.name) for call in calls]),
            "status": [STATUSES.index(_status_of(call)) for call in calls],
            "forward": coded([call.forward for call in calls]),
            "backward": coded([call.backward for call in calls]),
            "standard": coded([call.standard for call in calls]),
            "message": _in_both([call.message for call in calls]),
            "command": [printable(again(call.name), 4000) for call in calls],
        },
        "outputs": {
            "call": [place for place, call in enumerate(calls) for _ in call.outputs],
            "name": coded([output.name for output in outputs]),
            "status": [STATUSES.index(_worst(output.statuses)) for output in outputs],
            "own": [STATUSES.index(_worst([output.status])) for output in outputs],
            "verdict": coded([output.verdict for output in outputs]),
            "dtype": coded([output.dtype for output in outputs]),
            "shape": coded([output.shape for output in outputs]),
            "standard": _in_both([output.standard for output in outputs]),
            "message": _in_both([output.message for output in outputs]),
            "distance": [shown_cell(_distance(output)) for output in outputs],
        },
        "measures": _measures(check, outputs),
    }


def _in_both(texts: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return texts in English and in Chinese as columns."""
    return {lang: coded([text[place] for text in texts]) for place, lang in enumerate(LANGUAGES)}


def _measures(check: WrittenCheck, outputs: Sequence[WrittenOutput]) -> list[dict[str, Any]]:
    """Return the columns of each measure that any output has, without those that are empty."""
    found = []
    for key in dict.fromkeys(key for output in outputs for key in output.measures):
        own = [output.measures.get(key) for output in outputs]
        english, chinese = check.titles.get(key, (key, key))
        measure: dict[str, Any] = {"key": key, "en": printable(english, 100), "zh": printable(chinese, 100)}
        for name in ("device", "trusted", "ratio", "verdict"):
            get = attrgetter(name)
            column = [None if one is None else get(one) for one in own]
            if any(cell is not None for cell in column):
                measure[name] = [shown_cell(cell) for cell in column]
        found.append(measure)
    return found
