"""The option ``--check-collectives`` of merge_result: check the communication of a run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from probe_reporters.api import claim_time_stamp

from probe_core import console
from probe_core.errors import format_count, make_printable
from probe_core.model.plan import TIME_STAMP_FORMAT
from probe_core.plugins.manager import Manager
from probe_core.plugins.specs import ReporterSpec
from probe_core.terminal.exit_codes import EXIT_FINDINGS, EXIT_FINISHED, EXIT_USER_ERROR
from probe_diagnosis.collectives.run_check import StepCheck, check_run, write_check

MAX_SHOWN_BREACHES = 10
"""Largest number of wrong calls that are printed for a step."""


def check_collectives(manager: Manager, output: Path, format: str, values: Mapping[str, Any]) -> int:
    """Check the run that the option names, print the result, and write the wrong calls to a file.

    Args:
        manager: The plugins.
        output: The output directory.
        format: Name of the reporter that writes the file.
        values: The values of the options ``run`` and ``fail_on``.

    Returns:
        The exit code.

    Raises:
        UserError: The run cannot be checked, or the output directory cannot be written to.
    """
    fail_on = values.get("fail_on")
    with console.show_progress():
        checks = check_run(values["run"], manager)
    for result in checks:
        _show(result)
    spec = manager.find("reporters", format, ReporterSpec)
    if any(result.check.breaches for result in checks):
        with claim_time_stamp(output, time.strftime(TIME_STAMP_FORMAT)) as time_stamp:
            console.show(f"  wrote {write_check(checks, output, time_stamp, spec)}")
        return EXIT_FINDINGS if fail_on else EXIT_FINISHED
    if not fail_on:
        return EXIT_FINISHED
    if not any(result.check.kept for result in checks):
        console.error(
            "--fail-on cannot be judged: no communication call was checked.",
            "Record the communication calls of all ranks with task tensor and level L1 or mix.",
        )
        return EXIT_USER_ERROR
    return EXIT_FINDINGS if fail_on == "warning" and any(result.check.unchecked for result in checks) else EXIT_FINISHED


def _show(result: StepCheck) -> None:
    """Print the result of checking one step."""
    check, ranks = result.check, len(result.ranks)
    prefix = f"{result.step}: " if result.step else ""
    if not check.kept and not check.breaches:
        reason = "none could be checked" if check.unchecked else "the run holds no communication calls"
        console.warn(
            f"{prefix}nothing was checked on {format_count(ranks, 'rank')}: {reason}, so nothing is known about them; "
            "record all ranks with task tensor and level L1 or mix"
        )
    console.show(
        f"{prefix}{format_count(check.kept + len(check.breaches), 'communication call')} of "
        f"{format_count(ranks, 'rank')} checked, "
        f"{len(check.breaches):,} delivered wrong values"
    )
    for breach in check.breaches[:MAX_SHOWN_BREACHES]:
        console.show(f"  rank {breach.rank}: {console.style(make_printable(breach.op), bold=True)}")
        console.show(f"      should have received {make_printable(f'{breach.law}; {breach.evidence}')}")
    if len(check.breaches) > MAX_SHOWN_BREACHES:
        console.show(f"  and {len(check.breaches) - MAX_SHOWN_BREACHES} more")
    for unchecked_reason, count in check.unchecked.items():
        console.show(f"  {format_count(count, 'call')} not checked: {unchecked_reason}")
