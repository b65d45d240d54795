"""The rule by which two records agree: equal checksums, or statistics that differ by no more than rounding."""

from __future__ import annotations

import json
from typing import Any

from probe_core.model import Kind, Level, Pair, Slot
from probe_core.model.dtypes import is_same_dtype
from probe_core.model.single import create_batch
from probe_recording.installed import load_policy
from probe_recording.reading.columns import RunColumnsBuilder
from probe_recording.reading.leaves import FieldError, add_record

POLICY = "first_difference"
"""The policy that decides whether two values differ by more than rounding, as in the verdict of a comparison."""


class Agreement:
    """The comparison of two records.

    Raises:
        UserError: No installed plugin provides the policy.
    """

    def __init__(self) -> None:
        self._policy: Any = load_policy(POLICY)

    def is_met(self, key: str, target_text: str, golden_text: str) -> bool:
        """Return True if two records agree.

        Args:
            key: The name of the record.
            target_text: The JSON of the record in the run under test.
            golden_text: The JSON of the record in the golden.
        """
        if target_text == golden_text:
            return True
        target, golden = json.loads(target_text), json.loads(golden_text)
        if target == golden:
            return True
        try:
            pairs = _pair_slots(_list_slots(key, target), _list_slots(key, golden))
        except FieldError:
            return False
        if any(not pair.matched and _is_tensor(pair.target or pair.golden) for pair in pairs):
            return False
        if any(map(_have_other_dtypes, pairs)):
            return False
        matched = [pair for pair in pairs if pair.matched]
        verdicts = self._policy.judge_batch(create_batch(matched))
        return all(verdicts[line].level is not Level.ERROR for line in range(len(matched)))


def _list_slots(key: str, fields: Any) -> tuple[Slot, ...]:
    columns = RunColumnsBuilder()
    add_record(columns, key, fields)
    return columns.finish().record(0).slots


def _pair_slots(targets: tuple[Slot, ...], goldens: tuple[Slot, ...]) -> list[Pair]:
    """Pair values by their place in the call."""
    golden_by_place = {(slot.side, slot.path): slot for slot in goldens}
    pairs = [Pair(slot, golden_by_place.pop((slot.side, slot.path), None)) for slot in targets]
    return [*pairs, *(Pair(None, slot) for slot in golden_by_place.values())]


def _have_other_dtypes(pair: Pair) -> bool:
    """Return True for two tensors of different dtypes, which the policy compares by the coarser one."""
    target, golden = pair.target, pair.golden
    if target is None or golden is None or not (_is_tensor(target) and _is_tensor(golden)):
        return False
    return not is_same_dtype(target.value.dtype, golden.value.dtype)


def _is_tensor(slot: Slot | None) -> bool:
    return slot is not None and slot.value.kind is Kind.TENSOR
