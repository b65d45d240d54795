"""The calls of a rank in the order of its record, with the comparisons of their values as columns."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, overload

import numpy as np

from probe_core.model.columns import Array, InternTable
from probe_core.store.names import is_backward, is_gradient, is_module
from probe_diagnosis.collectives.calls import CommunicationCall, Peer, load_apis
from probe_diagnosis.timeline.compared_calls import ComparedCall
from probe_diagnosis.timeline.value_table import (
    SAME_CODE,
    UNJUDGED_CODE,
    ValueTable,
    build_call_table,
    find_group_maxima,
)

_DERIVED_PROPERTIES = (
    "call_numbers", "outputs_agree", "has_differing_argument", "not_compared_counts", "noise",
)  # fmt: skip
"""Properties that are computed again after the table changed."""

_KEY_PROPERTIES = ("numbers_by_key", "is_backward", "is_gradient", "effect_order")
"""Properties that are computed again after calls were added or removed."""


class CallColumns(Sequence[ComparedCall]):
    """The calls of a rank; an item is one call.

    Attributes:
        keys: The names of the calls.
        starts: The first line of each call in ``table``, then the number of lines.
        table: The comparisons of the values.
        modules: The modules around each call, innermost first.
        communication: The calls that are communication, by their numbers.
        code_lines: The lines of code that made communication calls.
        golden_ops: The keys of the golden's calls that have another key.
        shifted_numbers: The calls whose values are paired by the number of a call that one run makes more often.
        file_ranges: The offsets of the entries of calls in the file of a rank.
    """

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.starts = array("q", [0])
        self.table = ValueTable()
        self.modules: list[tuple[str, ...]] = []
        self.communication: dict[int, CommunicationCall] = {}
        self.code_lines: dict[int, str] = {}
        self.golden_ops: dict[int, str] = {}
        self.shifted_numbers: set[int] = set()
        self.file_ranges: dict[int, tuple[int, int]] = {}
        self._calls: dict[int, ComparedCall] = {}

    def __len__(self) -> int:
        return len(self.keys)

    @overload
    def __getitem__(self, number: int) -> ComparedCall: ...
    @overload
    def __getitem__(self, number: slice) -> list[ComparedCall]: ...
    def __getitem__(self, number: int | slice) -> ComparedCall | list[ComparedCall]:
        """Return a call, which is always the same object, or several calls."""
        if isinstance(number, slice):
            return [self[index] for index in range(*number.indices(len(self)))]
        number = range(len(self))[number]
        if number not in self._calls:
            key = self.keys[number]
            self._calls[number] = ComparedCall(
                key,
                self.table.create_comparisons(self.starts[number], self.starts[number + 1], key),
                self.communication.get(number),
                self.modules[number],
                self.file_ranges.get(number, (0, 0)),
                self.code_lines.get(number, ""),
                number in self.shifted_numbers,
                self.golden_ops.get(number, ""),
                bool(self.outputs_agree[number]),
            )
        return self._calls[number]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CallColumns) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]

    # -- filling -------------------------------------------------------------------------------------

    def extend(
        self, keys: Iterable[str], modules: Iterable[tuple[str, ...]], counts: Iterable[int],
        table: ValueTable, lines: Array,
    ) -> None:  # fmt: skip
        """Append calls.

        Args:
            keys: Their names.
            modules: The modules around each of them.
            counts: Their numbers of values.
            table: A table with their values.
            lines: The lines of the values in that table.
        """
        self._clear(_DERIVED_PROPERTIES + _KEY_PROPERTIES)
        self.table.extend(table, lines)
        for count in counts:
            self.starts.append(self.starts[-1] + count)
        self.modules += modules
        self.keys += keys  # the calls exist from here on, see ``drop_incomplete``

    def drop_incomplete(self) -> None:
        """Remove the calls that were being added when the comparison was interrupted."""
        self._clear(_DERIVED_PROPERTIES + _KEY_PROPERTIES)
        count = len(self)
        del self.modules[count:], self.starts[count + 1 :]
        self.table.truncate(self.starts[count])

    def get_lines(self, number: int) -> range:
        """Return the lines of a call in ``table``."""
        return range(self.starts[number], self.starts[number + 1])

    def name_line(self, line: int) -> str:
        """Return the row name of a line of ``table``."""
        return self.table.get_row_name(line, self.keys[int(self.call_numbers[line])])

    def replace_values(self, number: int, values: Sequence[Any]) -> None:
        """Set the values of a call."""
        self.clear_caches()
        for line, value in zip(self.get_lines(number), values):
            self.table.set_line(line, self.keys[number], value)

    @classmethod
    def from_calls(cls, calls: Iterable[ComparedCall]) -> CallColumns:
        """Return calls as columns."""
        columns = cls()
        positions: list[str] = []
        for number, call in enumerate(calls):
            table, count = build_call_table(call.op, call.values), len(call.values)
            table.lines["row"] += len(positions)
            positions += [value.position for value in call.values]
            columns.extend([call.op], [call.modules], [count], table, np.arange(count))
            if call.communication is not None:
                columns.communication[number] = call.communication
            if call.code_line:
                columns.code_lines[number] = call.code_line
            if call.golden_op:
                columns.golden_ops[number] = call.golden_op
            if call.is_shifted:
                columns.shifted_numbers.add(number)
            if call.file_range != (0, 0):
                columns.file_ranges[number] = call.file_range
        columns.table.get_row_position = positions.__getitem__
        return columns

    def clear_caches(self) -> None:
        """Discard the items and the properties that depend on the table, which has changed."""
        self._clear(_DERIVED_PROPERTIES)

    def _clear(self, properties: Iterable[str]) -> None:
        self._calls.clear()
        for name in properties:
            self.__dict__.pop(name, None)

    # -- properties of all calls ---------------------------------------------------------------------

    @cached_property
    def numbers_by_key(self) -> Mapping[str, int]:
        """The numbers of the calls by their names."""
        return {key: number for number, key in reversed([*enumerate(self.keys)])}

    @cached_property
    def is_backward(self) -> Sequence[bool]:
        """True for calls of the backward pass."""
        return [*map(is_backward, self.keys)]

    @cached_property
    def is_gradient(self) -> Sequence[bool]:
        """True for the gradients of the parameters of a module."""
        return [*map(is_gradient, self.keys)]

    @cached_property
    def effect_order(self) -> Sequence[int]:
        """The numbers of the calls in the order of their effects.

        Modules come after the calls within them. Gradients of parameters are recorded too early. They are complete
        after the last backward call, and before the calls of an optimizer that uses them.
        """
        numbers = self._order_modules_last()
        gradients = [number for number in numbers if self.is_gradient[number]]
        others = [number for number in numbers if not self.is_gradient[number]]
        end = len(others) - 1
        last = next((index for index in range(end, -1, -1) if self.is_backward[others[index]]), end)
        return [*others[: last + 1], *gradients, *others[last + 1 :]]

    def _order_modules_last(self) -> list[int]:
        """Return the numbers of the calls, with modules after the calls within them and inner before outer modules."""
        ends: dict[str, int] = {}
        previous: tuple[str, ...] = ()
        for number in range(len(self) - 1, -1, -1):
            within = self.modules[number]
            if within is not previous:
                previous = within
                for module in within:
                    ends.setdefault(module, number)
        numbers = [*range(len(self))]
        module_ends = {number: end for number, key in enumerate(self.keys) if (end := ends.get(key, number)) > number}
        if module_ends:
            numbers.sort(
                key=lambda number: (module_ends.get(number, number), number in module_ends and len(self) - number)
            )
        return numbers

    @cached_property
    def call_numbers(self) -> Array:
        """The number of the call of each line."""
        return np.repeat(np.arange(len(self)), np.diff(np.asarray(self.starts)))

    @cached_property
    def outputs_agree(self) -> Array:
        """True for calls that return floating-point tensors, all of which were compared and agree."""
        table = self.table
        is_returned = table.is_tensor & ~table.is_source
        is_other = is_returned & (table.lines["state"] != SAME_CODE)
        agrees: Array = self.has_any(is_returned & (table.lines["noise"] > 0)) & ~self.has_any(is_other)
        return agrees

    @cached_property
    def has_differing_argument(self) -> Array:
        """True for calls with an argument that differs."""
        return self.has_any(self.table.differs & self.table.is_source & ~self.table.is_tensor)

    @cached_property
    def not_compared_counts(self) -> Array:
        """The number of tensors of each call that were not compared."""
        return self.count_lines((self.table.lines["state"] == UNJUDGED_CODE) & self.table.is_tensor)

    @cached_property
    def noise(self) -> float:
        """The largest relative distance that rounding explains of any value."""
        return float(self.table.lines["noise"].max(initial=0.0))

    def is_before_modules(self, key: str) -> bool:
        """Return True for a call outside of modules before the first call within one, such as of data preparation."""
        number = None if is_module(key) else self.numbers_by_key.get(key)
        first = next((index for index, modules in enumerate(self.modules) if modules), None)
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

    def iterate_with_differing_argument(self) -> Iterator[ComparedCall]:
        """Yield the calls with an argument that differs, in order."""
        yield from (self[number] for number in np.flatnonzero(self.has_differing_argument).tolist())

    # -- as JSON data --------------------------------------------------------------------------------

    def plain(self) -> dict[str, Any]:
        """Return the calls as JSON data."""
        modules = InternTable()
        within = [modules.encode(names) for names in self.modules]
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
            "frames": [[*item] for item in self.code_lines.items()],
            "goldens": [[*item] for item in self.golden_ops.items()],
            "shifted": sorted(self.shifted_numbers),
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
        columns.keys, columns.modules, columns.table = keys, within, table
        columns.starts = array("q", np.concatenate(([0], np.cumsum(counts, dtype=np.int64))).tolist())
        for number, api, group, root, peers in plain["communication"]:
            sides = tuple(Peer(int(rank), bool(sends)) for rank, sends in peers)
            columns.communication[int(number)] = CommunicationCall(load_apis()[api], tuple(group), root, sides)
        columns.code_lines = {int(number): str(frame) for number, frame in plain["frames"]}
        columns.golden_ops = {int(number): str(golden) for number, golden in plain["goldens"]}
        columns.shifted_numbers = {int(number) for number in plain["shifted"]}
        return columns
