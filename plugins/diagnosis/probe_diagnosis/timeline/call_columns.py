"""The calls of a rank in the order of its record, with the differences of their values as columns."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, overload

import numpy as np

from probe_core.model.columns import Array, InternTable
from probe_diagnosis.collectives.calls import CommunicationCall, Peer, load_apis
from probe_diagnosis.timeline.value_table import (
    SAME_CODE,
    UNJUDGED_CODE,
    ValueTable,
    build_call_table,
    find_group_maxima,
)
from probe_diagnosis.timeline.views import CallView, is_module

_DERIVED_PROPERTIES = ("numbers", "call_of", "agrees", "has_other_argument", "lacking", "noise")
"""Properties that are computed again after calls were added."""


class CallColumns(Sequence[CallView]):
    """The calls of a rank; an item is a view of one call.

    Attributes:
        keys: The names of the calls.
        starts: The first line of each call in ``table``, then the number of lines.
        table: The differences of the values.
        within: The modules around each call, innermost first.
        communication: The calls that are communication, by their numbers.
        frames: The lines of code that made communication calls.
        goldens: The names of the golden's calls that have another name.
        shifted: The calls whose values are paired by the number of a call that one run makes more often.
        places: The places of calls in the file of a rank.
    """

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.starts = array("q", [0])
        self.table = ValueTable()
        self.within: list[tuple[str, ...]] = []
        self.communication: dict[int, CommunicationCall] = {}
        self.frames: dict[int, str] = {}
        self.goldens: dict[int, str] = {}
        self.shifted: set[int] = set()
        self.places: dict[int, tuple[int, int]] = {}
        self._views: dict[int, CallView] = {}

    def __len__(self) -> int:
        return len(self.keys)

    @overload
    def __getitem__(self, number: int) -> CallView: ...
    @overload
    def __getitem__(self, number: slice) -> list[CallView]: ...
    def __getitem__(self, number: int | slice) -> CallView | list[CallView]:
        """Return the view of a call, which is always the same object, or of several calls."""
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
        number = range(len(self))[number]
        if number not in self._views:
            key = self.keys[number]
            self._views[number] = CallView(
                key,
                self.table.views(self.starts[number], self.starts[number + 1], key),
                self.communication.get(number),
                self.within[number],
                self.places.get(number, (0, 0)),
                self.frames.get(number, ""),
                number in self.shifted,
                self.goldens.get(number, ""),
                bool(self.agrees[number]),
            )
        return self._views[number]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CallColumns) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]

    # -- filling -------------------------------------------------------------------------------------

    def extend(
        self, keys: Iterable[str], within: Iterable[tuple[str, ...]], counts: Iterable[int],
        table: ValueTable, lines: Array,
    ) -> None:  # fmt: skip
        """Append calls.

        Args:
            keys: Their names.
            within: The modules around each of them.
            counts: Their numbers of values.
            table: A table with their values.
            lines: The lines of the values in that table.
        """
        self.forget()
        self.table.extend(table, lines)
        for count in counts:
            self.starts.append(self.starts[-1] + count)
        self.within += within
        self.keys += keys  # the calls exist from here on, see ``drop_incomplete``

    def drop_incomplete(self) -> None:
        """Remove the calls that were being added when the comparison was interrupted."""
        self.forget()
        count = len(self)
        del self.within[count:], self.starts[count + 1 :]
        self.table.truncate(self.starts[count])

    def lines(self, number: int) -> range:
        """Return the lines of a call in ``table``."""
        return range(self.starts[number], self.starts[number + 1])

    def replace_values(self, number: int, values: Sequence[Any]) -> None:
        """Set the values of a call."""
        self.forget()
        for line, value in zip(self.lines(number), values):
            self.table.set(line, self.keys[number], value)

    @classmethod
    def from_calls(cls, calls: Iterable[CallView]) -> CallColumns:
        """Return calls as columns."""
        columns = cls()
        positions: list[str] = []
        for number, call in enumerate(calls):
            table, count = build_call_table(call.op, call.values), len(call.values)
            table.lines["row"] += len(positions)
            positions += [value.line for value in call.values]
            columns.extend([call.op], [call.within], [count], table, np.arange(count))
            if call.call is not None:
                columns.communication[number] = call.call
            if call.where:
                columns.frames[number] = call.where
            if call.golden:
                columns.goldens[number] = call.golden
            if call.is_shifted:
                columns.shifted.add(number)
            if call.place != (0, 0):
                columns.places[number] = call.place
        columns.table.position = positions.__getitem__
        return columns

    def forget(self) -> None:
        """Discard the views and the properties that depend on the table, which has changed."""
        self._views.clear()
        for name in _DERIVED_PROPERTIES:
            self.__dict__.pop(name, None)

    # -- properties of all calls ---------------------------------------------------------------------

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """The numbers of the calls by their names."""
        return {key: number for number, key in reversed([*enumerate(self.keys)])}

    @cached_property
    def call_of(self) -> Array:
        """The number of the call of each line."""
        return np.repeat(np.arange(len(self)), np.diff(np.asarray(self.starts)))

    @cached_property
    def agrees(self) -> Array:
        """True for calls that return floating-point tensors, all of which were compared and agree."""
        table = self.table
        is_returned = table.is_tensor & ~table.is_source
        is_other = is_returned & (table.lines["state"] != SAME_CODE)
        agrees: Array = self.has_any(is_returned & (table.lines["noise"] > 0)) & ~self.has_any(is_other)
        return agrees

    @cached_property
    def has_other_argument(self) -> Array:
        """True for calls with an argument that differs."""
        return self.has_any(self.table.differs & self.table.is_source & ~self.table.is_tensor)

    @cached_property
    def lacking(self) -> Array:
        """The number of tensors of each call that were not compared."""
        return self.count_lines((self.table.lines["state"] == UNJUDGED_CODE) & self.table.is_tensor)

    @cached_property
    def noise(self) -> float:
        """The largest relative distance that rounding explains of any value."""
        return float(self.table.lines["noise"].max(initial=0.0))

    def is_before_modules(self, key: str) -> bool:
        """Return True for a call outside of modules before the first call within one, such as of data preparation."""
        number = None if is_module(key) else self.numbers.get(key)
        first = next((index for index in range(len(self)) if self.within[index]), None)
        return number is not None and first is not None and number < first

    def has_any(self, wanted: Array) -> Array:
        """Return True for calls with a line in ``wanted``."""
        has_any: Array = self.count_lines(wanted) > 0
        return has_any

    def count_lines(self, wanted: Array) -> Array:
        """Return the number of lines of each call in ``wanted``."""
        sums = np.concatenate(([0], np.cumsum(wanted)))[np.asarray(self.starts)]
        return np.diff(sums)

    def find_largest(self, numbers: Array) -> Array:
        """Return the largest number of each call among non-negative ``numbers`` of all lines; 0 for none."""
        return np.maximum(find_group_maxima(numbers, np.asarray(self.starts)), 0.0)

    def iterate_with_other_argument(self) -> Iterator[CallView]:
        """Yield views of the calls with an argument that differs, in order."""
        yield from (self[number] for number in np.flatnonzero(self.has_other_argument).tolist())

    # -- as JSON data --------------------------------------------------------------------------------

    def plain(self) -> dict[str, Any]:
        """Return the calls as JSON data."""
        modules = InternTable()
        within = [modules.encode(names) for names in self.within]
        return {
            "keys": self.keys,
            "counts": np.diff(np.asarray(self.starts)).tolist(),
            "values": self.table.plain(),
            "modules": [[*names] for names in modules],
            "within": within,
            "communication": [
                [number, call.api.name, call.group, call.root, [[*peer] for peer in call.peers]]
                for number, call in self.communication.items()
            ],
            "frames": [[*item] for item in self.frames.items()],
            "goldens": [[*item] for item in self.goldens.items()],
            "shifted": sorted(self.shifted),
        }

    @classmethod
    def from_plain(cls, plain: Any) -> CallColumns:
        """Return the calls that ``plain`` returned.

        Raises:
            LookupError, TypeError, ValueError: The data does not describe calls.
        """
        columns = cls()
        table = ValueTable.from_plain(plain["values"])
        counts = [int(count) for count in plain["counts"]]
        modules = [tuple(map(str, names)) for names in plain["modules"]]
        within = [modules[code] for code in plain["within"]]
        keys = [str(key) for key in plain["keys"]]
        if not len(keys) == len(counts) == len(within) or min(counts, default=0) < 0:
            raise ValueError("each call needs a name, a number of values, and modules")
        if sum(counts) != len(table):
            raise ValueError("the calls and their values do not belong together")
        columns.keys, columns.within, columns.table = keys, within, table
        columns.starts = array("q", np.concatenate(([0], np.cumsum(counts, dtype=np.int64))).tolist())
        for number, api, group, root, peers in plain["communication"]:
            sides = tuple(Peer(int(rank), bool(sends)) for rank, sends in peers)
            columns.communication[int(number)] = CommunicationCall(load_apis()[api], tuple(group), root, sides)
        columns.frames = {int(number): str(frame) for number, frame in plain["frames"]}
        columns.goldens = {int(number): str(golden) for number, golden in plain["goldens"]}
        columns.shifted = {int(number) for number in plain["shifted"]}
        return columns
