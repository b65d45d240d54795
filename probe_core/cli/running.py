"""Execution of a plan at the command line: progress, summaries, exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.cli import console
from probe_core.cli.main import FINISHED, FOUND, INTERRUPTED, LOST, MISTAKE
from probe_core.errors import UserError
from probe_core.model import GRAVITY, Level
from probe_core.model.answers import Outcome
from probe_core.model.plan import Plan
from probe_core.plugins.manager import Manager

if TYPE_CHECKING:
    from probe_core.model.report import Report
    from probe_core.ranks.ranks import Ranks


SUSPECT, INCOMPLETE = "suspect", "incomplete"
"""Values of ``--fail-on`` about the answer; the others are levels of rows."""

UNDECIDED = (Outcome.NOT_COMPARABLE, Outcome.CANNOT_TELL)
"""Verdicts that pass no gate."""


def run_plan(
    plan: Plan,
    manager: Manager,
    fail_on: str | None = None,
    *,
    brief: bool = False,
    is_drop_in: bool = False,
) -> int:
    """Run a plan rank by rank, print the verdict and summaries, and return the exit code.

    If a rank cannot be compared, its error is printed and the others are compared.

    Args:
        plan: The plan.
        manager: The plugin manager.
        fail_on: The value of ``--fail-on``; None without it.
        brief: True to print the verdict and the files alone.
        is_drop_in: True for a drop-in spelling, which exits with 0 if nothing could be measured.
    """
    from probe_core.ranks.ranks import Ranks

    ranks = Ranks(plan, manager)
    for line in ranks.pairing.notes:
        console.note(f"note: {line}")
    for line in ranks.pairing.missing:
        console.warn(line)
    for line in ranks.pairing.damaged:
        console.error(line, "Record that rank again, or leave it out with --rank.")
    with ranks.claimed():
        code = _run(ranks, fail_on, brief)
    if code == FINISHED and not fail_on and _is_unmeasured(ranks):
        if not is_drop_in:
            return MISTAKE
        console.warn("no tensor could be compared; the exit code is 0, as scripts with this spelling expect.")
    return code


def _is_unmeasured(ranks: Ranks) -> bool:
    """Return True if no row was measured although the runs hold values that should be compared."""
    reports = [finished.report for finished in ranks.finished if finished.report is not None]
    return bool(reports) and all(
        report.answer is not None
        and report.answer.outcome is Outcome.NOT_COMPARABLE
        and not report.counts.measured
        for report in reports
    )


def _run(ranks: Ranks, fail_on: str | None, brief: bool) -> int:
    interrupted = False
    told: set[str] = set()
    try:
        with console.progress() as above:
            for finished in ranks.run():
                if finished.error is None:
                    continue
                if not ranks.several:
                    raise finished.error
                if str(finished.error) not in told:  # one mistake, however many ranks it concerns
                    told.add(str(finished.error))
                    with above():
                        what = f"{finished.pair.name}: {finished.error.what}"
                        console.error(what, finished.error.fix, finished.error.choices)
    except KeyboardInterrupt:
        interrupted = True
    reports = [one.report for one in ranks.finished if one.report is not None]
    failed = len(reports) < len(ranks.finished)
    is_judged = all(report.is_judged for report in reports)
    for given in ("first", "last", "asked"):
        try:
            for conclusion in () if interrupted and given == "asked" else ranks.conclusions(given):
                conclusion.show(brief=brief)
                is_judged = is_judged and conclusion.is_judged
        except UserError as error:  # the ranks' own results are there
            console.error(error.what, error.fix, error.choices)
            failed = True
    if interrupted or any(report.interrupted for report in reports):
        return INTERRUPTED
    code = _code(reports, ranks.pairing.damaged, failed, fail_on)
    if fail_on and code == FINISHED and not is_judged:
        console.error(
            "--fail-on cannot be judged: not everything that was asked for was measured.",
            "The warnings above name what was not measured, and why.",
        )
        return MISTAKE
    undecided = any(report.answer and report.answer.outcome in UNDECIDED for report in reports)
    return FOUND if fail_on and code == FINISHED and undecided else code


def _code(reports: list[Report], damaged: list[str], failed: bool, fail_on: str | None) -> int:
    if failed or damaged or any(report.unreadable_count for report in reports):
        return MISTAKE
    if any(report.faults for report in reports):
        return LOST
    return FOUND if fail_on and any(_is_found(report, fail_on) for report in reports) else FINISHED


def _is_found(report: Report, fail_on: str) -> bool:
    """Return True if a comparison holds what ``--fail-on`` asks about."""
    if fail_on == SUSPECT:
        return bool(report.suspects)
    if fail_on == INCOMPLETE:
        return bool(report.counts.measured and report.answer and report.answer.coverage.excused)
    return GRAVITY[report.level] >= GRAVITY[Level(fail_on)]
