"""Execution of a plan at the command line: progress, summaries, exit code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from probe_core import console
from probe_core.errors import UserError
from probe_core.model import SEVERITIES, Level
from probe_core.model.answers import Outcome
from probe_core.model.plan import Plan
from probe_core.plugins.manager import Manager
from probe_core.plugins.specs import AnswerStage
from probe_core.terminal.exit_codes import (
    EXIT_DATA_LOST,
    EXIT_FINDINGS,
    EXIT_FINISHED,
    EXIT_INTERRUPTED,
    EXIT_USER_ERROR,
)

if TYPE_CHECKING:
    from probe_core.flow.execution import PlanExecution
    from probe_core.model.report import Report


FAIL_ON_SUSPECT, FAIL_ON_INCOMPLETE = "suspect", "incomplete"
"""Values of ``--fail-on`` about the answer; the others are levels of rows."""

UNDECIDED_OUTCOMES = (Outcome.NOT_COMPARABLE, Outcome.CANNOT_TELL)
"""Outcomes without a decision, for which ``--fail-on`` always exits with 1."""


def run_plan(
    plan: Plan, manager: Manager, fail_on: str | None = None, *, brief: bool = False, is_drop_in: bool = False
) -> int:
    """Run a plan rank by rank, print the verdict and summaries, and return the exit code.

    If a rank cannot be compared, its error is printed and the others are compared. With ``brief``, only the
    verdict and the files are printed. With the drop-in spelling of the command, the exit code is 0
    even if nothing could be measured.
    """
    from probe_core.flow.execution import PlanExecution

    execution = PlanExecution.open(plan, manager)
    for line in execution.pairing.notes:
        console.note(f"note: {line}")
    for line in execution.pairing.missing:
        console.warn(line)
    for line in execution.pairing.damaged:
        console.error(line, "Record that rank again, or leave it out with --rank.")
    with execution.reserve_time_stamp():
        code = _run(execution, fail_on, brief=brief)
    if code == EXIT_FINISHED and not fail_on and _is_unmeasured(_list_reports(execution)):
        if not is_drop_in:
            return EXIT_USER_ERROR
        console.warn("no tensor could be compared; the exit code is 0, as scripts with this spelling expect.")
    return code


def _list_reports(execution: PlanExecution) -> list[Report]:
    return [result.report for result in execution.finished if result.report is not None]


def _is_unmeasured(reports: Sequence[Report]) -> bool:
    """Return True if no row was measured although the runs hold values that should be compared."""
    return bool(reports) and all(
        report.answer is not None and report.answer.outcome is Outcome.NOT_COMPARABLE and not report.counts.measured
        for report in reports
    )


def _run(execution: PlanExecution, fail_on: str | None, *, brief: bool) -> int:
    """Make all comparisons, print the conclusions from them, and return the exit code."""
    is_interrupted = _compare_pairs(execution)
    is_judged = all(report.is_judged for report in _list_reports(execution))
    has_failed = any(result.report is None for result in execution.finished)
    for stage in AnswerStage:
        if is_interrupted and stage is AnswerStage.ASKED:  # these answers need all comparisons
            continue
        try:
            for conclusion in execution.iterate_conclusions(stage):
                conclusion.show(brief=brief)
                is_judged = is_judged and conclusion.is_judged
        except UserError as error:  # the results of the ranks are already written
            console.error(error.what, error.fix, error.choices)
            has_failed = True
    reports = _list_reports(execution)  # with final verdicts, which conclusions may have replaced
    if is_interrupted or any(report.interrupted for report in reports):
        return EXIT_INTERRUPTED
    if has_failed or execution.pairing.damaged or any(report.unreadable_count for report in reports):
        return EXIT_USER_ERROR
    if any(report.faults for report in reports):
        return EXIT_DATA_LOST
    return _apply_fail_on(reports, fail_on, is_judged=is_judged) if fail_on else EXIT_FINISHED


def _compare_pairs(execution: PlanExecution) -> bool:
    """Make all comparisons, and print the errors of single ranks; return True if the user pressed Ctrl-C."""
    reported_errors: set[str] = set()
    try:
        with console.show_progress() as print_above:
            for result in execution.run():
                if result.error is None:
                    continue
                if not execution.has_several_pairs:
                    raise result.error
                if str(result.error) not in reported_errors:  # several ranks may have the same error
                    reported_errors.add(str(result.error))
                    with print_above():
                        what = f"{result.pair.name}: {result.error.what}"
                        console.error(what, result.error.fix, result.error.choices)
    except KeyboardInterrupt:
        return True
    return False


def _apply_fail_on(reports: Sequence[Report], fail_on: str, *, is_judged: bool) -> int:
    """Return the exit code of a finished command with ``--fail-on``."""
    if any(_meets_condition(report, fail_on) for report in reports):
        return EXIT_FINDINGS
    if not is_judged:
        console.error(
            "--fail-on cannot be judged: not everything that was asked for was measured.",
            "The warnings above name what was not measured, and why.",
        )
        return EXIT_USER_ERROR
    is_undecided = any(report.answer and report.answer.outcome in UNDECIDED_OUTCOMES for report in reports)
    return EXIT_FINDINGS if is_undecided else EXIT_FINISHED


def _meets_condition(report: Report, fail_on: str) -> bool:
    """Return True if a comparison meets the condition of ``--fail-on``."""
    if fail_on == FAIL_ON_SUSPECT:
        return bool(report.suspects)
    if fail_on == FAIL_ON_INCOMPLETE:
        return bool(report.counts.measured and report.answer and report.answer.coverage.excused)
    return SEVERITIES[report.level] >= SEVERITIES[Level(fail_on)]
