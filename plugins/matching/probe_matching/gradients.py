"""Which input of a call each output of its backward call is the gradient of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from probe_core.model import Kind, Record, Side, Slot
from probe_core.model.dtypes import kind

UNKNOWN = None


def owners(backward: Record, forward: Record) -> list[str | None]:
    """For each output of ``backward`` the path of the input of ``forward``, or UNKNOWN.

    Recorders note gradients in the order of the inputs, with null where there is none, or without the inputs
    that need none, or in an order of the framework's own. They are told apart by their shapes. Where those
    leave it open, it stays open: a matrix that may be a transposed one too.
    """
    outputs = [slot for slot in backward.slots if slot.side is Side.OUTPUT]
    tensors = [slot for slot in forward.slots if slot.side is Side.INPUT and slot.value.kind is Kind.TENSOR]
    if len(outputs) == len(tensors) and _agree(outputs, tensors):
        return [slot.path for slot in tensors]
    wanted = differentiable(forward)
    given = [slot for slot in outputs if slot.value.kind is Kind.TENSOR]
    chosen = _embedded(given, wanted) or _by_shape(given, wanted)
    return [chosen.get(slot.path) for slot in outputs]


def differentiable(forward: Record) -> list[Slot]:
    """The inputs of a call that may have a gradient."""
    return [
        slot
        for slot in forward.slots
        if slot.side is Side.INPUT
        and slot.value.kind is Kind.TENSOR
        and slot.value.requires_grad is not False
        and kind(slot.value.dtype) in ("float", "complex")
    ]


def _extents(slots: Sequence[Slot]) -> list[str]:
    return [slot.value.extent for slot in slots if slot.value.kind is Kind.TENSOR]


def _agree(outputs: Sequence[Slot], inputs: Sequence[Slot]) -> bool:
    pairs = zip(outputs, inputs)
    return all(one.value.kind is Kind.NULL or one.value.extent == two.value.extent for one, two in pairs)


def _embedded(given: Sequence[Slot], wanted: Sequence[Slot]) -> dict[str, str]:
    """The inputs that outputs of their shapes follow in order, where there is one way only."""
    first = _greedy(given, wanted)
    last = _greedy(given[::-1], wanted[::-1])
    return first if first == last else {}


def _greedy(given: Sequence[Slot], wanted: Sequence[Slot]) -> dict[str, str]:
    found: dict[str, str] = {}
    rest = iter(wanted)
    for slot in given:
        owner = next((one for one in rest if one.value.extent == slot.value.extent), None)
        if owner is None:
            return {}
        found[slot.path] = owner.path
    return found


def _by_shape(given: Sequence[Slot], wanted: Sequence[Slot]) -> dict[str, str]:
    counts = Counter(_extents(given)), Counter(_extents(wanted))
    return {
        slot.path: owner.path
        for slot in given
        for owner in wanted
        if owner.value.extent == slot.value.extent
        and all(count[slot.value.extent] == 1 for count in counts)
        and not _is_square(slot)
    }


def _is_square(slot: Slot) -> bool:
    shape = slot.value.shape or ()
    return len(shape) >= 2 and shape == shape[::-1]
