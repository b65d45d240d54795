"""What calls of two runs are told by: where a module stands, and what a value is like."""

from __future__ import annotations

import re
from collections.abc import Sequence

from probe_core.model import Kind, Record, Slot

_MODULE = re.compile(r"(?:Module|Cell)\.(?:(.*)\.)?[^.]+\.(forward|backward|parameters_grad)(?:\.(\d+))?$")
ALONE = "~"
"""The first character of the path of a value that has no partner."""
_NUMBERS = frozenset({"<class 'int'>", "<class 'float'>", "<class 'bool'>"})

Place = tuple[str, str, int]
"""A module's path in the model, its phase, and its ordinal; whatever its class is called."""


def place_of(key: str) -> Place | None:
    """Where in the model a module record stands; None for other records."""
    found = _MODULE.match(key)
    return (found[1] or "", found[2], int(found[3] or 0)) if found else None


def form_of(slot: Slot) -> object:
    """Where a value stands, its shape and the sort of its dtype."""
    dtype = slot.value.dtype
    if slot.value.kind is Kind.SCALAR and dtype in _NUMBERS:
        dtype = "number"
    return slot.side, slot.path, slot.value.extent, "float" if "float" in dtype.lower() else dtype


def content_of(slot: Slot) -> object:
    """What a tensor holds, to three digits, which rounding hardly changes; or its checksum; or None."""
    value = slot.value
    numbers = tuple(f"{n:.2e}" if isinstance(n, float) else n for n in value.statistics)
    return numbers if any(n is not None for n in numbers) else value.checksum


def is_alone(slot: Slot) -> bool:
    """True for a value that has no partner, by its place."""
    return slot.path.startswith(ALONE)


def comparable(record: Record, is_loose: bool) -> Sequence[Slot]:
    """The values that tell what a call is: all of them; of loose runs the tensors that may have a partner.

    Those come in the order of their places, for another framework may take them in another one.
    """
    if not is_loose:
        return record.slots
    tensors = [slot for slot in record.slots if slot.value.kind is Kind.TENSOR and not is_alone(slot)]
    return sorted(tensors, key=lambda slot: slot.place)
