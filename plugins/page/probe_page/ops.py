"""The calls of a page: where each was made, and how far what it returns is from the golden."""

from __future__ import annotations

from probe_core.model import Kind, Op, Row
from probe_page.columns import Columns
from probe_page.rows import SKIP, Looked, cell_of

NAMES = ("key", "modules", "stack", "rows", "level", "into", "out", "noise", "matches")
"""Columns of calls: the key, the modules around it (innermost first, a line each), its stack (frames between
record separators), the number of its rows, the gravest level, the largest relative distance of what it took
in (a backward call also reads what its forward call took in and returned) and of what it returns, the
distance that rounding explains, a bit for each kind of match of its rows."""
SEPARATOR = "\x1e"


class Ops:
    """The calls of one comparison, collected row by row.

    Attributes:
        key: The key of the call that the last row belongs to.
        count: Number of calls so far.
    """

    def __init__(self) -> None:
        self.key = ""
        self.count = 0
        self._columns = Columns(NAMES)
        self._op: Op | None = None
        self._rows = 0
        self._stack: tuple[str, ...] = ()
        self._level = SKIP
        self._into: float | None = None
        self._out: float | None = None
        self._noise = 0.0
        self._matches = 0
        self._forward: dict[str, float] = {}

    def add(self, op: Op, row: Row, looked: Looked) -> None:
        """Take in a row of a call."""
        if op is not self._op:
            self._end()
            self._op, self.key = op, op.key
            self.count += 1
        self._rows += 1
        if row.stack:
            self._stack = row.stack
        self._level = max(self._level, looked.level)
        self._matches |= 1 << looked.match
        error = looked.error
        if error is None:
            return
        slot = row.pair.target or row.pair.golden
        if row.pair.side.is_source:
            if slot is None or slot.value.kind is not Kind.TENSOR:
                return  # an argument, which may be the cause itself
            self._into = error if self._into is None else max(self._into, error)
        else:
            self._out = error if self._out is None else max(self._out, error)
        if looked.noise is not None and looked.noise > self._noise:
            self._noise = looked.noise

    def columns(self) -> Columns:
        """Return all calls, after the last row."""
        self._end()
        self._op = None
        return self._columns

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
        self._columns.add(
            (op.key, modules, stack, self._rows, self._level, cell_of(self._into),
             cell_of(self._out), self._noise, self._matches)
        )  # fmt: skip
        self._rows, self._stack, self._level, self._matches = 0, (), SKIP, 0
        self._into, self._out, self._noise = None, None, 0.0
