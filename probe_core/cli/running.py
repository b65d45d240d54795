"""Execution of a plan at the command line: progress, summaries, exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core import console
from probe_core.cli.main import EXIT_DATA_LOST, EXIT_FINDINGS, EXIT_FINISHED, EXIT_INTERRUPTED, EXIT_USER_ERROR
from probe_core.errors import UserError
from probe_core.model import SEVERITIES, Level
from probe_core.model.answers import Outcome
from probe_core.model.plan import Plan
from probe_core.plugins.manager import Manager

if TYPE_CHECKING:
    from probe_core.flow.execution import PlanExecution
    from probe_core.model.report import Report


FAIL_ON_SUSPECT, FAIL_ON_INCOMPLETE = "suspect", "incomplete"
"""Values of ``--fail-on`` about the answer; the others are levels of rows."""

UNDECIDED_OUTCOMES = (Outcome.NOT_COMPARABLE, Outcome.CANNOT_TELL)
"""Outcomes that never satisfy ``--fail-on``."""


def run_plan(
    plan: Plan, manager: Manager, fail_on: str | None = None, *, brief: bool = False, is_drop_in: bool = False
) -> int:
    """Run a plan rank by rank, print the verdict and summaries, and return the exit code.

    If a rank cannot be compared, its error is printed and the others are compared. With ``brief``, only the
    verdict and the files are printed. A drop-in spelling exits with 0 if nothing could be measured.
    """
    from probe_core.flow.execution import PlanExecution

    ranks = PlanExecution(plan, manager)
    for line in ranks.pairing.notes:
        console.note(f"note: {line}")
    for line in ranks.pairing.missing:
        console.warn(line)
    for line in ranks.pairing.damaged:
        console.error(line, "Record that rank again, or leave it out with --rank.")
    with ranks.reserve_time_stamp():
        code = _run(ranks, fail_on, brief)
    if code == EXIT_FINISHED and not fail_on and _is_unmeasured(ranks):
        if not is_drop_in:
            return EXIT_USER_ERROR
        console.warn("no tensor could be compared; the exit code is 0, as scripts with this spelling expect.")
    return code


def _is_unmeasured(ranks: PlanExecution) -> bool:
    """Return True if no row was measured although the runs hold values that should be compared."""
    reports = [result.report for result in ranks.finished if result.report is not None]
    return bool(reports) and all(
        report.answer is not None and report.answer.outcome is Outcome.NOT_COMPARABLE and not report.counts.measured
        for report in reports
    )


def _run(ranks: PlanExecution, fail_on: str | None, brief: bool) -> int:
    interrupted = False
    reported_errors: set[str] = set()
    try:
        with console.show_progress() as print_above:
            for result in ranks.run():
                if result.error is None:
                    continue
                if not ranks.has_several_pairs:
                    raise result.error
                if str(result.error) not in reported_errors:  # several ranks may have the same error
                    reported_errors.add(str(result.error))
                    with print_above():
                        what = f"{result.pair.name}: {result.error.what}"
                        console.error(what, result.error.fix, result.error.choices)
    except KeyboardInterrupt:
        interrupted = True
    reports = [result.report for result in ranks.finished if result.report is not None]
    failed = len(reports) < len(ranks.finished)
    is_judged = all(report.is_judged for report in reports)
    for stage in ("first", "last", "asked"):
        try:
            for conclusion in () if interrupted and stage == "asked" else ranks.yield_conclusions(stage):
                conclusion.show(brief=brief)
                is_judged = is_judged and conclusion.is_judged
        except UserError as error:  # the results of the ranks are already written
            console.error(error.what, error.fix, error.choices)
            failed = True
    reports = [result.report for result in ranks.finished if result.report is not None]  # with revised verdicts
    if interrupted or any(report.interrupted for report in reports):
        return EXIT_INTERRUPTED
    code = _find_exit_code(reports, ranks.pairing.damaged, failed, fail_on)
    if fail_on and code == EXIT_FINISHED and not is_judged:
        console.error(
            "--fail-on cannot be judged: not everything that was asked for was measured.",
            "The warnings above name what was not measured, and why.",
        )
        return EXIT_USER_ERROR
    undecided = any(report.answer and report.answer.outcome in UNDECIDED_OUTCOMES for report in reports)
    return EXIT_FINDINGS if fail_on and code == EXIT_FINISHED and undecided else code


def _find_exit_code(reports: list[Report], damaged: list[str], failed: bool, fail_on: str | None) -> int:
    if failed or damaged or any(report.unreadable_count for report in reports):
        return EXIT_USER_ERROR
    if any(report.faults for report in reports):
        return EXIT_DATA_LOST
    return EXIT_FINDINGS if fail_on and any(_is_failure(report, fail_on) for report in reports) else EXIT_FINISHED


def _is_failure(report: Report, fail_on: str) -> bool:
    """Return True if a comparison fails the condition of ``--fail-on``."""
    if fail_on == FAIL_ON_SUSPECT:
        return bool(report.suspects)
    if fail_on == FAIL_ON_INCOMPLETE:
        return bool(report.counts.measured and report.answer and report.answer.coverage.excused)
    return SEVERITIES[report.level] >= SEVERITIES[Level(fail_on)]
