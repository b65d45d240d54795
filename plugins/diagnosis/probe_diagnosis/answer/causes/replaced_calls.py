"""Calls that only one run makes, within a module where both runs make such calls and whose outputs agree.

They compute the same values with other calls, such as a manual implementation of a layer or a loop in place of an
operator. The values around them were compared, so they do not reduce the coverage of the comparison.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from probe_core.model import Kind
from probe_core.model.dtypes import get_dtype_kind
from probe_core.model.run import Run
from probe_core.store.names import is_module
from probe_diagnosis.answer.causes.compared_runs import ComparedRuns
from probe_diagnosis.timeline.rank_facts import RankFacts
from probe_diagnosis.timeline.value_table import UNJUDGED_CODE

WHOLE_MODEL = "the model"
"""Stands for the model as a whole, whose loss and gradients are its outputs."""


def count_float_tensors(run: Run, ops: Iterable[str]) -> int:
    """Return the number of floating-point tensors that calls received and returned."""
    indices = (run.find(op) for op in ops)
    return sum(
        slot.value.kind is Kind.TENSOR and get_dtype_kind(slot.value.dtype) == "float"
        for index in indices
        if index is not None
        for slot in run.record(index).slots
    )


def find_uncompared_calls(facts: RankFacts) -> tuple[set[str], set[str]]:
    """Return for both runs the calls of that run only of which no tensor was compared."""
    calls, table = facts.ops, facts.ops.table
    is_compared = calls.has_any((table.lines["state"] != UNJUDGED_CODE) & table.is_tensor)
    compared = {
        key
        for number in np.flatnonzero(is_compared).tolist()
        for key in (calls.keys[number], calls.golden_ops.get(number, ""))
    }
    return set(facts.target_only) - compared, set(facts.golden_only) - compared


def find_replaced_calls(facts: RankFacts, runs: ComparedRuns, *, is_same: bool) -> tuple[set[str], set[str]]:
    """Return, for each run, its unpaired calls that were not compared and that replace calls of the other run.

    Args:
        facts: The facts about the rank.
        runs: Both runs.
        is_same: True if the loss and the gradients of parameters agree.
    """
    calls = facts.ops
    agreeing = [number for number in np.flatnonzero(calls.outputs_agree).tolist() if is_module(calls.keys[number])]
    keys = [calls.keys[number] for number in agreeing]
    goldens = [calls.golden_ops.get(number, key) for number, key in zip(agreeing, keys)]
    names = dict(zip(keys, keys)), dict(zip(goldens, keys))
    groups: dict[str, tuple[set[str], set[str]]] = {}
    left = find_uncompared_calls(facts)
    for side, alone in enumerate((facts.target_only, facts.golden_only)):
        for key in alone:
            around = (names[side][module] for module in runs.list_modules(key, side) if module in names[side])
            module_or_model = next(around, WHOLE_MODEL if is_same else "")
            if module_or_model:
                groups.setdefault(module_or_model, (set(), set()))[side].add(key)
    replaced_calls: tuple[set[str], set[str]] = set(), set()
    for pair in groups.values():
        if all(pair):
            for side in (0, 1):
                replaced_calls[side].update(pair[side] & left[side])
    return replaced_calls
