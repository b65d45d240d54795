"""Batches of rows as columns, and ``Row`` views of single rows.

A batch holds some thousands of consecutive rows of the table, and it always holds all rows of an op. Every stage
of a comparison adds its columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from typing import Any

import numpy as np

from probe_core.model.columns import BIG_INTEGER, NONE, NULL, SCALAR, TEXT, Array, ValueColumns
from probe_core.model.dtypes import is_same_dtype
from probe_core.model.results import BatchResults, LineMeasurements, VerdictColumn
from probe_core.model.rows import Mark, MatchKind, Op, Pair, Reason, ReplacedVerdict, Row, Ruling
from probe_core.model.values import OMISSIONS, Slot

PAIRS_PER_BLOCK = 256
"""Number of pairs that are created together."""
ABSENT = -1
"""Line of a side of a pair that is missing."""
MATCH_KINDS = tuple(MatchKind)
"""Ways of matching; the position is the code."""
OBSTACLES = (None, Reason("no_target"), Reason("no_golden"), Reason("shape"), *map(Reason, OMISSIONS))
"""Reasons why recorded metadata cannot be compared; the position is the code."""
NO_TARGET, NO_GOLDEN, SHAPE, FIRST_OMISSION = 1, 2, 3, 4
"""Codes in ``OBSTACLES``; the reasons in ``OMISSIONS`` begin at the last code."""
_IS_NUMERIC = np.array([kind not in (NONE, TEXT) for kind in range(BIG_INTEGER + 1)])
_NOTE_REASONS = tuple(
    map(Reason, ("no_target", "no_golden", "region", "requires_grad", "dtype", "scalar_differs", "fuzzy"))
)


class PairSide:
    """One side of the rows of a batch.

    Attributes:
        columns: The values of the run.
        lines: The line of the value of each row, or ``ABSENT``.
        is_present: False for rows without a value on this side.
    """

    def __init__(self, columns: ValueColumns, lines: Array) -> None:
        self.columns, self.lines, self.is_present = columns, lines, lines != ABSENT
        self._columns: dict[str, Array] = {}

    def column(self, name: str) -> Array:
        """Return a column of the values; rows without a value hold the entry of line 0."""
        if name not in self._columns:
            self._columns[name] = getattr(self.columns, name)[np.maximum(self.lines, 0)]
        return self._columns[name]

    def checksums(self) -> list[str | None]:
        """Return the checksum of each row; None if it was not recorded."""
        recorded = self.columns.checksums
        return [None if line == ABSENT else recorded[line] for line in self.lines.tolist()]

    def slots(self, lines: Array) -> list[Slot | None]:
        """Return views of the values of some rows."""
        value_lines = self.lines[lines]
        if (value_lines != ABSENT).all():
            return [*self.columns.slots(value_lines)]
        slots = iter(self.columns.slots(value_lines[value_lines != ABSENT]))
        return [None if line == ABSENT else next(slots) for line in value_lines.tolist()]


class RowBatch:
    """Consecutive rows of the table with all rows of their ops.

    Args:
        first_op: The position of the first op among all ops of the table.
        ops: The names of the ops.
        starts: The first row of each op in the batch, followed by the number of rows.
        target: The target side.
        golden: The golden side.
        match_codes: Codes in ``MATCH_KINDS``.
        create_op: Function that returns the context of an op.
        find_stack: Function that returns the frames of an op, innermost first, or None.
        translations: A cache that batches of the same runs share.

    Attributes:
        results: The measurements, and the verdicts of the policies.
        marks: The highlights by row.
        changes: The verdicts that judges changed by row.
    """

    def __init__(
        self,
        first_op: int,
        ops: Sequence[str],
        starts: Array,
        target: PairSide,
        golden: PairSide,
        match_codes: Array,
        create_op: Callable[[str], Op] = Op,
        find_stack: Callable[[str], tuple[str, ...] | None] = lambda op: None,
        translations: dict[str, Array] | None = None,
    ) -> None:
        self.first_op, self.ops, self.starts = first_op, ops, starts
        self.target, self.golden, self.match_codes = target, golden, match_codes
        self.results = BatchResults()
        self.marks: dict[int, Mark] = {}
        self.changes: dict[int, tuple[ReplacedVerdict, ...]] = {}
        self._create_op, self._find_op_stack = create_op, find_stack
        self._translations = {} if translations is None else translations
        self._pairs: list[Pair | None] = [None] * len(match_codes)
        self._rows: list[Row | None] = [None] * len(match_codes)

    def __len__(self) -> int:
        return len(self.match_codes)

    @property
    def verdicts(self) -> VerdictColumn:
        """The verdicts of the policy of the table, as changed by judges."""
        assert self.results.verdicts is not None
        return self.results.verdicts

    # -- facts about the pairs ---------------------------------------------------------------------

    @cached_property
    def is_matched(self) -> Array:
        """True for rows with both sides."""
        is_matched: Array = self.target.is_present & self.golden.is_present
        return is_matched

    @cached_property
    def obstacles(self) -> Array:
        """Codes in ``OBSTACLES``."""
        nulls = [side.column("kind") == NULL for side in (self.target, self.golden)]
        differs = (nulls[0] != nulls[1]) | ~self.have_equal_extents
        codes = np.where(differs, SHAPE, 0)
        codes = np.where(self.omission > 0, FIRST_OMISSION - 1 + self.omission, codes)
        codes[~self.golden.is_present] = NO_GOLDEN
        codes[~self.target.is_present] = NO_TARGET
        return codes

    @cached_property
    def omission(self) -> Array:
        """The position of the reason of each row in ``OMISSIONS``, starting at 1; 0 for rows to compare."""
        sides = (np.where(side.is_present, side.column("omission"), 0) for side in (self.target, self.golden))
        return np.maximum(*sides).astype(int)

    @cached_property
    def have_equal_extents(self) -> Array:
        """True for rows whose sides have the same shape, as recorded."""
        return self._compare_texts("extent", lambda extent: extent[0])

    @cached_property
    def have_same_dtypes(self) -> Array:
        """True for rows whose sides have the same dtype, even if it is spelled differently."""
        are_same = self._compare_texts("dtype", str)
        tables = self.target.columns.dtypes, self.golden.columns.dtypes
        codes = self.target.column("dtype"), self.golden.column("dtype")
        for line in np.flatnonzero(~are_same & self.is_matched).tolist():
            are_same[line] = is_same_dtype(tables[0][codes[0][line]], tables[1][codes[1][line]])
        return are_same

    @cached_property
    def requires_grad_differs(self) -> Array:
        """``Pair.requires_grad_differs`` of each row."""
        differs: Array = self.target.column("grad") != self.golden.column("grad")
        return self._evaluate_pair_property("requires_grad_differs", differs)

    @cached_property
    def scalars_differ(self) -> Array:
        """``Pair.scalars_differ`` of each row."""
        are_scalars = (self.target.column("kind") == SCALAR) & (self.golden.column("kind") == SCALAR)
        is_equal = self.equal_statistics[:, 0] & (self.target.column("types")[:, 0] != NONE)
        return self._evaluate_pair_property("scalars_differ", are_scalars & ~is_equal)

    @cached_property
    def equal_statistics(self) -> Array:
        """True where both sides have the same statistic by Python's ``==``, of shape (rows, 4)."""
        sides = self.target, self.golden
        (types, numbers), (ref_types, ref_numbers) = ((side.column("types"), side.column("numbers")) for side in sides)
        are_numbers = _IS_NUMERIC[types] & _IS_NUMERIC[ref_types]
        equal: Array = (are_numbers & (numbers == ref_numbers)) | ((types == NONE) & (ref_types == NONE))
        are_texts = (types == TEXT) & (ref_types == TEXT)
        if are_texts.any():
            codes = self._encode_texts("texts", str)[np.where(are_texts, ref_numbers, 0).astype(int)]
            equal |= are_texts & (codes == numbers)
        for line in np.flatnonzero(((types == BIG_INTEGER) | (ref_types == BIG_INTEGER)).any(axis=1)).tolist():
            target, golden = self.pair(line)[:2]
            if target is not None and golden is not None:
                values = zip(target.value.statistics, golden.value.statistics)
                equal[line] = [number == reference for number, reference in values]
        return equal

    @cached_property
    def flags(self) -> Array:
        """The notes of each row as bits, in the order of ``_NOTE_REASONS``."""
        is_fuzzy = self.match_codes == MATCH_KINDS.index(MatchKind.FUZZY)
        bits = (
            ~self.target.is_present,
            self.target.is_present & ~self.golden.is_present,
            self.match_codes == MATCH_KINDS.index(MatchKind.REGION),
            self.requires_grad_differs,
            self.is_matched & self.have_equal_extents & ~self.have_same_dtypes,
            self.scalars_differ,
            self._evaluate_pair_property("names_differ", is_fuzzy),
        )
        flags = np.zeros(len(self), np.uint8)
        for place, bit in enumerate(bits):
            flags |= bit.astype(np.uint8) << place
        return flags

    def notes(self, line: int) -> tuple[Reason, ...]:
        """Return the reasons that do not depend on measurements (docs/tables.md#messages)."""
        return decode_notes(int(self.flags[line]))

    def has_reason(self, is_wanted: Callable[[Reason], object]) -> Array:
        """Return True for rows with a reason for which ``is_wanted`` is true; highlights do not count."""
        by_flags = [any(map(is_wanted, decode_notes(flags))) for flags in range(1 << len(_NOTE_REASONS))]
        has_reason: Array = np.array(by_flags)[self.flags]
        for column in self.results.measurements.values():
            reasons = [measurement.reason for measurement in column.others]
            has_reason |= np.array([bool(reason and is_wanted(reason)) for reason in reasons])[column.codes]
        return has_reason | self.verdicts.map_verdicts(lambda verdict: any(map(is_wanted, verdict.reasons)))

    def mark(self, line: int, mark: Mark) -> None:
        """Highlight a row."""
        self._rows[line] = None
        self.marks[line] = mark

    def reasons(self, line: int) -> list[Reason]:
        """Return all reasons of a row except those of its highlight."""
        columns = self.results.measurements.values()
        measured = [column.others[code].reason for column in columns if (code := column.codes[line])]
        return [*self.notes(line), *filter(None, measured), *self.verdicts.table[self.verdicts.codes[line]].reasons]

    def _compare_texts(self, name: str, text: Callable[[Any], str]) -> Array:
        """Return True for rows whose entries in the tables of a column have the same text."""
        codes = self._encode_texts(f"{name}s", text)[self.golden.column(name)]
        first = self._encode_texts(f"{name}s", text, of_target=True)[self.target.column(name)]
        equal: Array = codes == first
        return equal

    def _encode_texts(self, table: str, text: Callable[[Any], str], *, of_target: bool = False) -> Array:
        """Return the first position in the table of the target of each text of the golden's table, or ``ABSENT``."""
        key = f"{table} of the {'target' if of_target else 'golden'}"
        if key not in self._translations:
            tables = [[*map(text, getattr(side.columns, table))] for side in (self.target, self.golden)]
            places = {entry: place for place, entry in reversed([*enumerate(tables[0])])}
            codes = [places.get(entry, ABSENT) for entry in tables[0 if of_target else 1]]
            self._translations[key] = np.array(codes or [ABSENT])
        return self._translations[key]

    def _evaluate_pair_property(self, name: str, candidates: Array) -> Array:
        """Return a property of ``Pair`` for the matched rows in ``candidates``, and False for the others."""
        truth = candidates & self.is_matched
        for line in np.flatnonzero(truth).tolist():
            truth[line] = getattr(self.pair(line), name)
        return truth

    # -- views ---------------------------------------------------------------------------------------

    def pair(self, line: int) -> Pair:
        """Return the pair of a row."""
        pair = self._pairs[line]
        if pair is None:
            start = line - line % PAIRS_PER_BLOCK
            pair = self.pairs(start, min(start + PAIRS_PER_BLOCK, len(self)))[line - start]
        return pair

    def pairs(self, start: int, stop: int) -> list[Pair]:
        """Return the pairs of the rows from ``start`` up to ``stop``."""
        if None in self._pairs[start:stop]:
            lines = np.arange(start, stop)
            sides = self.target.slots(lines), self.golden.slots(lines)
            self._pairs[start:stop] = [
                Pair(target, golden, MATCH_KINDS[match_code])
                for target, golden, match_code in zip(*sides, self.match_codes[start:stop].tolist())
            ]
        return self._pairs[start:stop]  # type: ignore[return-value]

    def op(self, number: int) -> Op:
        """Return the context of an op of the batch."""
        return self._create_op(self.ops[number])

    def find_op_key(self, line: int) -> str:
        """Return the name of the op of a row."""
        return self.ops[int(np.searchsorted(self.starts, line, "right")) - 1]

    def lines(self, number: int) -> range:
        """Return the rows of an op of the batch."""
        return range(self.starts[number], self.starts[number + 1])

    def rows(self, number: int) -> list[Row]:
        """Return the rows of an op of the batch."""
        lines = self.lines(number)
        if None in self._rows[lines.start : lines.stop]:
            self._create_rows(lines.start, lines.stop)
        return self._rows[lines.start : lines.stop]  # type: ignore[return-value]

    def _create_rows(self, start: int, stop: int) -> None:
        """Create the views of the rows from ``start`` up to ``stop``."""
        results, lines = self.results, slice(start, stop)
        names = tuple(results.further)
        op_of = np.searchsorted(self.starts, np.arange(start, stop), "right") - 1
        for line, number, pair, flags, verdict, *further in zip(
            range(start, stop), op_of.tolist(), self.pairs(start, stop), self.flags[lines].tolist(),
            self.verdicts.items(lines), *(column.items(lines) for column in results.further.values()),
        ):  # fmt: skip
            self._rows[line] = Row(
                pair,
                self.ops[number],
                LineMeasurements(results.measurements, line),
                verdict,
                decode_notes(flags),
                self.marks.get(line),
                self.stack(number) if line == self.stack_lines.get(number) else None,
                dict(zip(names, further)),
                self.changes.get(line, ()),
            )

    @cached_property
    def stack_lines(self) -> Mapping[int, int]:
        """The row of each op at which the table shows its call stack: the first with a target."""
        present = np.flatnonzero(self.target.is_present)
        places = np.searchsorted(present, self.starts[:-1])
        lines = {n: int(present[place]) for n, place in enumerate(places.tolist()) if place < len(present)}
        return {n: line for n, line in lines.items() if line < self.starts[n + 1]}

    def stack(self, number: int) -> tuple[str, ...] | None:
        """Return the recorded frames of an op, innermost first."""
        return self._find_op_stack(self.ops[number])

    def all_rows(self) -> Iterator[tuple[str, list[Row]]]:
        """Yield the name and the rows of each op."""
        if None in self._rows:
            self._create_rows(0, len(self))
        for number, op in enumerate(self.ops):
            yield op, self.rows(number)

    def find_ops(self, is_wanted: Array) -> list[int]:
        """Return the ops of the batch with a row in ``is_wanted``."""
        ops = np.searchsorted(self.starts, np.flatnonzero(is_wanted), "right") - 1
        return [*dict.fromkeys(ops.tolist())]  # np.unique imports numpy.ma, which takes 40 ms

    # -- changes -------------------------------------------------------------------------------------

    def rule(self, line: int, judge: str, ruling: Ruling) -> None:
        """Replace the verdict of a row by that of a judge, and keep the old verdict in ``changes``."""
        self._rows[line] = None
        change = ReplacedVerdict(judge, self.verdicts[line], ruling.reason)
        self.changes[line] = (*self.changes.get(line, ()), change)
        self.verdicts[line] = ruling.verdict
        if ruling.further is not None:
            for verdicts in self.results.further.values():
                verdicts[line] = ruling.further


@cache
def decode_notes(flags: int) -> tuple[Reason, ...]:
    """Return the reasons that the bits of ``flags`` encode."""
    return tuple(note for place, note in enumerate(_NOTE_REASONS) if flags >> place & 1)
