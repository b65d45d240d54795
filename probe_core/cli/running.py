"""Execution of a plan at the command line: progress, summaries, exit code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from probe_core.cli import console
from probe_core.cli.main import FINISHED, FOUND, INTERRUPTED, LOST, MISTAKE
from probe_core.errors import UserError
from probe_core.model import GRAVITY, Level
from probe_core.model.plan import Plan
from probe_core.model.report import Report
from probe_core.plugins.blame import blamed
from probe_core.plugins.manager import Manager
from probe_core.plugins.specs import AnswerSpec

if TYPE_CHECKING:
    from probe_core.plugins.protocols import Answerer
    from probe_core.ranks.ranks import Ranks


def run_plan(plan: Plan, manager: Manager, fail_on: Level | None = None, *, brief: bool = False) -> int:
    """Run a plan rank by rank, print progress and summary, and return the exit code.

    If a rank cannot be compared, its error is printed and the others are compared.
    """
    from probe_core.ranks.ranks import Ranks

    ranks = Ranks(plan, manager)
    for line in ranks.pairing.missing:
        console.warn(line)
    for line in ranks.pairing.damaged:
        console.error(line, "Record that rank again, or leave it out with --rank.")
    with ranks.claimed():
        return _run(ranks, manager, fail_on, brief)


def _run(ranks: Ranks, manager: Manager, fail_on: Level | None, brief: bool) -> int:
    from probe_core.ranks.summary import write_summary

    interrupted = False
    told: set[str] = set()
    try:
        with console.progress() as above:
            for finished in ranks.run():
                if finished.report is None:
                    assert finished.error is not None
                    if not ranks.several:
                        raise finished.error
                    if str(finished.error) in told:
                        continue  # one mistake is one error, however many ranks it concerns
                    told.add(str(finished.error))
                    with above():
                        console.failed(finished)
                else:
                    with above():
                        console.summary(finished.report, brief=brief, one_of_many=ranks.several)
    except KeyboardInterrupt:
        interrupted = True
    reports = [one.report for one in ranks.finished if one.report is not None]
    failed = len(reports) < len(ranks.finished)
    if ranks.several:
        files: list[Path] = []
        try:
            files = [] if interrupted else write_summary(ranks.plan, manager, ranks.finished)
        except UserError as error:  # the ranks' own results are there
            console.error(error.what, error.fix, error.choices)
            failed = True
        console.ranks(ranks.pairing, ranks.finished, files)
    is_judged = all(report.is_judged for report in reports)
    for name in () if interrupted else ranks.plan.answers:
        spec = manager.find("answers", name, AnswerSpec)
        answerer: Answerer = spec.make()
        with blamed(spec.title, spec.origin):
            for conclusion in answerer.conclude(ranks.plan, ranks.pairing.pairs):
                conclusion.show()
                is_judged = is_judged and conclusion.is_judged
    if interrupted or any(report.interrupted for report in reports):
        return INTERRUPTED
    code = _code(reports, ranks.pairing.damaged, failed, fail_on)
    if fail_on and code == FINISHED and not is_judged:
        console.error(
            "--fail-on cannot be judged: not everything that was asked for was measured.",
            "The warnings above name what was not measured, and why.",
        )
        return MISTAKE
    return code


def _code(reports: list[Report], damaged: list[str], failed: bool, fail_on: Level | None) -> int:
    if failed or damaged or any(report.unreadable_count for report in reports):
        return MISTAKE
    if any(report.faults for report in reports):
        return LOST
    if fail_on and any(GRAVITY[report.level] >= GRAVITY[fail_on] for report in reports):
        return FOUND
    return FINISHED
