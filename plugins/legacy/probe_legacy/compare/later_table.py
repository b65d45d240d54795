"""The tables of ptdbg_ascend 3.0 to 6.0: of tensors, statistics or checksums (docs/legacy.md#tables)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from probe_core.model import Colour
from probe_legacy.compare.colours import ROWS, as_float, colours_of
from probe_legacy.compare.dump import Cells, Dump, NotMeasured, Release, Table, arrays_of
from probe_legacy.compare.groups import Group, OldRow, aligned
from probe_legacy.compare.later_measures import Measured, accuracy_later, all_of, measure_later
from probe_legacy.compare.later_rule import LikeTensors
from probe_legacy.compare.words import message, word

Dumps = tuple[Dump, Dump]
WIDEST = 64
"""Bits of the widest whole number of a dtype."""
Rows = Sequence[tuple[OldRow, OldRow | None]]


def later_table(dumps: Dumps, release: Release, fuzzy: bool) -> Table:
    """Return the table of two files.

    Args:
        dumps: The files of the NPU and of the bench.
        release: The release of the table.
        fuzzy: True if the numbers of calls may differ.
    """
    make = _kind_of(dumps)(dumps, release)
    has_stacks = all(dump.has_stacks for dump in dumps)
    columns = [*word("ptdbg", "names"), *make.columns]
    if has_stacks:
        columns.append(word("ptdbg", "stack"))
    rule = LikeTensors(release, fuzzy=fuzzy)
    rows: list[Cells] = []
    colours: dict[int, Colour] = {}
    for group, partner in aligned(dumps[0].groups(), dumps[1].groups(), rule):
        first = len(rows)
        for index, (row, other) in enumerate(_pairs(group, partner)):
            cells = [*_names(row, other), *make.cells(row, other)]
            if has_stacks:
                is_told = index == 0 and (partner is None or partner.frames is not None)
                frames = group.frames if is_told else None
                cells.append(None if frames is None else str(frames))
            rows.append(cells)
        if release >= Release.V6 and (partner is not None or make.colours_all):
            found = colours_of(columns, rows[first:])
            colours.update({first + place: colour for place, colour in found.items()})
    _as_columns(columns, rows)
    return Table(columns, rows, release, colours)


def _pairs(group: Group, partner: Group | None) -> Rows:
    """Return the rows of a group with those of its partner: inputs with inputs, outputs with outputs."""
    if partner is None:
        return [(row, None) for row in group.rows]
    waiting = {side: [row for row in partner.rows if ("input" in row.name) is side] for side in (True, False)}
    rows: list[tuple[OldRow, OldRow | None]] = []
    for side in (True, False):
        own = [row for row in group.rows if ("input" in row.name) is side]
        others = waiting[side]
        rows += [(row, others[place] if place < len(others) else None) for place, row in enumerate(own)]
    return rows


def _names(row: OldRow, other: OldRow | None) -> Cells:
    missing = message("not_available")
    if other is None:
        return [row.name, missing, row.dtype, missing, str(row.shape), missing]
    return [row.name, other.name, row.dtype, other.dtype, str(row.shape), str(other.shape)]


class _Kind(ABC):
    """A kind of table.

    Args:
        dumps: Both files.
        release: The release of the table.

    Attributes:
        columns: The columns after the names, dtypes and shapes.
        colours_all: True if rows without a partner may be coloured.
    """

    columns: list[str]
    colours_all = False

    def __init__(self, dumps: Dumps, release: Release) -> None:
        self.dumps, self.release = dumps, release
        kept = word("later", "statistics")[: 3 if release is Release.V3 else 4]
        self.count = len(kept)
        self.statistics = [f"{side} {name}" for side in word("later", "sides") for name in kept]

    @abstractmethod
    def cells(self, row: OldRow, other: OldRow | None) -> Cells:
        """Return the cells of these columns."""

    def both(self, row: OldRow, other: OldRow | None) -> Iterator[object]:
        """Yield the statistics of both sides."""
        for given in (row.statistics, other.statistics if other else ()):
            yield from given[: self.count]
            yield from [message("not_available")] * (self.count - len(given))


class _OfTensors(_Kind):
    """Measurements of tensors, statistics and the verdict on them."""

    colours_all = True

    def __init__(self, dumps: Dumps, release: Release) -> None:
        super().__init__(dumps, release)
        shares = word("later", "shares") if release >= Release.V4 else []
        self._measures = len(word("later", "metrics")) + len(shares)
        self.columns = [*word("later", "metrics"), *shares, *self.statistics, *word("ptdbg", "verdict")]

    def cells(self, row: OldRow, other: OldRow | None) -> Cells:
        """Return measurements, statistics, verdict and message."""
        measured = self._measured(row, other)
        verdict = accuracy_later(measured.cosine, measured.difference)
        return [*measured[: self._measures], *self.both(row, other), verdict, measured.said]

    def _measured(self, row: OldRow, other: OldRow | None) -> Measured:
        if other is None:
            return all_of(message("not_available"), message("no_bench"))
        try:
            one, two = arrays_of(row, other, self.dumps, "no_file_later")
        except NotMeasured as error:
            return all_of(message("not_available"), str(error))
        measured = measure_later(one, two, self.release)
        if row.name == other.name or not one.size or one.ndim == 0 or one.shape != two.shape:
            return measured
        return measured._replace(said=measured.said + message("other_number"))


class _OfStatistics(_Kind):
    """Differences of statistics, and in 6.0 a warning of large ones."""

    def __init__(self, dumps: Dumps, release: Release) -> None:
        super().__init__(dumps, release)
        self._judges = release >= Release.V6
        self.columns = [*word("later", "differences")[: self.count], *self.statistics]
        if self._judges:
            self.columns += [word("later", "result"), word("ptdbg", "verdict")[1]]

    def cells(self, row: OldRow, other: OldRow | None) -> Cells:
        """Return differences, statistics and in 6.0 verdict and message."""
        both = list(self.both(row, other))
        differences: Cells = []
        is_far = False
        for one, two in zip(both, both[self.count :]):
            if isinstance(one, int | float) and isinstance(two, int | float):
                differences.append(_difference(one, two))
                own, other_one = as_float(one), as_float(two)
                is_far |= abs(own - other_one) / (max(abs(own), abs(other_one)) + 1e-10) > word(
                    "later", "order"
                )
            else:
                differences.append(message("not_available"))
        if not self._judges:
            return [*differences, *both]
        if other is None:
            return [*differences, *both, message("not_available"), message("no_bench")]
        said = (word("later", "warning"), word("later", "warned")) if is_far else ("", "")
        return [*differences, *both, *said]


class _OfChecksums(_Kind):
    """Checksums and whether they are equal."""

    def __init__(self, dumps: Dumps, release: Release) -> None:
        super().__init__(dumps, release)
        self.columns = [*word("later", "checksums"), word("later", "result")]

    def cells(self, row: OldRow, other: OldRow | None) -> Cells:
        """Return both checksums and whether they are equal."""
        missing = message("not_available")
        if other is None:
            return [row.checksum or missing, missing, missing]
        same = word("later", "same" if row.checksum == other.checksum else "different")
        return [row.checksum, other.checksum, same]


def _kind_of(dumps: Dumps) -> type[_Kind]:
    if all(dump.has_checksums for dump in dumps):
        return _OfChecksums
    return _OfTensors if all(dump.directory.is_dir() for dump in dumps) else _OfStatistics


def _difference(one: float, two: float) -> float:
    """Return the difference of two statistics, exact for whole numbers of a dtype."""
    if isinstance(one, int) and isinstance(two, int) and max(one.bit_length(), two.bit_length()) <= WIDEST:
        return one - two
    return as_float(one) - as_float(two)


def _as_columns(columns: Sequence[str], rows: Sequence[Cells]) -> None:
    """Write whole numbers as floating-point ones in columns that hold nothing but numbers, as pandas did."""
    for place, name in enumerate(columns):
        if name.endswith(ROWS):
            cells: list[Any] = [row[place] for row in rows]
            if {int, float} == set(map(type, cells)):
                for row in rows:
                    row[place] = as_float(row[place])
