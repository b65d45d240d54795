"""Assignment of the outputs of a backward call to the inputs of its forward call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from probe_core.model import Kind, Record, Side, Slot
from probe_core.model.dtypes import get_dtype_kind


def find_owners(backward: Record, forward: Record) -> list[str | None]:
    """Return the path of the input that each output of a backward call is the gradient of; None if it is unknown.

    Recorders write gradients in the order of the inputs (with null for inputs without gradient, or without
    them), or in the framework's own order. Shapes decide between these. If they are ambiguous, as for a
    square matrix that may be transposed, the owner is unknown (docs/pairing.md#frameworks).
    """
    outputs = [slot for slot in backward.slots if slot.side is Side.OUTPUT]
    tensors = [slot for slot in forward.slots if slot.side is Side.INPUT and slot.value.kind is Kind.TENSOR]
    if len(outputs) == len(tensors) and _has_equal_extents(outputs, tensors):
        return [slot.path for slot in tensors]
    inputs = find_differentiable_inputs(forward)
    gradients = [slot for slot in outputs if slot.value.kind is Kind.TENSOR]
    owner_paths = _match_in_order(gradients, inputs) or _match_by_shape(gradients, inputs)
    return [owner_paths.get(slot.path) for slot in outputs]


def find_differentiable_inputs(forward: Record) -> list[Slot]:
    """Return the inputs of a call that may have a gradient."""
    return [
        slot
        for slot in forward.slots
        if slot.side is Side.INPUT
        and slot.value.kind is Kind.TENSOR
        and slot.value.requires_grad is not False
        and get_dtype_kind(slot.value.dtype) in ("float", "complex")
    ]


def _collect_extents(slots: Sequence[Slot]) -> list[str]:
    return [slot.value.extent for slot in slots if slot.value.kind is Kind.TENSOR]


def _has_equal_extents(outputs: Sequence[Slot], inputs: Sequence[Slot]) -> bool:
    pairs = zip(outputs, inputs)
    return all(
        output.value.kind is Kind.NULL or output.value.extent == input_slot.value.extent for output, input_slot in pairs
    )


def _match_in_order(gradients: Sequence[Slot], inputs: Sequence[Slot]) -> dict[str, str]:
    """Return the inputs whose shapes the outputs follow in order, if there is only one way."""
    first = _match_greedily(gradients, inputs)
    last = _match_greedily(gradients[::-1], inputs[::-1])
    return first if first == last else {}


def _match_greedily(gradients: Sequence[Slot], inputs: Sequence[Slot]) -> dict[str, str]:
    find_owners: dict[str, str] = {}
    rest = iter(inputs)
    for slot in gradients:
        owner = next((candidate for candidate in rest if candidate.value.extent == slot.value.extent), None)
        if owner is None:
            return {}
        find_owners[slot.path] = owner.path
    return find_owners


def _match_by_shape(gradients: Sequence[Slot], inputs: Sequence[Slot]) -> dict[str, str]:
    counts = Counter(_collect_extents(gradients)), Counter(_collect_extents(inputs))
    return {
        slot.path: owner.path
        for slot in gradients
        for owner in inputs
        if owner.value.extent == slot.value.extent
        and all(count[slot.value.extent] == 1 for count in counts)
        and not _is_square(slot)
    }


def _is_square(slot: Slot) -> bool:
    shape = slot.value.shape or ()
    return len(shape) >= 2 and shape == shape[::-1]
