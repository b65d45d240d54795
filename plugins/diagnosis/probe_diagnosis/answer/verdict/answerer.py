"""The answer of every comparison: the verdict over all ranks, in its file and on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path

from probe_core.errors import UserError
from probe_core.flow.opening import open_run
from probe_core.model.answers import Answer, Finding, Outcome
from probe_core.model.report import Report
from probe_core.plugins.protocols import AllResults, Finder, OpenComparison, PairResult
from probe_core.store.layout import RunPair
from probe_diagnosis.answer.causes.compared_runs import ComparedRuns
from probe_diagnosis.answer.causes.findings import create_finding, replace_statement
from probe_diagnosis.answer.references.same_files import state_same_files
from probe_diagnosis.answer.verdict.all_ranks import merge_answers
from probe_diagnosis.answer.verdict.answer_file import write_answer
from probe_diagnosis.answer.verdict.answer_printing import print_answer
from probe_diagnosis.answer.verdict.other_steps import add_uncompared_steps
from probe_diagnosis.answer.verdict.step_history import add_earlier_origin, judge_in_order
from probe_diagnosis.answer.verdict.suspect_finder import SuspectFinder
from probe_diagnosis.difference.nodes import Node
from probe_diagnosis.difference.reason_statement import build_statement
from probe_diagnosis.difference.reasons import CauseKind
from probe_diagnosis.difference.search import search


@dataclass(frozen=True, slots=True)
class VerdictConclusion:
    """The verdict on all ranks, which can be printed.

    Attributes:
        answer: The verdict.
        file: The file that it was written to; None if the plan asks for none.
        compared: The comparisons that it is about.
        is_judged: Always True: CANNOT TELL is a verdict as well.
    """

    answer: Answer
    file: Path | None
    compared: AllResults
    is_judged: bool = True

    def show(self, *, brief: bool = False) -> None:
        """Print the verdict, and unless ``brief`` is set its causes, its coverage and what to do next."""
        reports = [comparison.report for comparison in self.compared.finished if comparison.report is not None]
        print_answer(
            self.answer,
            self.file,
            self._find_table_name,
            brief=brief,
            names_ranks=_has_ranks(self.compared),
            is_measured=any(report.counts.measured for report in reports),
        )

    def _find_table_name(self, cause: Finding) -> str:
        """Return the file that contains the row of a cause, below the output; empty if there is none."""
        finished = self.compared.finished
        step_and_rank = cause.step, cause.rank
        matches = [
            comparison
            for comparison in finished
            if (comparison.pair.part, comparison.pair.rank) == step_and_rank or len(finished) == 1
        ]
        files = matches[0].report.files if matches and matches[0].report is not None else []
        return "/".join(filter(None, (matches[0].pair.part, files[0].name))) if files else ""


class VerdictAnswerer:
    """Answer that every comparison gets. It reads the facts that the finder collected on each rank."""

    def witness(self, opened: OpenComparison, pair: RunPair) -> None:
        """Observe nothing; the finder has seen all rows."""

    def revise(self, compared: AllResults) -> list[PairResult]:
        """Return the comparisons, those of later steps with verdicts that consider the steps before them."""
        return judge_in_order(compared)

    def conclude(self, compared: AllResults) -> Iterator[VerdictConclusion]:
        """Write the answer over all ranks, and yield it ready to be printed; nothing if no rank has one.

        Raises:
            UserError: The file cannot be written; the answer was yielded before that.
        """
        whole = build_overall_answer(compared)
        if whole is None:
            return
        finished = compared.finished
        steps: dict[str, list[tuple[RunPair, Answer | str]]] = {}
        for comparison in finished:
            answer = comparison.report.answer if comparison.report is not None else None
            error = comparison.error.what if comparison.error is not None else "no verdict"
            steps.setdefault(comparison.pair.part, []).append((comparison.pair, answer or error))
        plan = compared.plan
        try:
            file = write_answer(plan, whole, steps) if plan.answer else None
        except UserError:
            yield VerdictConclusion(whole, None, compared)
            raise
        yield VerdictConclusion(whole, file, compared)


def build_overall_answer(compared: AllResults) -> Answer | None:
    """Return the verdict over all ranks and steps; None if no comparison has one."""
    finished = compared.finished
    answers = {
        comparison.pair.name: comparison.report.answer
        for comparison in finished
        if comparison.report and comparison.report.answer
    }
    if not answers:
        return None
    causes = list(_find_causes(compared)) if len(compared.pairing.pairs) > 1 else []
    failed = len(compared.pairing.pairs) - len(answers)
    later = _find_later_comparisons(compared)
    answer = merge_answers(answers, causes, failed, is_multi_rank=_has_ranks(compared), later=later)
    pairs = compared.pairing.pairs
    if len(pairs) > 1:
        answer = state_same_files(answer, pairs)
    return add_uncompared_steps(answer, compared.plan, pairs)


def _has_ranks(compared: AllResults) -> bool:
    """Return True if several ranks are compared, so that each one that is meant must be named."""
    return len({pair.rank for pair in compared.pairing.pairs}) > 1


def _find_later_comparisons(compared: AllResults) -> set[str]:
    """Return the names of the comparisons of steps after the first one that diverged."""
    diverged = [
        comparison.pair.part
        for comparison in compared.finished
        if comparison.report and comparison.report.answer and comparison.report.answer.outcome is Outcome.DIVERGED
    ]
    parts = list(dict.fromkeys(comparison.pair.part for comparison in compared.finished))
    later = parts[min(map(parts.index, diverged)) + 1 :] if diverged else []
    return {comparison.pair.name for comparison in compared.finished if comparison.pair.part in later}


def _find_causes(compared: AllResults) -> Iterator[Finding]:
    """Yield the causes of the first step that has any, across its ranks in the order of cause and effect.

    What differs in later steps may follow from them.
    """
    parts = list(dict.fromkeys(comparison.pair.part for comparison in compared.finished))
    agreeing = {part for part in parts if all(_agrees(report) for _, report, _ in _list_reports(compared, part))}
    diverged = [part for part in parts if part not in agreeing]
    for part in [*diverged, *(part for part in parts if part in agreeing)]:
        causes = find_step_causes(compared, part)
        if causes:
            earlier = parts[: parts.index(part)] if part not in agreeing else []
            yield from add_earlier_origin(causes, [_list_withdrawn(compared, step) for step in earlier])
            return


def _list_withdrawn(compared: AllResults, part: str) -> list[Finding]:
    """Return what differs in a step without an effect in it."""
    return [
        replace(cause, step=part, rank=rank)
        for rank, report, _ in _list_reports(compared, part)
        for cause in (report.answer.withdrawn if report.answer is not None else ())
    ]


def find_step_causes(compared: AllResults, part: str) -> list[Finding]:
    """Return the causes of one step across its ranks, in the order of cause and effect."""
    return [*_iterate_step_causes(compared, part)]


def _iterate_step_causes(compared: AllResults, part: str) -> Iterator[Finding]:
    reports = _list_reports(compared, part)
    ordered = sorted(reversed(reports), key=itemgetter(0))  # if a rank has several files, the first one counts
    reports_by_rank = {rank: report for rank, report, _ in ordered}
    finders = {rank: finder for rank, _, finder in ordered if isinstance(finder, SuspectFinder)}
    histories = {rank: finder.history for rank, finder in finders.items() if finder.history is not None}
    search_result = search({rank: finder.facts.ops for rank, finder in finders.items()}, histories=histories)
    nodes = search_result.first if len(reports_by_rank) > 1 else []
    first = [node for node in nodes if not _agrees(reports_by_rank[node.rank])]
    for node in first:
        answer = reports_by_rank[node.rank].answer
        causes = answer.causes if answer is not None else ()
        shared_cause = next((cause for cause in causes if node.call.op in (cause.op, *cause.consequences[:1])), None)
        if shared_cause is None:
            shared_cause = _create_shared_cause(compared, part, node, search_result.downstream[node.rank])
        elif node.reason.cause is CauseKind.DELIVERED and shared_cause.op == node.call.op:
            # The rank's own statement does not know what other ranks sent.
            shared_cause = replace(
                replace_statement(shared_cause, build_statement(node.reason)), evidence=node.reason.evidence
            )
        yield replace(shared_cause, step=part, rank=node.rank)
    if first:
        return
    for rank, report, _ in reports:
        causes = report.answer.causes if report.answer is not None else ()
        yield from (replace(cause, step=part, rank=rank) for cause in causes)


def _list_reports(compared: AllResults, part: str) -> list[tuple[int, Report, Finder | None]]:
    """Return the ranks of a step, each with the report and the finder of each of its files."""
    return [
        (comparison.pair.rank, comparison.report, comparison.finder)
        for comparison in compared.finished
        if comparison.pair.part == part and comparison.report is not None
    ]


def find_agreeing_ranks(compared: AllResults, part: str) -> set[int]:
    """Return the ranks that agree by themselves in a step."""
    return {rank for rank, report, _ in _list_reports(compared, part) if _agrees(report)}


def _agrees(report: Report) -> bool:
    """Return True if a rank agrees by itself: its differences are rounding, or without effect."""
    return report.answer is not None and report.answer.outcome is Outcome.AGREE


def _create_shared_cause(compared: AllResults, part: str, node: Node, downstream: Sequence[str]) -> Finding:
    """Return a cause that is shared by several ranks, with its line of code from that rank's record."""
    pair = next(
        comparison.pair
        for comparison in compared.finished
        if (comparison.pair.part, comparison.pair.rank) == (part, node.rank)
    )
    with suppress(UserError), closing(open_run(compared.manager, pair.target)) as run:
        return create_finding(node, ComparedRuns(compared.plan, run, run).find_line, downstream)
    # the record was removed
    return create_finding(node, lambda _: "", downstream)
