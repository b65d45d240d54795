"""Expressions that the runs compute with other calls and with the same result.

The calls of such an expression form a block: calls that one run makes, and calls of both runs that compute with the
values of these. Only what enters a block and what leaves it is comparable, so differences within a block are withdrawn.
A block whose result differs is a fault and keeps its differences (docs/diagnosis.md#rewritten-blocks).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite

import numpy as np

from probe_core.store.names import is_backward, is_gradient, is_module
from probe_diagnosis.answer.causes.compared_runs import ComparedRuns
from probe_diagnosis.answer.causes.producers import find_producer, is_received
from probe_diagnosis.answer.causes.unpaired_calls import rename_row
from probe_diagnosis.difference.search import search
from probe_diagnosis.limits import limits
from probe_diagnosis.timeline.compared_calls import Basis
from probe_diagnosis.timeline.order import OPTIMIZER, is_arranging
from probe_diagnosis.timeline.rank_facts import RankFacts
from probe_diagnosis.timeline.value_table import (
    DIFFERS_CODE,
    REQUIRES_OTHER_GRADIENT,
    UNJUDGED_CODE,
    measure_multiples,
)


@dataclass(slots=True, eq=False)
class _Block:
    """The calls of both runs within a block, by their numbers.

    Attributes:
        inner: Calls that receive and return other values.
        closing: Calls that receive other values and return the same values.
        lines: The lines of the table that differ.
        is_open: True if the search ended within the block.
    """

    inner: set[int] = field(default_factory=set)
    closing: set[int] = field(default_factory=set)
    lines: list[int] = field(default_factory=list)
    is_open: bool = False


def withdraw_rewritten_blocks(facts: RankFacts, runs: ComparedRuns) -> None:
    """Withdraw the differences within rewritten blocks from the facts, unless the backward pass shows an effect."""
    lines = _BlockSearch(facts, runs).list_lines() if facts.target_only or facts.golden_only else []
    if not lines:
        return
    table = facts.ops.table
    saved_lines = table.lines[lines]
    table.lines["state"][lines] = UNJUDGED_CODE
    table.lines["flags"][lines] &= 0xFF ^ REQUIRES_OTHER_GRADIENT
    facts.ops.clear_caches()
    first = next(iter(search({facts.rank: facts.ops}).first), None)
    if first is not None and (is_backward(first.call.op) or is_gradient(first.call.op)):
        table.lines[lines] = saved_lines
        facts.ops.clear_caches()
        return
    is_counted = saved_lines["state"] == DIFFERS_CODE
    facts.tally.withdraw(saved_lines[is_counted], facts.ops.name_line(lines[int(is_counted.argmax())]))


class _BlockSearch:
    """The search for blocks, in the order of the effects of the forward calls.

    It ends at the first large difference that is not within a block, because later differences may follow from it.

    Args:
        facts: The facts about the rank.
        runs: Both runs.
    """

    def __init__(self, facts: RankFacts, runs: ComparedRuns) -> None:
        self._calls, self._runs = facts.ops, runs
        self._unpaired = facts.target_only, facts.golden_only
        self._partners = {key: facts.ops.golden_ops.get(number, key) for number, key in enumerate(facts.ops.keys)}
        table = self._calls.table
        lines, self._is_source, self._is_tensor = table.lines, table.is_source, table.is_tensor
        self._multiples = np.where(lines["state"] == DIFFERS_CODE, measure_multiples(lines, lines["scale"], 0.0), 0.0)
        self._level = 0.0
        self._blocks: list[_Block] = []

    def list_lines(self) -> list[int]:
        """Return the lines of the table that closed blocks withdraw."""
        calls, fields, is_source = self._calls, self._calls.table.lines, self._is_source
        differs = calls.find_largest(self._multiples) > 0
        for number in calls.effect_order if differs.any() else ():
            is_of_backward_pass = calls.is_backward[number] or calls.is_gradient[number]
            is_forward = not (is_of_backward_pass or OPTIMIZER in calls.modules[number])
            if differs[number] and is_forward and not self._enter_call(number):
                break
        lines: set[int] = set()
        for block in filter(self._is_closed, self._blocks):
            for number in block.inner | block.closing:
                backward = calls.numbers_by_key.get(calls.keys[number].replace(".forward", ".backward"))
                backward_lines = () if backward is None else calls.get_lines(backward)
                is_inner = number in block.inner
                lines.update(line for line in calls.get_lines(number) if is_inner or is_source[line])
                lines.update(line for line in backward_lines if is_inner or not is_source[line])
        is_withdrawn = (fields["state"] == DIFFERS_CODE) | (fields["flags"] & REQUIRES_OTHER_GRADIENT > 0)
        return [line for line in sorted(lines) if is_withdrawn[line]]

    def _enter_call(self, number: int) -> bool:
        """Add a call to the blocks; return False at a large difference that is not within a block."""
        table, calls = self._calls.table, self._calls
        limit = [max(1.0, jump * self._level) for jump in table.lines["jump"][calls.get_lines(number)].tolist()]
        multiples = self._multiples[calls.get_lines(number)].tolist()
        differing = [line for line, multiple, most in zip(calls.get_lines(number), multiples, limit) if multiple > most]
        received = [line for line in differing if self._is_source[line] and self._is_tensor[line]]
        returned = [line for line in differing if not self._is_source[line]]
        block = self._find_block(number, received) if differing else None
        if block is None:
            self._level = max([self._level, *filter(isfinite, multiples)])
            is_large = any(multiple >= limits().min_vanishing_multiple for multiple in multiples)
            if is_large and not all(any(self._find_producers(number, line)) for line in received):
                self._blocks.clear()  # a call that is not recorded may have received the values of a block
            return not is_large
        (block.inner if returned else block.closing).add(number)
        block.lines += differing
        block.is_open = len(block.inner) > limits().max_rewritten_calls
        return not block.is_open

    def _find_block(self, number: int, received: Sequence[int]) -> _Block | None:
        """Return the block that all values come from which a call receives and which differ; None if there is none."""
        key = self._calls.keys[number]
        if not received:
            inner = (block for block in self._blocks if any(key in self._calls.modules[n] for n in block.inner))
            return next(inner, None) if is_module(key) else None
        blocks: list[_Block] = []
        for line in received:
            producers = self._find_producers(number, line)
            if any(map(is_backward, producers)):
                return None
            sources = [
                block for block in self._blocks if self._calls.numbers_by_key.get(producers[0], -1) in block.inner
            ]
            is_other = producers[0] in self._unpaired[0] or producers[1] in self._unpaired[1]
            is_crossed = all(producers) and self._partners.get(producers[0]) != producers[1]
            if not (sources or is_other or is_crossed):
                return None
            blocks += sources
        merged = blocks[0] if blocks else _Block()
        for block in blocks[1:]:
            merged.inner |= block.inner
            merged.closing |= block.closing
            merged.lines += block.lines
        self._blocks = [block for block in self._blocks if block not in blocks] + [merged]
        return merged

    def _find_producers(self, number: int, line: int) -> tuple[str, str]:
        """Return the calls that returned a value which a call receives, of the target and of the golden."""
        key = self._calls.keys[number]
        row, golden = self._calls.table.get_row_name(line, key), self._partners[key]
        target_run, golden_run = self._runs.both
        return find_producer(target_run, key, row), find_producer(golden_run, golden, rename_row(row, key, golden))

    def _is_closed(self, block: _Block) -> bool:
        """Return True if no value that differs leaves a block."""
        if block.is_open or not self._can_show_gone(block):
            return False
        return all(
            is_received(run, key)
            for number in block.inner
            if not any(self._calls.keys[number] in self._calls.modules[inner] for inner in block.inner)
            for run, key in zip(self._runs.both, (self._calls.keys[number], self._partners[self._calls.keys[number]]))
        )

    def _can_show_gone(self, block: _Block) -> bool:
        """Return True if the results of a block show that it has no effect.

        Equal statistics of a result do not show that its values are equal. Equal statistics of later calls show it if
        the block contains entirely different values.
        """
        calls = self._calls
        if (calls.table.lines["basis"][block.lines] != Basis.STATISTICS).all():
            return True
        last = max(block.inner | block.closing)
        agreeing = (calls.keys[number] for number in np.flatnonzero(calls.outputs_agree).tolist() if number > last)
        confirming = sum(not (is_module(key) or is_arranging(key)) for key in agreeing)
        return (
            self._multiples[block.lines].max() >= limits().min_vanishing_multiple
            and confirming >= limits().min_confirming_calls
        )
