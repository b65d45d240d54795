"""Values that were recorded before anything was computed: buffers to receive into, ``empty``.

They differ from run to run and mean nothing. A value is one where it comes out of an API that only makes
room, where an API overwrites it without looking, or where the same pair of values was one before and has
merely passed through an API that had nothing else to work on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from probe_core.model import (
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
from probe_diagnosis.collectives.calls import Flow, api_of, call_of, is_buffer

NOT_COMPUTED = Reason("evidence", "not computed yet")
REMEMBERED = 4096
"""Values kept at a time; memory that is never written to is rare."""


@cache
def _apis() -> dict[str, frozenset[str]]:
    import yaml

    text = files(__package__).joinpath("uninitialised.yaml").read_text("utf-8")
    return {kind: frozenset(names) for kind, names in yaml.safe_load(text).items()}


class Uninitialised:
    """Skips such values as the rows of each op pass by, in the order of the run; their cells stay."""

    def __init__(self) -> None:
        self._rank = 0
        self._known: dict[Any, None] = {}

    def judge(self, op: Op, rows: Sequence[Row]) -> Mapping[int, Ruling]:
        """Rulings that say nothing, for the values that were not computed yet."""
        if not any(_is_doubtful(row) for row in rows):  # what agrees misleads nobody
            return {}
        further = Verdict(Level.SKIP, "", (NOT_COMPUTED,))
        rulings: dict[int, Ruling] = {}
        for place in self.among(op.key, rows, op.rank):
            silent = rows[place].verdict._replace(level=Level.SKIP, failed=False, drift=None)
            rulings[place] = Ruling(silent, NOT_COMPUTED, further)
        return rulings

    def among(self, op: str, rows: Sequence[Row], rank: int = 0) -> frozenset[int]:
        """The positions in ``rows`` of values that were not computed yet.

        ``rank`` is the number of the rank whose run it is: what a broadcast overwrites depends on it.
        """
        self._rank = rank
        name = _name(op)
        inputs = [position for position, row in enumerate(rows) if _is_input(row)]
        found = {position for position in inputs if self._is_room(op, name, rows[position], rows)}
        apis = _apis()
        passes_on = bool(inputs) and found.issuperset(inputs)
        passes_on = passes_on and name not in apis["overwrites"] and name not in apis["takes_the_shape"]
        if name in apis["creates"] or name in apis["overwrites_a_part"] or (passes_on and not api_of(op)):
            for position, row in enumerate(rows):
                if row.pair.side is Side.OUTPUT and _is_tensor(row.pair):
                    found.add(position)
                    self._remember(row.pair)
        return frozenset(found)

    def _is_room(self, op: str, name: str, row: Row, rows: Sequence[Row]) -> bool:
        """Whether an input is memory that nothing was written to."""
        pair = row.pair
        slot = pair.target or pair.golden
        assert slot is not None
        apis = _apis()
        head = slot.path.partition(".")[0]
        if head in apis["keywords"] or (
            head == "0" and name in apis["overwrites"] | apis["overwrites_a_part"]
        ):
            return True
        if any(side is not None and self._is_filled(op, side, rows) for side in row.pair[:2]):
            return True
        return bool(self._known) and _print(pair) in self._known

    def _is_filled(self, op: str, slot: Slot, rows: Sequence[Row]) -> bool:
        """Whether a communication call overwrites an input: a buffer, or what another rank broadcasts."""
        api = api_of(op)
        if api is None:
            return False
        if is_buffer(api, slot):
            return True
        if api.flow is not Flow.FROM_ROOT or api.fills != api.gives:
            return False
        call = call_of(Record(0, op, tuple(row.pair.target for row in rows if row.pair.target is not None)))
        return call is not None and call.root != self._rank

    def _remember(self, pair: Pair) -> None:
        ours, theirs = _print(pair)
        if ours == theirs:  # zeros, as likely as not; what is equal misleads nobody
            return
        self._known[ours, theirs] = None
        if len(self._known) > REMEMBERED:
            del self._known[next(iter(self._known))]


def _is_doubtful(row: Row) -> bool:
    if row.verdict.level is not Level.PASS:
        return True
    return bool(row.further) and any(one.level is not Level.PASS for one in row.further.values())


def _name(op: str) -> str:
    """``empty_like`` of ``Functional.empty_like.0.forward``; of other names what no API is called."""
    parts = op.split(".")
    return parts[-3] if len(parts) >= 4 and parts[-1] == "forward" else ""


def _is_input(row: Row) -> bool:
    return row.pair.side is Side.INPUT and _is_tensor(row.pair)


def _is_tensor(pair: Pair) -> bool:
    return any(slot is not None and slot.value.kind is Kind.TENSOR for slot in pair[:2])


def _print(pair: Pair) -> Any:
    return _value_print(pair.target), _value_print(pair.golden)


def _value_print(slot: Slot | None) -> Any:
    if slot is None:
        return None
    value: Value = slot.value
    numbers = tuple(map(repr, value.statistics))  # nan equals nan here
    return value.dtype, value.extent, value.checksum, numbers
