"""Calls of one run without a partner in the other run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence

from probe_core.model.run import Run
from probe_core.store.names import get_api_name, is_module
from probe_diagnosis.answer.causes.compared_runs import ComparedRuns
from probe_diagnosis.answer.causes.findings import strip_numbers
from probe_diagnosis.answer.causes.producers import returns_its_inputs
from probe_diagnosis.answer.causes.traced_call import GOLDEN, TARGET
from probe_diagnosis.timeline.compared_calls import ComparedCall


def get_key(facts: ComparedCall, side: int) -> str:
    """Return the key of an op in one of the runs."""
    return facts.golden_op or facts.op if side == GOLDEN else facts.op


def rename_row(row: str, op: str, other_op: str) -> str:
    """Return the name of a row of ``op`` in the record of ``other_op``."""
    return other_op + row.removeprefix(op)


def select_surplus_calls(calls: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return for each side the calls that exceed the other side's number of calls of the same API."""
    counts = [Counter(map(get_api_name, keys)) for keys in calls]
    surplus_calls: list[list[str]] = [[], []]
    for side in (TARGET, GOLDEN):
        surplus = counts[side] - counts[1 - side]
        for key in calls[side]:
            if surplus[get_api_name(key)] > 0:
                surplus[get_api_name(key)] -= 1
                surplus_calls[side].append(key)
    return surplus_calls


def list_preceding_calls(run: Run, index: int | None, unpaired_keys: Container[str]) -> list[str]:
    """Return, in order, the unpaired calls of a run that directly precede a record.

    A call that returns the tensors that it received changes no values, and is left out.
    """
    names = run.names()
    calls: list[str] = []
    while index is not None and index > 0:
        index -= 1
        if names[index] in unpaired_keys:
            calls.append(names[index])
        elif not is_module(names[index]):
            break
    calls = [key for key in reversed(calls) if not returns_its_inputs(run, key)]
    return [key for key in calls if not is_module(key)] or calls


def list_neighbors(run: Run, op: str, unpaired_keys: Container[str]) -> list[str]:
    """Return, in order, the consecutive unpaired calls that surround an unpaired call."""
    names, index = run.names(), run.find(op)
    if index is None:
        return []
    first = last = index
    while first > 0 and names[first - 1] in unpaired_keys:
        first -= 1
    while last + 1 < len(names) and names[last + 1] in unpaired_keys:
        last += 1
    return [key for key in names[first : last + 1] if not is_module(key)]


def has_unequal_call_counts(runs: ComparedRuns, op: str, side: int) -> bool:
    """Return True if the runs call the API of an op a different number of times in the surrounding module."""
    module = runs.list_modules(op, side)[:1]
    counts = [
        sum(
            strip_numbers(key) == strip_numbers(op) and runs.list_modules(key, run_index)[:1] == module
            for key in run.names()
        )
        for run_index, run in enumerate(runs.both)
    ]
    return counts[TARGET] != counts[GOLDEN]
