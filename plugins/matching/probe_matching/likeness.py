"""Properties that identify calls in both runs: paths of modules, shapes and contents of values."""

from __future__ import annotations

from collections.abc import Sequence

from probe_core.model import Kind, Record, Slot
from probe_core.store.names import parse_module_key
from probe_matching.renamed_run import is_unpaired

_NUMBERS = frozenset({"<class 'int'>", "<class 'float'>", "<class 'bool'>"})

ModuleCall = tuple[str, str, int]
"""The path of a module, the phase of the call and its number; independent of the name of the module's class."""


def parse_module_call(key: str) -> ModuleCall | None:
    """Return the place of a module record in the model; None for other records."""
    module = parse_module_key(key)
    return (module.path, module.phase, module.number or 0) if module else None


def get_shape_key(slot: Slot) -> object:
    """Return the side and path of a value, its shape and a dtype that two frameworks share.

    This dtype is "float" for all floating-point dtypes, "number" for scalars, and else the recorded dtype.
    """
    dtype = slot.value.dtype
    if slot.value.kind is Kind.SCALAR and dtype in _NUMBERS:
        dtype = "number"
    return slot.side, slot.path, slot.value.extent, "float" if "float" in dtype.lower() else dtype


def get_content_key(slot: Slot) -> object:
    """Return the statistics of a tensor, rounded to three digits to hide rounding; without statistics, its checksum."""
    value = slot.value
    numbers = tuple(f"{n:.2e}" if isinstance(n, float) else n for n in value.statistics)
    return numbers if any(n is not None for n in numbers) else value.checksum


def select_comparable_slots(record: Record, is_across_frameworks: bool) -> Sequence[Slot]:
    """Return the values that identify a call.

    These are all values. Across frameworks, they are only the tensors that may have a partner, in the order of
    their paths, because the order of arguments may differ.
    """
    if not is_across_frameworks:
        return record.slots
    tensors = [slot for slot in record.slots if slot.value.kind is Kind.TENSOR and not is_unpaired(slot)]
    return sorted(tensors, key=lambda slot: slot.place)
