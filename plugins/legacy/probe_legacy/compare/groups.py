"""Groups of rows, as the older tools compared them, and the alignment of the groups of two files."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

OUTPUT = "output"


class OldRow(NamedTuple):
    """A row of a value, as the tool wrote it.

    Attributes:
        name: The name.
        dtype: The dtype.
        shape: The shape, a list; for numbers of ptdbg_ascend a text.
        statistics: The statistics; empty if the row has none.
        begin: The offset of the line in the file.
    """

    name: str
    dtype: Any
    shape: Any
    statistics: Sequence[Any]
    begin: int


class OldStack(NamedTuple):
    """A row of a call stack: its name and its frames."""

    name: str
    frames: Any


@dataclass(slots=True)
class Group:
    """Rows that are compared together.

    Attributes:
        rows: The rows of values.
        frames: The frames of the call stack; None if there is none.
    """

    rows: list[OldRow] = field(default_factory=list)
    frames: Any = None


def groups_by_output(rows: Iterable[OldRow | OldStack]) -> Iterator[Group]:
    """Yield groups that end before the first row that is no output after one that is (ptdbg_ascend).

    A call without an output on record is one group with the next call. A call stack before the rows belongs
    to the group that it begins.
    """
    group, is_output = Group(), False
    for row in rows:
        was_output, is_output = is_output, OUTPUT in row.name
        if was_output and not is_output:
            yield group
            group = Group()
        _add(group, row)
    if group.rows:
        yield group


def groups_by_stack(rows: Iterable[OldRow | OldStack]) -> Iterator[Group]:
    """Yield groups that end with a call stack (mode api_stack of ptdbg_ascend)."""
    group = Group()
    for row in rows:
        _add(group, row)
        if isinstance(row, OldStack):
            if group.rows:
                yield group
            group = Group()
    if group.rows:
        yield group


def groups_to_output(rows: Iterable[OldRow | OldStack]) -> Iterator[Group]:
    """Yield groups that end with the first output (torch_npu.hooks); a second output is a group."""
    group = Group()
    for row in rows:
        _add(group, row)
        if OUTPUT in row.name and group.rows:
            yield group
            group = Group()
    if group.rows:
        yield group


def _add(group: Group, row: OldRow | OldStack) -> None:
    if isinstance(row, OldRow):
        group.rows.append(row)
    elif group.frames is None:
        group.frames = row.frames


class _Queue:
    """Groups that wait for a partner, found by their keys."""

    def __init__(self) -> None:
        self.groups: deque[Group] = deque()
        self._first = 0
        self._places: dict[Hashable, deque[int]] = defaultdict(deque)

    def append(self, group: Group, key: Hashable) -> None:
        """Append a group."""
        self._places[key].append(self._first + len(self.groups))
        self.groups.append(group)

    def find(self, key: Hashable) -> int:
        """Return the index of the first group of a key, or -1."""
        places = self._places.get(key)
        while places and places[0] < self._first:
            places.popleft()
        return places[0] - self._first if places else -1

    def cut(self, count: int) -> list[Group]:
        """Remove the first groups, and return them."""
        self._first += count
        return [self.groups.popleft() for _ in range(count)]


Pair = tuple[Group, "Group | None"]


def aligned(npu: Iterable[Group], bench: Iterable[Group], strip: Any = None) -> Iterator[Pair]:
    """Yield the groups of the NPU's file in order, each with its partner or None.

    Each round appends a group of each file to a queue, and looks for a partner: of the newest groups each
    other, then of the newest NPU group an older group of the bench, then of the newest group of the bench an
    older NPU group. A pair cuts both queues behind it. Groups of the bench without a partner are left out.

    Args:
        npu: The groups of the NPU's file.
        bench: The groups of the bench's file.
        strip: A function from the name of a row to the name by which rows are compared; None for the name.
    """

    def key_of(group: Group) -> Hashable:
        return tuple([strip(row.name) if strip else row.name for row in group.rows])

    own, other = _Queue(), _Queue()
    sources = iter(npu), iter(bench)
    is_open = True
    while is_open:
        newest: list[Hashable] = []
        is_open = False
        for queue, source in zip((own, other), sources):
            group = next(source, None)
            is_open = is_open or group is not None
            newest.append(None if group is None else key_of(group))
            if group is not None:
                queue.append(group, newest[-1])
        found = _match(own, other, *newest)
        if found is None:
            continue
        for group in own.cut(found[0]):
            yield group, None
        other.cut(found[1])
        yield own.cut(1)[0], other.cut(1)[0]
    for group in own.groups:
        yield group, None


def _match(own: _Queue, other: _Queue, newest: Hashable, newest_other: Hashable) -> tuple[int, int] | None:
    """Return the indices of the pair that the newest groups make, if they make one."""
    if newest is not None and newest == newest_other:
        return len(own.groups) - 1, len(other.groups) - 1
    if newest is not None and (index := other.find(newest)) >= 0:
        return len(own.groups) - 1, index
    if newest_other is not None and (index := own.find(newest_other)) >= 0:
        return index, len(other.groups) - 1
    return None
