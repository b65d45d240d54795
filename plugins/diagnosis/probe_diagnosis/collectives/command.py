"""``merge_result --check-collectives``: check the communication of a run, print and write what was found."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from probe_core.cli import console
from probe_core.cli.main import FINISHED, FOUND, MISTAKE
from probe_core.errors import printable
from probe_core.files.claim import FORM, claimed
from probe_core.plugins.manager import Manager
from probe_core.plugins.specs import ReporterSpec
from probe_diagnosis.collectives.run_check import StepCheck, check_run, write_check

SHOWN_BREACHES = 10


def check_collectives(manager: Manager, output: Path, format: str, values: Mapping[str, Any]) -> int:
    """Check the run that the option names; the exit code.

    Raises:
        UserError: A run that cannot be checked.
    """
    fail_on = values.get("fail_on")
    with console.progress():
        checks = check_run(values["run"], manager)
    for one in checks:
        _show(one)
    spec = manager.find("reporters", format, ReporterSpec)
    if any(one.check.breaches for one in checks):
        with claimed(output, time.strftime(FORM)) as time_stamp:
            console.show(f"  wrote {write_check(checks, output, time_stamp, spec)}")
        return FOUND if fail_on else FINISHED
    if not fail_on:
        return FINISHED
    if not any(one.check.kept for one in checks):
        console.error(
            "--fail-on cannot be judged: no communication call was checked.",
            "Record the communication calls of all ranks with task tensor and level L1 or mix.",
        )
        return MISTAKE
    return FOUND if fail_on == "warning" and any(one.check.unchecked for one in checks) else FINISHED


def _show(one: StepCheck) -> None:
    """Print the result of checking the communication of one step."""
    found = one.check
    where = f"{one.step}: " if one.step else ""
    if not found.kept and not found.breaches:
        what = "none could be checked" if found.unchecked else "the run holds no communication calls"
        console.warn(
            f"{where}nothing was checked on {len(one.ranks)} rank(s): {what}, so this says nothing about them"
        )
    console.show(
        f"{where}{found.kept + len(found.breaches):,} communication calls of {len(one.ranks)} ranks checked, "
        f"{len(found.breaches):,} break their law"
    )
    for breach in found.breaches[:SHOWN_BREACHES]:
        console.show(f"  rank {breach.rank}: {console.style(printable(breach.op), bold=True)}")
        console.show(f"      should have received {printable(f'{breach.law}; {breach.evidence}')}")
    if len(found.breaches) > SHOWN_BREACHES:
        console.show(f"  and {len(found.breaches) - SHOWN_BREACHES} more")
    for reason, count in found.unchecked.items():
        console.show(f"  {count:,} call(s) not checked: {reason}")
