"""The steps of a training as one timeline: what earlier steps explain of a later one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace

import numpy as np

from probe_core.errors import UserError
from probe_core.flow.opening import open_run
from probe_core.model.answers import Finding, Note, NoteKind, Outcome
from probe_core.model.report import Report
from probe_core.plugins.protocols import Compared
from probe_core.store.layout import RunPair
from probe_diagnosis.answer.findings import continued
from probe_diagnosis.answer.runs import Runs
from probe_diagnosis.answer.suspects import Suspects
from probe_diagnosis.difference.reasons import Cause
from probe_diagnosis.difference.statement import Statement
from probe_diagnosis.difference.walking import Past

WITHOUT_ORIGIN = frozenset({Cause.TAKEN_IN.value, Cause.GRADIENT.value, Cause.GROWN.value})
"""Kinds of causes that may follow from an earlier step."""

Ended = tuple[RunPair, Report, Suspects]
"""A comparison of one step and rank that has a verdict."""


def judge_in_order(compared: Compared) -> None:
    """Replace the verdicts on later steps by those that consider the steps before them.

    Parameters and the state of an optimizer carry the rounding of one step into the next. A step is judged
    again, once, if all ranks of all earlier steps agree, or differ by no more than rounding that has added
    up.
    """
    past: Past | None = None
    for ended in _by_step(compared):
        if past is not None:
            for pair, report, suspects in ended:
                _judge_again(compared, pair, report, suspects, past)
        past = _after(past, ended)
        if past is None:
            return


def with_earlier_step(causes: Sequence[Finding], withdrawn: Iterable[Sequence[Finding]]) -> list[Finding]:
    """Return the causes of a step; for a first one without an origin, what differs before.

    A difference without an effect in its own step, such as another weight of a moving average or a setting of
    an optimizer whose rate is still zero, may change the values that a later step begins with.

    Args:
        causes: The causes of the first step that diverged.
        withdrawn: What differs without an effect in each earlier step, in the order of the steps; that of the
            rank of the first cause counts.
    """
    first = causes[0]
    origin = next((one for found in withdrawn for one in found if one.rank == first.rank), None)
    if origin is None or first.reason.code not in WITHOUT_ORIGIN:
        return [*causes]
    shown = Statement(f"; in {first.step}, {first.op} {first.brief or first.reason.detail}")
    return [
        replace(
            continued(origin, shown),
            consequences=(first.op, *first.consequences),
            consequence_count=first.consequence_count + 1,
        ),
        *causes[1:],
    ]


def _by_step(compared: Compared) -> Iterator[list[Ended]]:
    """Yield the comparisons of each step, in the order of time."""
    parts = dict.fromkeys(one.pair.part for one in compared.finished)
    for part in parts:
        yield [
            (one.pair, one.report, one.report.finder)
            for one in compared.finished
            if one.pair.part == part and one.report is not None and one.report.answer is not None
            if isinstance(one.report.finder, Suspects)
        ]


def _judge_again(compared: Compared, pair: RunPair, report: Report, suspects: Suspects, past: Past) -> None:
    """Set the verdict on a step to the one that considers earlier steps, unless it agrees by itself.

    The files of the step keep the verdict on the step alone; a note says so.
    """
    alone = report.answer
    if alone is None or alone.outcome is Outcome.AGREE or suspects.past is not None:
        return
    with suppress(UserError), ExitStack() as stack:  # the record may no longer be there
        target, golden = (
            stack.enter_context(closing(open_run(compared.manager, path)))
            for path in (pair.target, pair.golden)
        )
        runs = Runs(compared.plan, target, golden)
        answer = suspects.answer_after(past, compared.manager, report, runs, pair)
        if answer.outcome is not alone.outcome:
            text = f"{pair.name} by itself, as its own files state: {alone.sentence}"
            answer = replace(answer, notes=(*answer.notes, Note(NoteKind.ROUNDING, text)))
        report.answer = answer


def _after(past: Past | None, ended: Sequence[Ended]) -> Past | None:
    """Return what a step and all before it explain; None if a rank of it diverged or was not compared."""
    outcomes = {report.answer.outcome for _, report, _ in ended if report.answer is not None}
    if not outcomes or not outcomes <= {Outcome.AGREE, Outcome.CANNOT_TELL}:
        return None
    after = past.copy() if past is not None else Past()
    for _, report, suspects in ended:
        assert report.answer is not None
        is_rounding = report.answer.outcome is Outcome.AGREE
        after.noise = max(after.noise, suspects.facts.ops.noise)
        after.worst = max(after.worst, 1.0 if is_rounding else _largest(suspects))
    return after


def _largest(suspects: Suspects) -> float:
    """Return the largest difference of a step that has a size, as a multiple of rounding."""
    multiples = suspects.facts.ops.table.times(0.0, 0.0)
    return float(multiples[np.isfinite(multiples)].max(initial=0.0))
