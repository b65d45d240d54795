"""A judge for uninitialized memory: outputs of ``empty``, buffers to receive into, overwritten arguments.

Such values differ from run to run without meaning anything. A value counts as uninitialized if

* an API returns it that only allocates memory, such as ``empty``,
* an API overwrites it without reading it, such as the first argument of ``copy_``, or
* the same pair of values was uninitialized before, and passed through APIs that had no other input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from probe_core.files.packaged import load_yaml
from probe_core.model import (
    SEVERITIES,
    Kind,
    Level,
    Op,
    Pair,
    Reason,
    Record,
    Row,
    Ruling,
    Side,
    Slot,
    Value,
    Verdict,
)
from probe_core.model.batches import RowBatch
from probe_core.model.columns import Array
from probe_core.store.names import get_api_name
from probe_diagnosis.collectives.calls import Flow, find_api, is_buffer, parse_call
from probe_diagnosis.judges.batch_judge import judge_each

NOT_COMPUTED = Reason("evidence", "uninitialized memory, or overwritten before it is read")
"""Evidence in the verdict of a value that was not computed."""

MAX_REMEMBERED_PAIRS = 4096
"""Largest number of uninitialized pairs that are remembered; the oldest is forgotten first."""


@cache
def _load_sections() -> dict[str, Any]:
    sections: dict[str, Any] = load_yaml(__package__, "uninitialized.yaml")
    return sections


@cache
def _load_apis() -> dict[str, frozenset[str]]:
    """Return the sections of ``uninitialized.yaml``: names of APIs by what they do to memory.

    ``all`` contains all names that may be those of calls with uninitialized values.
    """
    apis = {section: frozenset(names) for section, names in _load_sections().items()}
    names = apis["creates"] | apis["overwrites"] | apis["overwrites_a_part"] | apis["fills_a_part"]
    return apis | {"all": names}


def _find_partly_filled(name: str) -> tuple[str, str]:
    """Return the paths of the argument and the output that an API fills only in part; empty for none."""
    positions = _load_sections()["fills_a_part"].get(name)
    return (str(positions[0]), str(positions[1])) if positions else ("", "")


def find_uninitialized_slots(record: Record, rank: int) -> frozenset[int]:
    """Return the places of uninitialized and overwritten values among the slots of one record.

    Uninitialized memory that passed through earlier calls is not recognized.
    """
    unmeasured = Verdict(Level.SKIP, "")
    rows = [Row(Pair(slot, None), record.key, {}, unmeasured) for slot in record.slots]
    return UninitializedJudge().find_uninitialized(record.key, rows, rank)


class UninitializedJudge:
    """Judge that skips uninitialized values.

    Ops must be judged in the order of the run, because uninitialized values are recognized when a later call
    takes them in. The numbers and labels of a skipped row stay in the table.
    """

    def __init__(self) -> None:
        self._rank = 0
        self._known: dict[Any, None] = {}

    def judge_batch(self, batch: RowBatch) -> Mapping[int, Ruling]:
        """Return a ruling that skips the row, for each uninitialized value."""
        is_doubtful = np.zeros(len(batch), bool)  # values that agree need no excuse
        for verdicts in (batch.verdicts, *batch.results.further.values()):
            is_doubtful |= verdicts.levels != SEVERITIES[Level.PASS]
        with_keyword = {*batch.find_ops(_are_keywords(batch))}
        doubtful = batch.find_ops(is_doubtful)
        ops = (op for op in doubtful if op in with_keyword or self._may_hold_any(batch.ops[op]))
        return judge_each(self.judge, batch, ops)

    def judge(self, op: Op, rows: Sequence[Row]) -> Mapping[int, Ruling]:
        """Return a ruling that skips the row, for each uninitialized value of an op."""
        further = Verdict(Level.SKIP, "", (NOT_COMPUTED,))
        rulings: dict[int, Ruling] = {}
        for place in self.find_uninitialized(op.key, rows, op.rank):
            skipped = rows[place].verdict._replace(level=Level.SKIP, failed=False, drift=None)
            rulings[place] = Ruling(skipped, NOT_COMPUTED, further)
        return rulings

    def find_uninitialized(self, op: str, rows: Sequence[Row], rank: int = 0) -> frozenset[int]:
        """Return the positions in ``rows`` of uninitialized values.

        Args:
            op: The key of the op.
            rows: Its rows.
            rank: The rank that ran the op; a broadcast overwrites the buffers of all ranks but its root.
        """
        self._rank = rank
        name = _get_api_name(op)
        apis = _load_apis()
        if not (self._may_hold_any(op) or any(_is_keyword(row.pair) for row in rows)):
            return frozenset()
        inputs = [position for position, row in enumerate(rows) if _is_input(row)]
        positions = {position for position in inputs if self._is_uninitialized(op, name, rows[position], rows)}
        passes_on = bool(inputs) and positions.issuperset(inputs)
        passes_on = passes_on and name not in apis["overwrites"] and name not in apis["takes_the_shape"]
        is_unfilled = name in apis["creates"] or name in apis["overwrites_a_part"]
        is_unfilled = is_unfilled or (passes_on and not find_api(op))
        partly_filled = _find_partly_filled(name)[1]
        for position, row in enumerate(rows):
            if row.pair.side is not Side.OUTPUT or not _is_tensor(row.pair):
                continue
            if is_unfilled or (partly_filled and _get_path(row.pair) == partly_filled):
                positions.add(position)
                self._remember(row.pair)
        return frozenset(positions)

    def _may_hold_any(self, op: str) -> bool:
        """Return False for an op that has no uninitialized values, unless an argument is a keyword."""
        return bool(self._known or _get_api_name(op) in _load_apis()["all"] or find_api(op))

    def _is_uninitialized(self, op: str, name: str, row: Row, rows: Sequence[Row]) -> bool:
        """Return True if an input is uninitialized, or overwritten by the op."""
        pair = row.pair
        slot = pair.target or pair.golden
        assert slot is not None
        apis = _load_apis()
        head = slot.path.partition(".")[0]
        if head in apis["keywords"] or (head == "0" and name in apis["overwrites"] | apis["overwrites_a_part"]):
            return True
        if head == _find_partly_filled(name)[0]:
            return True
        if any(side is not None and self._is_filled(op, side, rows) for side in row.pair[:2]):
            return True
        return bool(self._known) and _fingerprint_pair(pair) in self._known

    def _is_filled(self, op: str, slot: Slot, rows: Sequence[Row]) -> bool:
        """Return True if a communication call overwrites an input, as a broadcast from another rank does."""
        api = find_api(op)
        if api is None:
            return False
        if is_buffer(api, slot):
            return True
        if api.flow is not Flow.FROM_ROOT or api.fills != api.gives:
            return False
        call = parse_call(Record(0, op, tuple(row.pair.target for row in rows if row.pair.target is not None)))
        return call is not None and call.root != self._rank

    def _remember(self, pair: Pair) -> None:
        """Remember a pair of uninitialized values, unless both are equal."""
        target, golden = _fingerprint_pair(pair)
        if target == golden:  # often zeros, which other values may equal by chance
            return
        self._known[target, golden] = None
        if len(self._known) > MAX_REMEMBERED_PAIRS:
            del self._known[next(iter(self._known))]


def _are_keywords(batch: RowBatch) -> Array:
    """Return True for rows of arguments that any API overwrites, by their keywords."""
    keywords = _load_apis()["keywords"]
    sides = [
        np.array([path.partition(".")[0] in keywords for _, _, path in side.columns.places] or [False])[
            side.column("place")
        ]
        for side in (batch.target, batch.golden)
    ]
    return np.where(batch.target.is_present, *sides)


def _is_keyword(pair: Pair) -> bool:
    """Return True for an argument that any API overwrites, by its keyword."""
    return _get_path(pair).partition(".")[0] in _load_apis()["keywords"]


def _get_path(pair: Pair) -> str:
    """Return the path of a pair's slot, such as ``0`` or ``out.1``."""
    slot = pair[0] or pair[1]
    return slot.path if slot is not None else ""


def _get_api_name(op: str) -> str:
    """Return the API's name in the key of a forward call, such as ``empty_like``; empty for other keys."""
    return get_api_name(op) if op.endswith(".forward") else ""


def _is_input(row: Row) -> bool:
    """Return True for a tensor that an op receives."""
    return row.pair.side is Side.INPUT and _is_tensor(row.pair)


def _is_tensor(pair: Pair) -> bool:
    """Return True if either side of a pair is a tensor."""
    return any(slot is not None and slot.value.kind is Kind.TENSOR for slot in pair[:2])


def _fingerprint_pair(pair: Pair) -> Any:
    """Return fingerprints of both sides, by which the same pair of values is recognized later."""
    return _fingerprint_value(pair.target), _fingerprint_value(pair.golden)


def _fingerprint_value(slot: Slot | None) -> Any:
    """Return the fingerprint of a value: dtype, extent, checksum and statistics."""
    if slot is None:
        return None
    value: Value = slot.value
    numbers = tuple(map(repr, value.statistics))  # as text, nan equals nan
    return value.dtype, value.extent, value.checksum, numbers
