"""The steps of a training in order: the rounding and causes that earlier steps pass to a later step."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace

import numpy as np

from probe_core.errors import UserError
from probe_core.flow.opening import open_run
from probe_core.model.answers import Finding, Note, NoteKind, Outcome
from probe_core.model.report import Report
from probe_core.plugins.protocols import AllResults, PairResult
from probe_core.store.layout import RunPair
from probe_diagnosis.answer.causes.compared_runs import ComparedRuns
from probe_diagnosis.answer.causes.findings import extend_statement
from probe_diagnosis.answer.verdict.suspect_finder import SuspectFinder
from probe_diagnosis.difference.nodes import RankHistory
from probe_diagnosis.difference.reasons import CauseKind
from probe_diagnosis.difference.statement import Statement

ORIGINLESS_CODES = frozenset({CauseKind.RECEIVED.value, CauseKind.GRADIENT.value, CauseKind.GROWN.value})
"""Kinds of causes that may follow from an earlier step."""

_STEP = re.compile(r"step\d+")

JudgedComparison = tuple[RunPair, Report, SuspectFinder]
"""A comparison of one step and rank that has a verdict."""


def judge_in_order(compared: AllResults) -> list[PairResult]:
    """Return the comparisons, those of later steps with verdicts that consider the steps before them.

    Parameters and the state of an optimizer carry the rounding of one step into the next. A step is judged
    again, once, if all ranks of all earlier steps agree, or differ by no more than rounding that has added
    up.
    """
    finished = [*compared.finished]
    history_of_stages: dict[str, RankHistory | None] = {}
    for part in dict.fromkeys(comparison.pair.part for comparison in finished):
        stage = _STEP.sub("", part, 1)
        history = history_of_stages.get(stage)
        if stage in history_of_stages and history is None:
            continue  # an earlier step of the stage differs by more than rounding
        indices = [index for index, comparison in enumerate(finished) if comparison.pair.part == part]
        if history is not None:
            for index in indices:
                finished[index] = _judge_again(compared, finished[index], history)
        judged_comparisons = [judged for index in indices if (judged := _get_judged(finished[index]))]
        history_of_stages[stage] = _extend_history(history, judged_comparisons)
    return finished


def add_earlier_origin(causes: Sequence[Finding], withdrawn: Iterable[Sequence[Finding]]) -> list[Finding]:
    """Return the causes of a step; for a first one without an origin, what differs before.

    A difference without an effect in its own step, such as another weight of a moving average or a setting of
    an optimizer whose rate is still zero, may change the values that a later step begins with.

    Args:
        causes: The causes of the first step that diverged.
        withdrawn: What differs without an effect in each earlier step, in the order of the steps; that of the
            rank of the first cause counts.
    """
    first = causes[0]
    origin = next((cause for step_causes in withdrawn for cause in step_causes if cause.rank == first.rank), None)
    if origin is None or first.reason.code not in ORIGINLESS_CODES:
        return [*causes]
    shown = Statement(f"; in {first.step}, {first.op} {first.brief or first.reason.detail}")
    return [
        replace(
            extend_statement(origin, shown),
            consequences=(first.op, *first.consequences),
            consequence_count=first.consequence_count + 1,
        ),
        *causes[1:],
    ]


def _get_judged(comparison: PairResult) -> JudgedComparison | None:
    """Return a comparison if it has a verdict of this kit."""
    report, finder = comparison.report, comparison.finder
    is_judged = report is not None and report.answer is not None and isinstance(finder, SuspectFinder)
    return (comparison.pair, report, finder) if is_judged else None  # type: ignore[return-value]


def _judge_again(compared: AllResults, comparison: PairResult, history: RankHistory) -> PairResult:
    """Return a comparison with a verdict that considers earlier steps, unless it agrees by itself.

    The files of the step contain the verdict on the step alone, which a note states.
    """
    judged = _get_judged(comparison)
    if judged is None:
        return comparison
    pair, report, suspects = judged
    alone = report.answer
    if alone is None or alone.outcome is Outcome.AGREE or suspects.history is not None:
        return comparison
    with suppress(UserError), ExitStack() as stack:  # the record may no longer be there
        target, golden = (
            stack.enter_context(closing(open_run(compared.manager, path))) for path in (pair.target, pair.golden)
        )
        runs = ComparedRuns(compared.plan, target, golden)
        report = suspects.answer_after(history, compared.manager, report, runs, pair)
        answer = report.answer
        if answer is not None and answer.outcome is not alone.outcome:
            text = f"{pair.name} alone, as its files state: {alone.sentence}"
            report = replace(report, answer=replace(answer, notes=(*answer.notes, Note(NoteKind.ROUNDING, text))))
        return replace(comparison, report=report)
    return comparison


def _extend_history(history: RankHistory | None, ended: Sequence[JudgedComparison]) -> RankHistory | None:
    """Return what a step and all before it explain; None if a rank of it diverged or was not compared."""
    outcomes = {report.answer.outcome for _, report, _ in ended if report.answer is not None}
    if not outcomes or not outcomes <= {Outcome.AGREE, Outcome.CANNOT_TELL}:
        return None
    after = history.copy() if history is not None else RankHistory()
    for _, report, suspects in ended:
        assert report.answer is not None
        is_rounding = report.answer.outcome is Outcome.AGREE
        after.noise = max(after.noise, suspects.facts.ops.noise)
        after.largest_multiple = max(after.largest_multiple, 1.0 if is_rounding else _find_largest(suspects))
    return after


def _find_largest(suspects: SuspectFinder) -> float:
    """Return the largest difference of a step that has a size, as a multiple of rounding."""
    multiples = suspects.facts.ops.table.measure_multiples(0.0, 0.0)
    return float(multiples[np.isfinite(multiples)].max(initial=0.0))
