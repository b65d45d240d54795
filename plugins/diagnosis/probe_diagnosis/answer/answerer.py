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
from probe_core.plugins.protocols import Compared, Opened
from probe_core.store.layout import RunPair
from probe_diagnosis.answer.all_ranks import over_all
from probe_diagnosis.answer.file import write_answer
from probe_diagnosis.answer.findings import finding, restated
from probe_diagnosis.answer.history import judge_in_order, with_earlier_step
from probe_diagnosis.answer.other_steps import with_other_steps
from probe_diagnosis.answer.printing import show
from probe_diagnosis.answer.runs import Runs
from probe_diagnosis.answer.same_files import state_same_files
from probe_diagnosis.answer.suspects import Suspects
from probe_diagnosis.difference.reasons import Cause
from probe_diagnosis.difference.search import search
from probe_diagnosis.difference.walking import Node


@dataclass(frozen=True, slots=True)
class Concluded:
    """The verdict on all ranks, which can be printed.

    Attributes:
        answer: The verdict.
        file: The file that it was written to; None if the plan asks for none.
        compared: The comparisons that it is about.
        is_judged: True, for a verdict that cannot be given is one as well.
    """

    answer: Answer
    file: Path | None
    compared: Compared
    is_judged: bool = True

    def show(self, *, brief: bool = False) -> None:
        """Print the verdict, and unless ``brief`` is set its causes, its coverage and what to do next."""
        reports = [one.report for one in self.compared.finished if one.report is not None]
        show(
            self.answer,
            self.file,
            self._table,
            brief=brief,
            names_ranks=_has_ranks(self.compared),
            is_measured=any(report.counts.measured for report in reports),
        )

    def _table(self, cause: Finding) -> str:
        """Return the file that the row of a cause is counted in, below the output; empty for none."""
        finished = self.compared.finished
        place = cause.step, cause.rank
        own = [one for one in finished if (one.pair.part, one.pair.rank) == place or len(finished) == 1]
        files = own[0].report.files if own and own[0].report is not None else []
        return "/".join(filter(None, (own[0].pair.part, files[0].name))) if files else ""


class Verdict:
    """Answer that every comparison gets. It reads what the finder of suspects kept of each rank."""

    def witness(self, opened: Opened, pair: RunPair) -> None:
        """Observe nothing; the finder has seen all rows."""

    def conclude(self, compared: Compared) -> Iterator[Concluded]:
        """Write the answer over all ranks, and yield it ready to be printed; nothing if no rank has one.

        Raises:
            UserError: The file cannot be written; the answer was yielded before that.
        """
        whole = whole_answer(compared)
        if whole is None:
            return
        finished = compared.finished
        steps: dict[str, list[tuple[RunPair, Answer | str]]] = {}
        for one in finished:
            answer = one.report.answer if one.report is not None else None
            error = one.error.what if one.error is not None else "no verdict"
            steps.setdefault(one.pair.part, []).append((one.pair, answer or error))
        plan = compared.plan
        try:
            file = write_answer(plan, whole, steps) if plan.answer else None
        except UserError:
            yield Concluded(whole, None, compared)
            raise
        yield Concluded(whole, file, compared)


def whole_answer(compared: Compared) -> Answer | None:
    """Return the verdict over all ranks and steps; None if no comparison has one."""
    finished = compared.finished
    judge_in_order(compared)
    answers = {one.pair.name: one.report.answer for one in finished if one.report and one.report.answer}
    if not answers:
        return None
    causes = list(_causes(compared)) if len(compared.pairing.pairs) > 1 else []
    failed = len(compared.pairing.pairs) - len(answers)
    later = _after_divergence(compared)
    answer = over_all(answers, causes, failed, ranks_are_several=_has_ranks(compared), later=later)
    pairs = compared.pairing.pairs
    if len(pairs) > 1:
        answer = state_same_files(answer, pairs)
    return with_other_steps(answer, compared.plan, pairs)


def _has_ranks(compared: Compared) -> bool:
    """Return True if several ranks are compared, so that each one that is meant must be named."""
    return len({pair.rank for pair in compared.pairing.pairs}) > 1


def _after_divergence(compared: Compared) -> set[str]:
    """Return the names of the comparisons of steps after the first one that diverged."""
    diverged = [
        one.pair.part
        for one in compared.finished
        if one.report and one.report.answer and one.report.answer.outcome is Outcome.DIVERGED
    ]
    parts = list(dict.fromkeys(one.pair.part for one in compared.finished))
    later = parts[min(map(parts.index, diverged)) + 1 :] if diverged else []
    return {one.pair.name for one in compared.finished if one.pair.part in later}


def _causes(compared: Compared) -> Iterator[Finding]:
    """Yield the causes of the first step that has any, across its ranks in the order of cause and effect.

    What differs in later steps may follow from them.
    """
    parts = list(dict.fromkeys(one.pair.part for one in compared.finished))
    agreeing = {part for part in parts if all(_agrees(report) for _, report in _reports(compared, part))}
    for part in sorted(parts, key=agreeing.__contains__):  # what was only made differently comes last
        causes = causes_of_step(compared, part)
        if causes:
            earlier = parts[: parts.index(part)] if part not in agreeing else []
            yield from with_earlier_step(causes, [_withdrawn(compared, step) for step in earlier])
            return


def _withdrawn(compared: Compared, part: str) -> list[Finding]:
    """Return what differs in a step without an effect in it."""
    return [
        replace(one, step=part, rank=rank)
        for rank, report in _reports(compared, part)
        for one in (report.answer.withdrawn if report.answer is not None else ())
    ]


def causes_of_step(compared: Compared, part: str) -> list[Finding]:
    """Return the causes of one step across its ranks, in the order of cause and effect."""
    return [*_causes_of_step(compared, part)]


def _causes_of_step(compared: Compared, part: str) -> Iterator[Finding]:
    reports = _reports(compared, part)
    own = dict(sorted(reversed(reports), key=itemgetter(0)))  # of a rank's files, the first, with its calls
    finders = {rank: report.finder for rank, report in own.items() if isinstance(report.finder, Suspects)}
    pasts = {rank: finder.past for rank, finder in finders.items() if finder.past is not None}
    searched = search({rank: finder.facts.ops for rank, finder in finders.items()}, pasts=pasts)
    first = [node for node in searched.first if not _agrees(own[node.rank])] if len(own) > 1 else []
    for node in first:
        answer = own[node.rank].answer
        causes = answer.causes if answer is not None else ()
        found = next((one for one in causes if node.facts.op in (one.op, *one.consequences[:1])), None)
        if found is None:
            found = _found(compared, part, node, searched.behind[node.rank])
        elif node.because.cause is Cause.DELIVERED and found.op == node.facts.op:
            # The rank's own statement does not know what other ranks sent.
            found = replace(restated(found, node.because.statement), evidence=node.because.evidence)
        yield replace(found, step=part, rank=node.rank)
    if first:
        return
    for rank, report in reports:
        causes = report.answer.causes if report.answer is not None else ()
        yield from (replace(one, step=part, rank=rank) for one in causes)


def _reports(compared: Compared, part: str) -> list[tuple[int, Report]]:
    """Return the ranks of a step, each with the report on each of its files."""
    return [
        (one.pair.rank, one.report)
        for one in compared.finished
        if one.pair.part == part and one.report is not None
    ]


def agreeing_ranks(compared: Compared, part: str) -> set[int]:
    """Return the ranks that agree by themselves in a step."""
    return {rank for rank, report in _reports(compared, part) if _agrees(report)}


def _agrees(report: Report) -> bool:
    """Return True if a rank agrees by itself: its differences are rounding, or without effect."""
    return report.answer is not None and report.answer.outcome is Outcome.AGREE


def _found(compared: Compared, part: str, node: Node, behind: Sequence[str]) -> Finding:
    """Return a cause that is none of its own rank alone, with its line of code from that rank's record."""
    pair = next(one.pair for one in compared.finished if (one.pair.part, one.pair.rank) == (part, node.rank))
    with suppress(UserError), closing(open_run(compared.manager, pair.target)) as run:
        return finding(node, Runs(compared.plan, run, run).where, behind)
    # the record is no longer there
    return finding(node, lambda _: "", behind)
