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
from probe_core.plugins.protocols import Comparer, OpenComparison
from probe_core.store.names import drop_count, get_api_name, is_module
from probe_diagnosis.timeline.rank_facts import RankFacts
from probe_diagnosis.timeline.value_table import ValueTable

ALIGN, FUZZY = "align", "fuzzy"
"""Names of the matchers that pair calls by their arguments and values, and by their order."""


def simplify_plan(plan: Plan) -> Plan:
    """Return the plan of a further pass: without tables, answers and additional metrics."""
    plan = plan.with_options(baseline=None, reference=None, highlight=False)
    return replace(plan, metrics=(), formats=(), answers=())


def has_row_mapping(plan: Plan) -> bool:
    """Return True if the user pairs rows by a file (``-dm``)."""
    return plan.options.get("mapping") is not None


def is_out_of_step(opened: OpenComparison) -> bool:
    """Return True if calls are paired in their order (``-f``), and one run makes some of them more often."""
    if opened.plan.matcher != FUZZY or has_row_mapping(opened.plan) or opened.is_debug:
        return False
    target, golden = (
        Counter(drop_count(name) for name in run.names() if not is_module(name))
        for run in (opened.target, opened.golden)
    )
    return any(target[name] != golden[name] for name in target.keys() & golden.keys())


def is_displaced(opened: OpenComparison, op: str) -> bool:
    """Return True if a call that is paired by its number may be paired with another one.

    The runs disagree on the calls that come before it or on the module around it, or another call of the
    golden receives what it receives.
    """
    if opened.plan.matcher not in (None, "exact") or has_row_mapping(opened.plan) or opened.is_debug:
        return False
    indices = [run.find(op) for run in (opened.target, opened.golden)]
    if None in indices:
        return False
    runs = opened.target, opened.golden
    around = [[_get_module_path(module) for module in run.construct.ancestors(op)] for run in runs]
    if around[0] != around[1] or _is_received_elsewhere(runs[0], runs[1], op):
        return True
    before = [_list_calls_before(run, index) for run, index in zip(runs, indices)]
    return any(
        (elsewhere := runs[1 - side].find(key)) is not None and elsewhere > (indices[1 - side] or 0)
        for side in (0, 1)
        for key in before[side]
    )


def _get_module_path(module: str) -> str:
    """Return the path of a module without its class, which differs if a program was rewritten."""
    return drop_count(module).rsplit(".", 2)[0]


def _is_received_elsewhere(target: Run, golden: Run, op: str) -> bool:
    """Return True if a call receives the tensors of another call of the golden, and not those of its partner."""
    target_inputs, golden_inputs = _describe_input_tensors(target, op), _describe_input_tensors(golden, op)
    if not target_inputs or target_inputs == golden_inputs:
        return False
    api, name = get_api_name(op), drop_count(op)
    others = (key for key in golden.names() if key != op and get_api_name(key) == api and drop_count(key) == name)
    return any(_describe_input_tensors(golden, key) == target_inputs for key in others)


def _describe_input_tensors(run: Run, op: str) -> list[object]:
    """Return shape and statistics of the tensors that a call receives."""
    number = run.find(op)
    slots = () if number is None else run.record(number).slots
    return [
        (slot.path, slot.value.extent, slot.value.statistics)
        for slot in slots
        if slot.side is Side.INPUT and slot.value.kind is Kind.TENSOR
    ]


def _list_calls_before(run: Run, index: int | None) -> list[str]:
    """Return the names of the calls before an index, without modules, which may be recorded late."""
    return [name for name in run.names()[:index] if not is_module(name)]


def compare_aligned(opened: OpenComparison, rank: int, compare: Comparer) -> RankFacts | None:
    """Return the facts about a comparison whose calls are aligned; None if none can be."""
    plan = replace(simplify_plan(opened.plan), matcher=ALIGN)
    try:
        return collect_facts(compare(plan, opened.target.path, opened.golden.path, rank))
    except UserError:  # nothing lines up, or no such matcher is installed
        return None


def compare_without_process_start(opened: OpenComparison, rank: int, compare: Comparer) -> RankFacts | None:
    """Return the facts about the first step of a resumed run without what precedes its first model call.

    A process that resumes constructs the model, the optimizer and the data, and loads a checkpoint, which no
    step of an uninterrupted run does. The phases of the step and the conditions show the result.

    Returns:
        None if no call precedes the first model call, or if it is not known which one that is.
    """
    construct = opened.target.construct
    start: list[str] = []
    for name in opened.target.names():
        if is_module(name) or construct.ancestors(name):
            plan, paths = simplify_plan(opened.plan), (opened.target.path, opened.golden.path)
            facts = RankFacts(start=frozenset(start))
            return add_batches(facts, compare(plan, *paths, rank)) if start else None
        start.append(name)
    return None


def collect_facts(
    batches: Iterable[RowBatch], observer: Callable[[RowBatch, ValueTable], None] | None = None
) -> RankFacts:
    """Return the facts about the batches of a further pass.

    Args:
        batches: The batches.
        observer: A function that is called with each batch and the differences of its rows.
    """
    return add_batches(RankFacts(), batches, observer)


def add_batches(
    facts: RankFacts,
    batches: Iterable[RowBatch],
    observer: Callable[[RowBatch, ValueTable], None] | None = None,
) -> RankFacts:
    """Add batches to facts, and return these; see ``collect_facts``."""
    for batch in batches:
        table = facts.add(batch)
        if observer is not None:
            observer(batch, table)
    return facts
