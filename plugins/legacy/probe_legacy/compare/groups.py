"""Groups of rows, as the older tools compared them, and the alignment of the groups of two files."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

OUTPUT = "output"


class OldRow(NamedTuple):
    """A row of a value, as the tool wrote it.

    Attributes:
        name: The name.
        dtype: The dtype.
        shape: The shape, a list; for numbers of ptdbg_ascend a text.
        statistics: The statistics; empty if the row has none.
        begin: The offset of the line in the file.
        checksum: The checksum of 6.0 with ``summary_mode`` md5; empty if the row has none.
    """

    name: str
    dtype: Any
    shape: Any
    statistics: Sequence[Any]
    begin: int
    checksum: str = ""


class OldStack(NamedTuple):
    """A row of a call stack: its name and its frames."""

    name: str
    frames: Any


@dataclass(slots=True)
class RowGroup:
    """Rows that are compared together.

    Attributes:
        rows: The rows of values.
        frames: The frames of the call stack; None if there is none.
    """

    rows: list[OldRow] = field(default_factory=list)
    frames: Any = None


def split_by_output(rows: Iterable[OldRow | OldStack]) -> Iterator[RowGroup]:
    """Yield groups that end before the first row that is not an output after one that is (ptdbg_ascend).

    A call without an output on record is one group with the next call. A call stack before the rows belongs
    to the group that it begins.
    """
    group, is_output = RowGroup(), False
    for row in rows:
        was_output, is_output = is_output, OUTPUT in row.name
        if was_output and not is_output:
            yield group
            group = RowGroup()
        _add(group, row)
    if group.rows:
        yield group


def split_by_stack(rows: Iterable[OldRow | OldStack]) -> Iterator[RowGroup]:
    """Yield groups that end with a call stack (mode api_stack of ptdbg_ascend)."""
    return _split_after(rows, lambda row, group: isinstance(row, OldStack))


def split_after_output(rows: Iterable[OldRow | OldStack]) -> Iterator[RowGroup]:
    """Yield groups that end with the first output (torch_npu.hooks); a second output is a group."""
    return _split_after(rows, lambda row, group: OUTPUT in row.name and bool(group.rows))


def _split_after(
    rows: Iterable[OldRow | OldStack], is_end: Callable[[OldRow | OldStack, RowGroup], bool]
) -> Iterator[RowGroup]:
    group = RowGroup()
    for row in rows:
        _add(group, row)
        if is_end(row, group):
            if group.rows:
                yield group
            group = RowGroup()
    if group.rows:
        yield group


def _add(group: RowGroup, row: OldRow | OldStack) -> None:
    if isinstance(row, OldRow):
        group.rows.append(row)
    elif group.frames is None:
        group.frames = row.frames


class _Queue:
    """Groups that wait for a partner, found by their labels."""

    def __init__(self) -> None:
        self.groups: deque[RowGroup] = deque()
        self._first = 0
        self._places: dict[Hashable, deque[int]] = defaultdict(deque)

    def append(self, group: RowGroup, labels: Iterable[Hashable]) -> None:
        """Append a group."""
        for label in labels:
            self._places[label].append(self._first + len(self.groups))
        self.groups.append(group)

    def find(self, labels: Iterable[Hashable]) -> int:
        """Return the index of the first group that has one of the labels, or -1."""
        return min((place for label in labels if (place := self._find(label)) >= 0), default=-1)

    def _find(self, label: Hashable) -> int:
        places = self._places.get(label)
        while places and places[0] < self._first:
            places.popleft()
        return places[0] - self._first if places else -1

    def cut(self, count: int) -> list[RowGroup]:
        """Remove the first groups, and return them."""
        self._first += count
        return [self.groups.popleft() for _ in range(count)]


class GroupRule(Protocol):
    """The rule by which two groups match: the labels of one are among those that the other asks for.

    Attributes:
        newest_first: True if the newest group of the NPU is compared with the newest of the bench before it
            is compared with those that wait.
    """

    newest_first: bool

    def list_labels(self, group: RowGroup) -> Sequence[Hashable]:
        """Return the labels under which a group is found."""

    def list_partner_labels(self, group: RowGroup) -> Sequence[Hashable]:
        """Return the labels that a partner of the group has."""


class SameNamesRule:
    """The rule of ptdbg_ascend 2.x and of torch_npu.hooks: the names of all rows are equal.

    Args:
        strip: A function from the name of a row to the name by which rows are compared; None for the name.
        with_shapes: True if dtypes and shapes must be equal too.
    """

    newest_first = True

    def __init__(self, strip: Callable[[str], str] | None = None, *, with_shapes: bool = False) -> None:
        self._strip = strip
        self._with_shapes = with_shapes

    def list_labels(self, group: RowGroup) -> Sequence[Hashable]:
        """Return the names of all rows as one label."""
        strip = self._strip
        names = tuple([strip(row.name) if strip else row.name for row in group.rows])
        if not self._with_shapes:
            return (names,)
        return ((names, tuple([(row.dtype, str(row.shape)) for row in group.rows])),)

    list_partner_labels = list_labels


Pair = tuple[RowGroup, "RowGroup | None"]


def align_groups(npu: Iterable[RowGroup], bench: Iterable[RowGroup], rule: GroupRule | None = None) -> Iterator[Pair]:
    """Yield the groups of the NPU's file in order, each with its partner or None.

    Each round appends a group of each file to a queue, and looks for a partner: of the newest groups each
    other (torch_npu.hooks and ptdbg_ascend 2.x), then of the newest NPU group the first of the bench that
    matches, then of the newest group of the bench the first of the NPU. A pair cuts both queues behind it.
    Groups of the bench without a partner are left out.

    Args:
        npu: The groups of the NPU's file.
        bench: The groups of the bench's file.
        rule: The rule by which groups match; None for equal names.
    """
    rule = rule or SameNamesRule()
    npu_queue, bench_queue = _Queue(), _Queue()
    sources = iter(npu), iter(bench)
    is_open = True
    while is_open:
        is_open = False
        for queue, source in zip((npu_queue, bench_queue), sources):
            group = next(source, None)
            if group is not None:
                is_open = True
                queue.append(group, rule.list_labels(group))
        indices = _match(npu_queue, bench_queue, rule) if npu_queue.groups and bench_queue.groups else None
        if indices is None:
            continue
        for group in npu_queue.cut(indices[0]):
            yield group, None
        bench_queue.cut(indices[1])
        yield npu_queue.cut(1)[0], bench_queue.cut(1)[0]
    for group in npu_queue.groups:
        yield group, None


def _match(npu_queue: _Queue, bench_queue: _Queue, rule: GroupRule) -> tuple[int, int] | None:
    """Return the indices of the pair that the newest groups make, if they make one."""
    last, last_of_bench = len(npu_queue.groups) - 1, len(bench_queue.groups) - 1
    wanted = rule.list_partner_labels(npu_queue.groups[-1])
    if rule.newest_first and not set(wanted).isdisjoint(rule.list_labels(bench_queue.groups[-1])):
        return last, last_of_bench
    if (index := bench_queue.find(wanted)) >= 0:
        return last, index
    if (index := npu_queue.find(rule.list_partner_labels(bench_queue.groups[-1]))) >= 0:
        return index, last_of_bench
    return None
