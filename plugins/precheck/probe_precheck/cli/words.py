"""Summary of a pre-check: how many calls pass, the worst ones, and the command that repeats each."""

from __future__ import annotations

import math
import shlex
import sys
from collections import Counter
from dataclasses import fields
from itertools import islice
from typing import TYPE_CHECKING

from probe_core.console import show, style, warn
from probe_core.errors import format_count, make_printable
from probe_precheck.calls import get_api_name
from probe_precheck.model import Detail, Result, Status

if TYPE_CHECKING:
    from probe_precheck.run import CheckPlan, CheckSummary

_REPEATED_OPTIONS = {"framework": "--framework", "seed": "--seed", "release": "--standard", "standards": "--assign",
             "timeout": "--timeout", "jit_compile": "--jit-compile"}  # fmt: skip
"""Options of the run that the command to repeat a call contains, unless they have their default."""
MAX_SHOWN_APIS = 5
MAX_SHOWN_REASONS = 5
_JUDGED_STATUSES = (Status.ERROR, Status.WARNING, Status.PASS)
_STATUS_COLORS = {Status.ERROR: "red", Status.WARNING: "yellow", Status.PASS: "green", Status.SKIP: None}
_STATUS_WORDS = {Status.ERROR: "error", Status.WARNING: "warning", Status.PASS: "pass", Status.SKIP: "SKIP"}
"""Words of the statuses, as the table spells them."""
_SHOWN_NUMBERS = (("cosine", "cosine"), ("max_abs_error", "max abs error"), ("thousandth", "within 1/1000"),
                  ("max_relative_error", "max rel error"), ("error_rate", "unequal"),
                  ("ulp_max", "max ulp"))  # fmt: skip


def _print_skip_reasons(reasons: Counter[str]) -> None:
    if reasons:
        show("  skipped because:")
    for reason, count in reasons.most_common(MAX_SHOWN_REASONS):
        show(f"    {count:,} × {make_printable(reason, 160)}")
    if unshown := reasons.most_common()[MAX_SHOWN_REASONS:]:
        rest = sum(count for _, count in unshown)
        show(f"    {rest:,} for {format_count(len(unshown), 'other reason')}, which the result states")


def print_summary(summary: CheckSummary) -> None:
    """Print the summary of a pre-check."""
    calls, apis = "call" if summary.total == 1 else "calls", "API" if len(summary.apis) == 1 else "APIs"
    text = f"{summary.total:,} {calls} checked, of {len(summary.apis):,} {apis}"
    show(f"{text}, {summary.earlier:,} of them in an earlier run" if summary.earlier else text)
    parts = [
        style(f"{summary.counts[status]:,} {word}", fg=_STATUS_COLORS[status] if summary.counts[status] else None)
        for status, word in _STATUS_WORDS.items()
    ]
    show(f"  {', '.join(parts)}")
    if not is_judged(summary):
        warn(f"Nothing was checked: {_describe_all_skipped(summary)}, so the result contains no verdict on an API.")
    if summary.passing_standard:
        count = summary.passing_standard
        show(f"  {count:,} of the errors pass by their standard, which takes the dtype into account")
    by_api: dict[str, list[Result]] = {}
    for result in sorted(summary.failed, key=get_severity_key, reverse=True):
        by_api.setdefault(get_api_name(result.name), []).append(result)
    if by_api:
        show("  worst first, one call of each API:")
    for api, results in islice(by_api.items(), MAX_SHOWN_APIS):
        _print_failed(results, summary.apis[api], summary.plan)
    if len(by_api) > MAX_SHOWN_APIS:
        show(f"    and more calls, of {format_count(len(by_api) - MAX_SHOWN_APIS, 'other API')}; see the result")
    _print_skip_reasons(summary.reasons)
    if summary.error_directory is not None:
        show(f"  data of calls that did not pass: {summary.error_directory}")
    show(f"  wrote {summary.files.result}")
    show(f"  wrote {summary.files.details}")
    if summary.is_explainable:
        show("  the calls were run again here; to judge the results that the run recorded:")
        show(f"    probe explain {shlex.quote(str(summary.plan.dump))}")
    if summary.lost:
        more = f" and {len(summary.lost) - 1} more" if len(summary.lost) > 1 else ""
        warn(f"{make_printable(summary.lost[0].name)}{more} ended the worker process; the message states how.")


def _print_failed(results: list[Result], calls: int, plan: CheckPlan) -> None:
    """Print the worst call of an API, and how many of its calls did not pass."""
    result = results[0]
    worst = find_worst_detail(result)
    name = worst.name if worst else result.name
    errors = sum(Status.ERROR in failed_result.statuses for failed_result in results)
    parts = [f"{count} {word}" for count, word in ((errors, "error"), (len(results) - errors, "warning")) if count]
    parts.append(f"of {calls} {'call' if calls == 1 else 'calls'}")
    show(f"    {style(make_printable(name), bold=True)}  ({', '.join(parts)})")
    if worst:
        numbers = [f"{word} {worst.numbers[key]:.6g}" for key, word in _SHOWN_NUMBERS if key in worst.numbers]
        if worst.device_dtype:
            numbers.insert(0, make_printable(f"{worst.device_dtype} {worst.shape}", 100))
        if numbers:
            show(f"        {', '.join(numbers)}")
        if messages := (*worst.messages, *worst.standard_messages):
            texts = dict.fromkeys(message.text("en").strip().rstrip(".") for message in messages)
            show(f"        {make_printable('; '.join(texts))}")
    show(f"        {build_repeat_command(result, plan)}")


def build_repeat_command(result: Result, plan: CheckPlan) -> str:
    """Return the command that repeats a call: its script if there is one, or else a check of this call only."""
    if result.script:
        return f"{shlex.quote(sys.executable)} {shlex.quote(result.script)}"
    words = ["probe", "run-ut", "-i", str(plan.dump), "--only", result.name]
    if plan.devices:
        words += ["-d", *plan.devices]
    for field in fields(plan):
        option, value = _REPEATED_OPTIONS.get(field.name), getattr(plan, field.name)
        if option and value != field.default:
            words += [option] if value is True else [option, str(value)]
    return shlex.join([*words, "--save-error-data"])


def get_severity_key(result: Result) -> tuple[int, float]:
    """Return the severity of a result, which is lower if its standard passes it, and its largest distance."""
    detail = find_worst_detail(result)
    severity = 2 * (Status.ERROR in result.statuses) - result.passes_standard_alone
    return severity, _measure_distance(detail) if detail else 0.0


def find_worst_detail(result: Result) -> Detail | None:
    """Return the output with the largest distance among those with the worst status."""
    for status in (Status.ERROR, Status.WARNING):
        details = [detail for detail in result.details if status in detail.statuses]
        if details:
            return max(details, key=_measure_distance)
    return None


def _measure_distance(detail: Detail) -> float:
    """Return the distance of an output from its reference, for sorting: inf without numbers."""
    numbers = detail.numbers
    if not numbers:
        return math.inf
    distance = 1 - numbers.get("cosine", 1)
    for key in ("error_rate", "max_relative_error", "max_abs_error"):
        value = numbers.get(key)
        if value is not None:
            distance += math.inf if math.isnan(value) else value
            break
    return distance


def is_judged(summary: CheckSummary) -> bool:
    """Return True if a call was run and judged, in this run or in the one that it resumes."""
    return bool(summary.earlier) or any(count for status, count in summary.counts.items() if status in _JUDGED_STATUSES)


def _describe_all_skipped(summary: CheckSummary) -> str:
    if not summary.total:
        return "the run contains no call to check"
    reasons = summary.reasons.most_common(1)
    reason = f" ({make_printable(reasons[0][0].rstrip('.'), 160)})" if reasons else ""
    calls = "the only call was" if summary.total == 1 else f"all {summary.total:,} calls were"
    return f"{calls} skipped{reason}"


def reaches(summary: CheckSummary, level: str) -> bool:
    """Return True if a call has the status ``level`` or a worse status."""
    levels = (Status.ERROR,) if level == "error" else (Status.ERROR, Status.WARNING)
    return any(summary.counts[status] for status in levels)
