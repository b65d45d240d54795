"""Further passes over the runs of a comparison, whose rows are read by a finder of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from probe_core.errors import UserError
from probe_core.model import Op, Row
from probe_core.model.plan import Plan
from probe_core.plugins.protocols import Opened
from probe_core.store.names import without_count
from probe_diagnosis.answer.kept import RankFacts
from probe_diagnosis.difference.facts import is_module


class Collector(Protocol):
    """A finder that collects facts from rows."""

    facts: RankFacts

    def add(self, op: Op, rows: Sequence[Row], lines: Sequence[str]) -> None:
        """Take in the rows of one op; ``lines`` are their places in the table, empty without one."""


ALIGN, FUZZY = "align", "fuzzy"
"""Names of the matchers that pair calls by what they do, and in their order."""


def plain_plan(plan: Plan) -> Plan:
    """Return the plan of a further pass: without tables, answers and additional metrics."""
    return replace(plan, metrics=(), formats=(), answers=(), highlight=False, baseline=None)


def is_out_of_step(opened: Opened) -> bool:
    """Return True if calls are paired in their order (``-f``), and one run makes some of them more often."""
    if opened.plan.matcher != FUZZY or opened.plan.mapping is not None or opened.is_debug:
        return False
    target, golden = (
        Counter(without_count(name) for name in run.names() if not is_module(name))
        for run in (opened.target, opened.golden)
    )
    return any(target[name] != golden[name] for name in target.keys() & golden.keys())


def aligned(opened: Opened, rank: int, finder: Collector) -> RankFacts | None:
    """Return the facts about a comparison whose calls are aligned; None if none can be.

    Args:
        opened: The comparison by numbers.
        rank: The number of the rank.
        finder: A new finder, which reads the rows.
    """
    plan = replace(plain_plan(opened.plan), matcher=ALIGN)
    try:
        return seen(opened.again(plan, opened.target.path, opened.golden.path, rank), finder)
    except UserError:  # nothing lines up, or no such matcher is installed
        return None


def seen(
    ops: Iterator[tuple[Op, list[Row]]],
    finder: Collector,
    also: Callable[[Op, Sequence[Row]], None] | None = None,
) -> RankFacts:
    """Return the facts about the rows of a further pass.

    Args:
        ops: The ops with their rows.
        finder: A new finder, which reads them.
        also: A function that is called with them as well.
    """
    for op, rows in ops:
        finder.add(op, rows, [""] * len(rows))
        if also is not None:
            also(op, rows)
    return finder.facts
