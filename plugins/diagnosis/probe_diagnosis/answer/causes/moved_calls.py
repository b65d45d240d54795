"""Calls that both runs make in a different order, such as an update before instead of after an optimizer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from probe_core.model import Kind, Reason, Side, Value
from probe_core.model.answers import Finding
from probe_core.store.names import is_backward, is_module
from probe_diagnosis.answer.causes.compared_runs import ComparedRuns
from probe_diagnosis.answer.causes.findings import strip_numbers
from probe_diagnosis.difference.reasons import CauseKind
from probe_diagnosis.difference.statement import Statement
from probe_diagnosis.timeline.order import OPTIMIZER
from probe_diagnosis.timeline.rank_facts import RankFacts


def find_moved_call(facts: RankFacts, runs: ComparedRuns) -> Finding | None:
    """Return the first call that the golden makes before or after other calls, and with other values; None for none.

    Args:
        facts: The facts about an aligned comparison, in which such calls have no partner.
        runs: Both runs.
    """
    for op, golden in pair_moved_calls(facts):
        difference = find_differing_place(runs, (op, golden), facts.ops.noise)
        anchor, is_before = _find_anchor(facts, runs, op, golden)
        if difference and anchor:
            first, second = ("before", "after") if is_before else ("after", "before")
            clause = (
                f"is called {first} {anchor} in the target and {second} it in the golden, "
                "where the call receives other values"
            )
            statement = Statement(clause, "", difference)
            evidence = {"golden_op": golden, "anchor": anchor}
            return Finding(
                op, "", Reason(CauseKind.ORDER.value, statement.text), evidence, "", runs.list_modules(op),
                runs.find_line(op), rank=facts.rank, brief=statement.brief,
            )  # fmt: skip
    return None


def can_precede(moved: Finding, keys: tuple[str, str], runs: ComparedRuns) -> bool:
    """Return True if a run makes a moved call before another call, given by its keys in both runs."""
    for run, moved_key, key in zip(runs.both, (moved.op, str(moved.evidence["golden_op"])), keys):
        moved_index, index = run.find(moved_key), run.find(key)
        if moved_index is None or index is None or moved_index <= index:
            return True
    return False


def has_effect_before_optimizer(moved: Finding, runs: ComparedRuns) -> bool:
    """Return True if a moved call affects the rest only through the loss and the gradients of the step.

    Both runs make the call before a backward pass and before the first step of an optimizer.
    """
    for side, key in enumerate((moved.op, str(moved.evidence["golden_op"]))):
        names, index = runs.both[side].names(), runs.both[side].find(key)
        if index is None or not any(map(is_backward, names[index + 1 :])):
            return False
        if any(OPTIMIZER in runs.list_modules(name, side) for name in names[:index]):
            return False
    return True


def pair_moved_calls(facts: RankFacts) -> Iterator[tuple[str, str]]:
    """Yield the calls of the target without a partner and those of the golden that they correspond to."""
    sides = [_group_by_kind(keys) for keys in (facts.target_only, facts.golden_only)]
    partners = {
        key: partner
        for kind, keys in sides[0].items()
        if len(keys) == len(sides[1].get(kind, ()))
        for key, partner in zip(keys, sides[1][kind])
    }
    yield from ((key, partners[key]) for key in facts.target_only if key in partners)


def _group_by_kind(keys: Iterable[str]) -> dict[str, list[str]]:
    kinds: dict[str, list[str]] = {}
    for key in keys:
        if not is_module(key):
            kinds.setdefault(strip_numbers(key), []).append(key)
    return kinds


def _find_anchor(facts: RankFacts, runs: ComparedRuns, op: str, golden: str) -> tuple[str, bool]:
    """Return the nearest call that comes on the other side of a call in the golden.

    Args:
        facts: The facts about an aligned comparison.
        runs: Both runs.
        op: The call of the target.
        golden: The corresponding call of the golden.

    Returns:
        The name of the nearest call in the target, empty for none, and True if ``op`` comes before it there.
    """
    calls, names = facts.ops, runs.both[0].names()
    index, golden_index = runs.both[0].find(op), runs.both[1].find(golden)
    if index is None or golden_index is None:
        return "", False
    for is_before, keys in ((True, names[index + 1 :]), (False, names[:index][::-1])):
        for key in keys:
            number = calls.numbers_by_key.get(key)
            if number is None or key in facts.target_only or is_module(key):
                continue
            partner = runs.both[1].find(calls.golden_ops.get(number, key))
            if partner is not None and (partner < golden_index) is is_before:
                return key, is_before
    return "", False


def find_differing_place(runs: ComparedRuns, keys: tuple[str, str], noise: float, *, among_inputs: bool = False) -> str:
    """Return the path of the first value that differs beyond rounding between two calls; empty for none."""
    records: list[dict[tuple[Side, str], Value]] = []
    for run, key in zip(runs.both, keys):
        number = run.find(key)
        slots = () if number is None else run.record(number).slots
        records.append({slot.place: slot.value for slot in slots if slot.side.is_source or not among_inputs})
    for slot_path, value in records[0].items():
        golden_value = records[1].get(slot_path)
        if golden_value is not None and _is_different(value, golden_value, noise):
            side, path = slot_path
            return f"{side.value}.{path}"
    return ""


def _is_different(target: Value, golden: Value, noise: float) -> bool:
    """Return True if the statistics of two tensors differ by more than rounding."""
    if not target.kind is golden.kind is Kind.TENSOR:
        return False
    pairs = [(a, b) for a, b in zip(target.statistics, golden.statistics) if type(a) is type(b) is float]
    scale = max((abs(b) for _, b in pairs), default=0.0)
    return target.shape != golden.shape or any(abs(a - b) > noise * scale for a, b in pairs)
