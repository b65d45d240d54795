"""Assignment of the outputs of a backward call to the inputs of its forward call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from probe_core.model import Kind, Record, Side, Slot
from probe_core.model.dtypes import kind

UNKNOWN = None


def owners(backward: Record, forward: Record) -> list[str | None]:
    """Return the path of the input that each output of a backward call is the gradient of, or UNKNOWN.

    Recorders write gradients in the order of the inputs (with null for inputs without gradient, or without
    them), or in the framework's own order. Shapes decide between these. If they are ambiguous, as for a
    square matrix that may be transposed, the owner is unknown (docs/pairing.md#frameworks).
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
    """Return the inputs of a call that may have a gradient."""
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
    return all(out.value.kind is Kind.NULL or out.value.extent == own.value.extent for out, own in pairs)


def _embedded(given: Sequence[Slot], wanted: Sequence[Slot]) -> dict[str, str]:
    """Return the inputs whose shapes the outputs follow in order, if there is only one way."""
    first = _greedy(given, wanted)
    last = _greedy(given[::-1], wanted[::-1])
    return first if first == last else {}


def _greedy(given: Sequence[Slot], wanted: Sequence[Slot]) -> dict[str, str]:
    owners: dict[str, str] = {}
    rest = iter(wanted)
    for slot in given:
        owner = next((candidate for candidate in rest if candidate.value.extent == slot.value.extent), None)
        if owner is None:
            return {}
        owners[slot.path] = owner.path
    return owners


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
