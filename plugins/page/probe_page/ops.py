"""The calls of a page: where each was made, and how far what it returns is from the golden."""

from __future__ import annotations

from collections.abc import Sequence

from probe_core.model import Cell, Kind, Op, Row
from probe_page.columns import Columns
from probe_page.rows import REGION, SKIP, Looked, cell_of

NAMES = ("key", "modules", "stack", "rows", "level", "into", "out", "noise", "matches")
"""Columns of calls: the key, the modules around it (innermost first, a line each), its stack (frames between
record separators), the number of its rows, the gravest level, the largest relative distance of what it took
in (a backward call also reads what its forward call took in and returned) and of what it returns, the
distance that rounding explains, a bit for each kind of match of its rows."""
BATCH = 256
"""Number of calls that are kept before they become columns."""
SEPARATOR = "\x1e"


class Ops:
    """The calls of one comparison, collected from rows in their order."""

    def __init__(self) -> None:
        self._columns = Columns(NAMES)
        self._ended: list[Sequence[Cell]] = []
        self._op: Op | None = None
        self._place = (-1, "")
        self._rows = 0
        self._stack: tuple[str, ...] = ()
        self._level = SKIP
        self._into: float | None = None
        self._out: float | None = None
        self._noise = 0.0
        self._matches = 0
        self._forward: dict[str, float] = {}

    def add(self, ops: Sequence[Op], rows: Sequence[Row], looked: Sequence[Looked]) -> list[tuple[int, str]]:
        """Take in rows, and return the number and the key of the call of each."""
        places: list[tuple[int, str]] = []
        tensor = Kind.TENSOR
        for op, row, (_, level, match, is_region, error, noise, _) in zip(ops, rows, looked):
            if op is not self._op:
                self._end()
                self._op = op
                self._place = (self._place[0] + 1, op.key)
            places.append(self._place)
            self._rows += 1
            if row.stack:
                self._stack = row.stack
            if level > self._level:
                self._level = level
            self._matches |= 1 << match
            if is_region:
                self._matches |= 1 << REGION
            if error is None:
                continue
            target, golden, _ = row.pair
            slot = target or golden
            if slot is not None and slot.side.is_source:
                if slot.value.kind is not tensor:
                    continue  # an argument, which may be the cause itself
                if self._into is None or error > self._into:
                    self._into = error
            elif self._out is None or error > self._out:
                self._out = error
            if noise is not None and noise > self._noise:
                self._noise = noise
        return places

    def columns(self) -> Columns:
        """Return all calls, after the last row."""
        self._end()
        self._op = None
        self._flush()
        return self._columns

    def _flush(self) -> None:
        self._columns.add(zip(*self._ended))
        self._ended.clear()

    def _end(self) -> None:
        op = self._op
        if op is None:
            return
        modules, stack = "\n".join(op.ancestors), SEPARATOR.join(self._stack)
        worst = max((error for error in (self._into, self._out) if error is not None), default=None)
        if "forward" in op.key.split("."):
            if worst is not None:
                self._forward[op.key] = worst
        elif (read := self._forward.get(op.key.replace(".backward", ".forward"))) is not None:
            self._into = read if self._into is None else max(self._into, read)
        self._ended.append(
            (op.key, modules, stack, self._rows, self._level, cell_of(self._into),
             cell_of(self._out), self._noise, self._matches)
        )  # fmt: skip
        if len(self._ended) == BATCH:
            self._flush()
        self._rows, self._stack, self._level, self._matches = 0, (), SKIP, 0
        self._into, self._out, self._noise = None, None, 0.0
