"""A recorded call as it is compared, and its name apart from its number."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from probe_core.model import Kind, Level, Pair, Slot
from probe_core.model.dtypes import is_same_dtype
from probe_core.model.single import create_batch
from probe_core.store.names import drop_count, is_forward, is_module
from probe_recording.installed import load_policy
from probe_recording.reading.columns import RunColumnsBuilder
from probe_recording.reading.leaves import FieldError, add_record
from probe_recording.values.leaves import MAX_NAMES

_DATA_NAME = re.compile(r', "data_name": ("(?:[^"\\]|\\.)*")')


class CallForm(NamedTuple):
    """Facts that follow from the name of a record.

    Attributes:
        is_forward: True for a call or module in the forward direction.
        is_module: True for the forward of a module.
        kind: Calls of the same kind may be partners: the name of an API, or a module with its path and count.
    """

    is_forward: bool
    is_module: bool
    kind: str


@lru_cache(MAX_NAMES)
def get_form(key: str) -> CallForm:
    """Return the facts that follow from the name of a record; the steps of a training repeat most names."""
    is_module_forward = is_module(key) and is_forward(key)
    return CallForm(is_forward(key), is_module_forward, key if is_module_forward else drop_count(key))


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A record of the run under test.

    Attributes:
        key: The name of the record.
        text: Its JSON, without the names of tensor files.
        parent: The record of the surrounding module; None outside of modules.
        number: Its position in the order of time.
    """

    key: str
    text: str
    parent: str | None = None
    number: int = 0

    @property
    def form(self) -> CallForm:
        """Facts that follow from the name of the record."""
        return get_form(self.key)


def drop_data_names(text: str, except_for: Collection[str | None] = ()) -> str:
    """Return the JSON of a record without the names of tensor files, except for some of them."""
    if '"data_name"' not in text:
        return text
    if not except_for:
        return _DATA_NAME.sub("", text)
    return _DATA_NAME.sub(lambda match: match[0] if json.loads(match[1]) in except_for else "", text)


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
        return all(verdicts[row].level is not Level.ERROR for row in range(len(matched)))


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
