"""Properties by which calls of two runs are recognised: places of modules, shapes and contents of values."""

from __future__ import annotations

from collections.abc import Sequence

from probe_core.model import Kind, Record, Slot
from probe_core.store.names import parse_module_key
from probe_matching.view import ALONE

_NUMBERS = frozenset({"<class 'int'>", "<class 'float'>", "<class 'bool'>"})

ModulePlace = tuple[str, str, int]
"""A module's path in the model, its phase and its call number; independent of the name of its class."""


def parse_place(key: str) -> ModulePlace | None:
    """Return the place of a module record in the model; None for other records."""
    module = parse_module_key(key)
    return (module.path, module.phase, module.number or 0) if module else None


def get_form(slot: Slot) -> object:
    """Return the place of a value, its shape and the sort of its dtype."""
    dtype = slot.value.dtype
    if slot.value.kind is Kind.SCALAR and dtype in _NUMBERS:
        dtype = "number"
    return slot.side, slot.path, slot.value.extent, "float" if "float" in dtype.lower() else dtype


def get_content(slot: Slot) -> object:
    """Return the statistics of a tensor to three digits, which hides rounding; else its checksum."""
    value = slot.value
    numbers = tuple(f"{n:.2e}" if isinstance(n, float) else n for n in value.statistics)
    return numbers if any(n is not None for n in numbers) else value.checksum


def is_unpaired(slot: Slot) -> bool:
    """Return True for a value whose place has no partner."""
    return slot.path.startswith(ALONE)


def comparable(record: Record, is_loose: bool) -> Sequence[Slot]:
    """Return the values by which a call is recognised.

    These are all values; across frameworks (``is_loose``) only the tensors that may have a partner, in the
    order of their places, because the order of arguments may differ.
    """
    if not is_loose:
        return record.slots
    tensors = [slot for slot in record.slots if slot.value.kind is Kind.TENSOR and not is_unpaired(slot)]
    return sorted(tensors, key=lambda slot: slot.place)
