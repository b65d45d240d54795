"""Runs in memory for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from probe_core.model import Mode, Record, Side, Slot, Value
from probe_core.model.run import Header, HeldRun
from probe_core.testing.pairs import Array, value_of

Calls = Mapping[str, tuple[Sequence[Array], Sequence[Array]]]
"""The inputs and outputs of each call, by the name of its record."""


class ArrayRun(HeldRun):
    """A run of mode tensor whose arrays are in memory."""

    def __init__(self, calls: Calls, name: str = "dump.json") -> None:
        self._arrays: dict[str, Array] = {}
        records = [Record(index, key, self._create_slots(key, *calls[key])) for index, key in enumerate(calls)]
        super().__init__(Path(name), Header("tensor", "L1", "none"), Mode.TENSOR, records)

    def _create_slots(self, key: str, inputs: Sequence[Array], outputs: Sequence[Array]) -> tuple[Slot, ...]:
        slots: list[Slot] = []
        for side, arrays in ((Side.INPUT, inputs), (Side.OUTPUT, outputs)):
            for place, array in enumerate(arrays):
                name = f"{key}.{side.value}.{place}"
                self._arrays[name] = array
                slots.append(Slot(name, side, str(place), value_of(array)._replace(data_name=name)))
        return tuple(slots)

    def tensor(self, value: Value) -> Array:
        """Return the array of a value."""
        assert value.data_name is not None
        return self._arrays[value.data_name]
