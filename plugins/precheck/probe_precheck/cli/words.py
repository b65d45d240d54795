"""Summary of a pre-check: how many calls pass, the worst ones, and the command that repeats each."""

from __future__ import annotations

import math
import shlex
import sys
from dataclasses import fields
from itertools import islice
from typing import TYPE_CHECKING

from probe_core.cli.console import show, style, warn
from probe_core.errors import counted, printable
from probe_precheck.calls import api_name
from probe_precheck.model import Detail, Result, Status

if TYPE_CHECKING:
    from probe_precheck.run import Checked, CheckPlan

_REPEATED = {"framework": "--framework", "seed": "--seed", "release": "--standard", "standards": "--assign",
             "timeout": "--timeout", "jit_compile": "--jit-compile"}  # fmt: skip
"""Options that the repetition of one call takes over from the run, unless they have their default."""
SHOWN = 5
SHOWN_REASONS = 5
_JUDGED = (Status.ERROR, Status.WARNING, Status.PASS)
_COLOURS = {Status.ERROR: "red", Status.WARNING: "yellow", Status.PASS: "green", Status.SKIP: None}
_WORDS = {Status.ERROR: "error", Status.WARNING: "warning", Status.PASS: "pass", Status.SKIP: "SKIP"}
"""Words of the statuses, as the table spells them."""
_SHOWN_NUMBERS = (("cosine", "cosine"), ("max_abs_error", "max abs error"), ("thousandth", "within 1/1000"),
                  ("max_relative_error", "max rel error"), ("error_rate", "unequal"),
                  ("ulp_max", "max ulp"))  # fmt: skip


def checked(found: Checked) -> None:
    """Print the summary of a pre-check."""
    calls, apis = "call" if found.total == 1 else "calls", "API" if len(found.apis) == 1 else "APIs"
    text = f"{found.total:,} {calls} checked, of {len(found.apis):,} {apis}"
    show(f"{text}, {found.earlier:,} of them in an earlier run" if found.earlier else text)
    parts = [
        style(f"{found.counts[status]:,} {word}", fg=_COLOURS[status] if found.counts[status] else None)
        for status, word in _WORDS.items()
    ]
    show(f"  {', '.join(parts)}")
    if not is_judged(found):
        warn(f"Nothing was checked: {_all_skipped(found)}, so the result says nothing about any API.")
    if found.passing_standard:
        count = found.passing_standard
        show(f"  {count:,} of the errors pass by their standard, which takes the dtype into account")
    by_api: dict[str, list[Result]] = {}
    for result in sorted(found.failed, key=badness, reverse=True):
        by_api.setdefault(api_name(result.name), []).append(result)
    if by_api:
        show("  worst first, one call of each API:")
    for api, results in islice(by_api.items(), SHOWN):
        _failed(results, found.apis[api], found.plan)
    if len(by_api) > SHOWN:
        show(f"    and more calls, of {counted(len(by_api) - SHOWN, 'other API')}; see the result")
    if found.reasons:
        show("  skipped because:")
    for reason, count in found.reasons.most_common(SHOWN_REASONS):
        show(f"    {count:,} × {printable(reason, 160)}")
    if unshown := found.reasons.most_common()[SHOWN_REASONS:]:
        rest = sum(count for _, count in unshown)
        show(f"    {rest:,} for {counted(len(unshown), 'other reason')}, which the result gives")
    if found.error_directory is not None:
        show(f"  data of calls that did not pass: {found.error_directory}")
    show(f"  wrote {found.files.result}")
    show(f"  wrote {found.files.details}")
    if found.is_explainable:
        show("  the calls were run again here; to judge the results that the run recorded:")
        show(f"    probe explain {shlex.quote(str(found.plan.dump))}")
    if found.lost:
        more = f" and {len(found.lost) - 1} more" if len(found.lost) > 1 else ""
        warn(f"{printable(found.lost[0].name)}{more} took the process with it; the message says how.")


def _failed(results: list[Result], calls: int, plan: CheckPlan) -> None:
    """Print the worst call of an API, and how many of its calls did not pass."""
    result = results[0]
    worst = worst_detail(result)
    name = worst.name if worst else result.name
    errors = sum(Status.ERROR in one.statuses for one in results)
    parts = [
        f"{count} {word}" for count, word in ((errors, "error"), (len(results) - errors, "warning")) if count
    ]
    parts.append(f"of {calls} {'call' if calls == 1 else 'calls'}")
    show(f"    {style(printable(name), bold=True)}  ({', '.join(parts)})")
    if worst:
        numbers = [f"{word} {worst.numbers[key]:.6g}" for key, word in _SHOWN_NUMBERS if key in worst.numbers]
        if worst.device_dtype:
            numbers.insert(0, printable(f"{worst.device_dtype} {worst.shape}", 100))
        if numbers:
            show(f"        {', '.join(numbers)}")
        if messages := (*worst.messages, *worst.standard_messages):
            said = dict.fromkeys(message.text("en").strip().rstrip(".") for message in messages)
            show(f"        {printable('; '.join(said))}")
    show(f"        {again(result, plan)}")


def again(result: Result, plan: CheckPlan) -> str:
    """Return the command that repeats a call: its script if there is one, else this check of it alone."""
    if result.script:
        return f"{shlex.quote(sys.executable)} {shlex.quote(result.script)}"
    words = ["probe", "run-ut", "-i", str(plan.dump), "--only", result.name]
    if plan.devices:
        words += ["-d", *plan.devices]
    for field in fields(plan):
        option, value = _REPEATED.get(field.name), getattr(plan, field.name)
        if option and value != field.default:
            words += [option] if value is True else [option, str(value)]
    return shlex.join([*words, "--save-error-data"])


def badness(result: Result) -> tuple[int, float]:
    """Return the gravity of a result, less if its standard passes it, and its worst distance."""
    detail = worst_detail(result)
    gravity = 2 * (Status.ERROR in result.statuses) - result.passes_standard_alone
    return gravity, _distance(detail) if detail else 0.0


def worst_detail(result: Result) -> Detail | None:
    """Return the output with the largest distance among those of the gravest status."""
    for status in (Status.ERROR, Status.WARNING):
        found = [detail for detail in result.details if status in detail.statuses]
        if found:
            return max(found, key=_distance)
    return None


def _distance(detail: Detail) -> float:
    """Return the distance of an output from its reference, for sorting: inf without numbers."""
    numbers = detail.numbers
    if not numbers:
        return math.inf
    off = 1 - numbers.get("cosine", 1)
    for key in ("error_rate", "max_relative_error", "max_abs_error"):
        value = numbers.get(key)
        if value is not None:
            off += math.inf if math.isnan(value) else value
            break
    return off


def is_judged(found: Checked) -> bool:
    """Return True if a call was run and judged, in this run or in the one that it resumes."""
    return bool(found.earlier) or any(count for status, count in found.counts.items() if status in _JUDGED)


def _all_skipped(found: Checked) -> str:
    if not found.total:
        return "the run holds no call to check"
    why = found.reasons.most_common(1)
    shown = f" ({printable(why[0][0].rstrip('.'), 160)})" if why else ""
    calls = "the only call was" if found.total == 1 else f"all {found.total:,} calls were"
    return f"{calls} skipped{shown}"


def reaches(found: Checked, level: str) -> bool:
    """Return True if any call has the status ``level``, or a graver one."""
    levels = (Status.ERROR,) if level == "error" else (Status.ERROR, Status.WARNING)
    return any(found.counts[status] for status in levels)
