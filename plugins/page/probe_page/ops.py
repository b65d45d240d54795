"""The calls of a page: where each was made, and how far what it returns is from the golden."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from probe_core.model import Cell, Kind, Op, Row, Side, Slot
from probe_core.store.names import is_forward
from probe_page.columns import Columns
from probe_page.rows import GOLDEN_ONLY, REGION, SKIP, RowFacts, format_distance

COLUMN_NAMES = ("key", "modules", "stack", "rows", "level", "into", "out", "noise", "matches")
"""Columns of calls: the key, the modules around it (innermost first, a line each), its stack (frames between
record separators), the number of its rows, the gravest level, the largest relative distance of what it took
in (a backward call also reads what its forward call took in and returned) and of what it returns, the
distance that rounding explains, a bit for each kind of match of its rows."""
MAX_PENDING_CALLS = 256
"""Number of calls that are kept before they become columns."""
SEPARATOR = "\x1e"
_BITS = [1 << match % REGION | 2 * (match & REGION) for match in range(GOLDEN_ONLY + REGION + 1)]
"""The bits of matches: 1, 2 and 4 for a pair, the target alone and the golden alone, and 8 for calls that do
not line up."""


@dataclass(slots=True)
class _CallTally:
    """A call whose rows are being read."""

    place: tuple[int, str]
    modules: Sequence[str]
    rows: int = 0
    stack: tuple[str, ...] = ()
    level: int = SKIP
    into: float | None = None
    out: float | None = None
    noise: float = 0.0
    matches: int = 0


class Ops:
    """The calls of one comparison, collected from rows in their order.

    Rows of calls that only the golden made stand among those of a call of the target; they are calls of their
    own, within the modules of that one.
    """

    def __init__(self) -> None:
        self._columns = Columns(COLUMN_NAMES)
        self._ended: list[Sequence[Cell]] = []
        self._op: Op | None = None
        self._calls: dict[str, _CallTally] = {}
        self._count = 0
        self._forward: dict[str, float] = {}

    def add(self, ops: Sequence[Op], rows: Sequence[Row], row_facts: RowFacts) -> list[tuple[int, str]]:
        """Take in rows, and return the number and the key of the call of each."""
        places: list[tuple[int, str]] = []
        tensor = Kind.TENSOR
        call = self._calls.get(self._op.key) if self._op is not None else None
        facts = zip(ops, rows, row_facts.levels, row_facts.matches, row_facts.errors, row_facts.noises)
        for op, ((target, golden, _), _, _, _, _, _, stack, _, _), level, match, error, noise in facts:
            slot = target or golden
            assert slot is not None
            if op is not self._op or call is None:
                self._end_calls()
                self._op = op
                call = self._begin_call(op.key, op)
            row_call = call
            if target is None and slot.side is not Side.DEBUG and (key := _find_op_key(slot)) != op.key:
                row_call = self._calls.get(key) or self._begin_call(key, op)
            places.append(row_call.place)
            row_call.rows += 1
            if stack:
                row_call.stack = stack
            if level > row_call.level:
                row_call.level = level
            row_call.matches |= _BITS[match]
            if error is None:
                continue
            if slot.side.is_source:
                if slot.value.kind is not tensor:
                    continue  # an argument, which may be the cause itself
                if row_call.into is None or error > row_call.into:
                    row_call.into = error
            elif row_call.out is None or error > row_call.out:
                row_call.out = error
            if noise is not None and noise > row_call.noise:
                row_call.noise = noise
        return places

    def finish_columns(self) -> Columns:
        """Return all calls, after the last row."""
        self._end_calls()
        self._op = None
        self._flush()
        return self._columns

    def _begin_call(self, key: str, op: Op) -> _CallTally:
        call = self._calls[key] = _CallTally((self._count, key), op.ancestors)
        self._count += 1
        return call

    def _flush(self) -> None:
        self._columns.add(zip(*self._ended))
        self._ended.clear()

    def _end_calls(self) -> None:
        for key, call in self._calls.items():
            into, out = call.into, call.out
            if is_forward(key):
                worst = out if into is None or (out is not None and out > into) else into
                if worst is not None:
                    self._forward[key] = worst
            elif (read := self._forward.get(key.replace(".backward", ".forward"))) is not None:
                call.into = read if into is None or read > into else into
            self._ended.append(
                (key, "\n".join(call.modules), SEPARATOR.join(call.stack), call.rows, call.level,
                 format_distance(call.into), format_distance(call.out), call.noise, call.matches)
            )  # fmt: skip
        self._calls.clear()
        if len(self._ended) >= MAX_PENDING_CALLS:
            self._flush()


def _find_op_key(slot: Slot) -> str:
    """Return the key of the op that a slot belongs to."""
    name, side = slot.name, slot.side.value
    end = name.rfind(f".{side}.{slot.path}")
    if end < 0:
        end = name.rfind(f".{side}.")
    if end < 0:
        return name
    return name[: end + 1 + len(side)] if side == "parameters_grad" else name[:end]
