"""Further passes over the runs of a comparison, with other pairs of calls or another run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

from probe_core.errors import UserError
from probe_core.model import Kind, Side
from probe_core.model.batches import RowBatch
from probe_core.model.plan import Plan
from probe_core.model.run import Run
from probe_core.plugins.protocols import Opened
from probe_core.store.names import without_count
from probe_diagnosis.timeline.rank_facts import RankFacts
from probe_diagnosis.timeline.value_table import ValueTable
from probe_diagnosis.timeline.views import is_module

ALIGN, FUZZY = "align", "fuzzy"
"""Names of the matchers that pair calls by what they do, and in their order."""


def plain_plan(plan: Plan) -> Plan:
    """Return the plan of a further pass: without tables, answers and additional metrics."""
    return replace(plan, metrics=(), formats=(), answers=(), highlight=False, baseline=None, reference=None)


def is_out_of_step(opened: Opened) -> bool:
    """Return True if calls are paired in their order (``-f``), and one run makes some of them more often."""
    if opened.plan.matcher != FUZZY or opened.plan.mapping is not None or opened.is_debug:
        return False
    target, golden = (
        Counter(without_count(name) for name in run.names() if not is_module(name))
        for run in (opened.target, opened.golden)
    )
    return any(target[name] != golden[name] for name in target.keys() & golden.keys())


def is_displaced(opened: Opened, op: str) -> bool:
    """Return True if a call that is paired by its number may be paired with another one.

    The runs disagree on the calls that come before it or on the module around it, or another call of the
    golden receives what it receives.
    """
    if opened.plan.matcher not in (None, "exact") or opened.plan.mapping is not None or opened.is_debug:
        return False
    places = [run.find(op) for run in (opened.target, opened.golden)]
    if None in places:
        return False
    runs = opened.target, opened.golden
    around = [[_path_of(module) for module in run.construct.ancestors(op)] for run in runs]
    if around[0] != around[1] or _is_received_elsewhere(runs[0], runs[1], op):
        return True
    before = [_calls_before(run, place) for run, place in zip(runs, places)]
    return any(
        (elsewhere := runs[1 - side].find(key)) is not None and elsewhere > (places[1 - side] or 0)
        for side in (0, 1)
        for key in before[side]
    )


def _path_of(module: str) -> str:
    """Return the path of a module without its class, which is another one where a program was rewritten."""
    return without_count(module).rsplit(".", 2)[0]


def _is_received_elsewhere(target: Run, golden: Run, op: str) -> bool:
    """Return True if a call receives other tensors than its partner, and another call of the API these."""
    own, partner = _received(target, op), _received(golden, op)
    if not own or own == partner:
        return False
    name = without_count(op)
    others = (key for key in golden.names() if key != op and without_count(key) == name)
    return any(_received(golden, key) == own for key in others)


def _received(run: Run, op: str) -> list[object]:
    """Return shape and statistics of the tensors that a call receives."""
    number = run.find(op)
    slots = () if number is None else run.record(number).slots
    return [
        (slot.path, slot.value.extent, slot.value.statistics)
        for slot in slots
        if slot.side is Side.INPUT and slot.value.kind is Kind.TENSOR
    ]


def _calls_before(run: Run, place: int | None) -> list[str]:
    """Return the names of the calls before a place, without modules, which may be recorded late."""
    return [name for name in run.names()[:place] if not is_module(name)]


def align(opened: Opened, rank: int) -> RankFacts | None:
    """Return the facts about a comparison whose calls are aligned; None if none can be."""
    plan = replace(plain_plan(opened.plan), matcher=ALIGN)
    try:
        return facts_of(opened.again(plan, opened.target.path, opened.golden.path, rank))
    except UserError:  # nothing lines up, or no such matcher is installed
        return None


def without_process_start(opened: Opened, rank: int) -> RankFacts | None:
    """Return the facts about the first step of a resumed run without what precedes its first model call.

    A process that resumes constructs the model, the optimizer and the data, and loads a checkpoint, which no
    step of an uninterrupted run does. The phases of the step and the conditions show what came of it.

    Returns:
        None if no call precedes the first model call, or if it is not known which one that is.
    """
    construct = opened.target.construct
    start: list[str] = []
    for name in opened.target.names():
        if is_module(name) or construct.ancestors(name):
            plan, paths = plain_plan(opened.plan), (opened.target.path, opened.golden.path)
            facts = RankFacts(start=frozenset(start))
            return add_batches(facts, opened.again(plan, *paths, rank)) if start else None
        start.append(name)
    return None


def facts_of(
    batches: Iterable[RowBatch], look: Callable[[RowBatch, ValueTable], None] | None = None
) -> RankFacts:
    """Return the facts about the batches of a further pass.

    Args:
        batches: The batches.
        look: A function that is called with each batch and the differences of its rows.
    """
    return add_batches(RankFacts(), batches, look)


def add_batches(
    facts: RankFacts,
    batches: Iterable[RowBatch],
    look: Callable[[RowBatch, ValueTable], None] | None = None,
) -> RankFacts:
    """Add batches to facts, and return these; see ``facts_of``."""
    for batch in batches:
        table = facts.add(batch)
        if look is not None:
            look(batch, table)
    return facts
