"""The walk over all pairs of values that decides how each is compared by rows.

Shapes decide first (``axes``). Where they allow several layouts, as in a batch that is only reordered,
the layout is settled by where the value comes from, and by the data: a layout can only be wrong about a
value if it moves its elements apart, so that the nearest layout is that of a value that agrees. A value that
no layout brings together is compared in the layout of what its call receives, if that is known, and its axis
is otherwise unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from probe_core.errors import UnreadableTensor
from probe_core.files.mapped import watched
from probe_core.model import Kind, Record, Side, Slot, Value
from probe_core.model.dtypes import kind
from probe_core.model.run import Run
from probe_core.store.names import is_gradient
from probe_matching.rows.axes import Layout, Part, is_size, readings
from probe_matching.rows.decisions import (
    AXIS,
    REDUCED,
    SHARED,
    SIZE,
    WHOLE,
    Decision,
    omitted,
    selected,
)
from probe_matching.rows.distances import FAR, distance, scale_between
from probe_matching.rows.gather import Array, gather
from probe_matching.rows.limits import limits
from probe_matching.rows.places import Places

Print = tuple[object, ...]


class Survey:
    """The decisions on all pairs of values of two runs.

    Args:
        target: The target.
        golden: The golden.
        places: The common places of both batches.

    Attributes:
        decisions: The decision on each value of both runs, by the name of its record and its place there.
        by_print: For both runs, the decisions on tensors by their fingerprints.
        scale: The factor between gradients of both runs; None if no gradient was selected.
    """

    def __init__(self, target: Run, golden: Run, places: tuple[Places, Places]) -> None:
        self._runs = target, golden
        self._places = places
        self._batches = places[0].batch, places[1].batch
        self.decisions: dict[tuple[str, Side, str], Decision] = {}
        self.by_print: tuple[dict[Print, Decision], dict[Print, Decision]] = {}, {}
        self.scale: float | None = None
        self._known: dict[tuple[Print, Print], Decision] = {}
        self._returned: dict[Print, bool] = {}
        self._parameters = {
            fingerprint(slot.value)
            for record in target.records()
            for slot in record.slots
            if slot.side is Side.PARAMETERS and slot.value.kind is Kind.TENSOR
        }
        self._by_shape: dict[str, dict[tuple[int, ...], set[Decision]]] = {}
        for record in target.records():
            place = golden.find(record.key)
            if place is not None:
                self._decide(record, golden.record(place))

    # -- records -----------------------------------------------------------------------------------

    def _decide(self, record: Record, other: Record) -> None:
        """Decide on the values of a pair of records; sources first, for the others follow from them."""
        others = {slot.place: slot for slot in other.slots}
        pairs = [(slot, others[slot.place]) for slot in record.slots if slot.place in others]
        sources: list[Decision] = []
        for slot, partner in sorted(pairs, key=lambda pair: not pair[0].side.is_source):
            decision = self._decision(record.key, slot, partner, sources)
            if decision is None:
                continue
            side, path = slot.place
            self.decisions[record.key, side, path] = decision
            if slot.value.kind is not Kind.TENSOR:
                continue
            for own, value in zip(self.by_print, (slot.value, partner.value)):
                own.setdefault(fingerprint(value), decision)
            self._by_shape.setdefault(record.key, {}).setdefault(slot.value.shape or (), set()).add(decision)
            if slot.side.is_source:
                sources.append(decision)
            else:
                self._returned[fingerprint(slot.value)] = decision.depends_on_batch

    def _decision(self, key: str, slot: Slot, partner: Slot, sources: Sequence[Decision]) -> Decision | None:
        """Return the decision on a pair of values; None for values that have nothing to do with rows."""
        value, other = slot.value, partner.value
        if value.kind is not Kind.TENSOR or other.kind is not Kind.TENSOR:
            return omitted(SIZE) if self._are_sizes(value, other) else None
        if value.is_empty and other.is_empty:
            return None
        prints = fingerprint(value), fingerprint(other)
        if slot.side is Side.PARAMETERS or (prints[0] in self._parameters and not _is_backward(key)):
            return omitted(SHARED, is_other=prints[0] != prints[1])
        if slot.side is Side.PARAMETERS_GRAD or is_gradient(key):
            return omitted(REDUCED)
        known = self._known.get(prints)
        if known is None:
            known = self._known[prints] = self._examine(key, slot, partner, sources)
        return known

    def _are_sizes(self, target: Value, golden: Value) -> bool:
        """Return True for two different numbers, or lists of them, that follow from the sizes of batches."""
        if target.kind is not Kind.SCALAR or golden.kind is not Kind.SCALAR:
            return False
        first, second = target.statistics.max, golden.statistics.max
        if first is None or second is None:  # a size or a slice, which has a checksum only
            return target.checksum != golden.checksum
        are_numbers = type(first) is int and type(second) is int
        return are_numbers and first != second and is_size(first, second, self._batches)  # type: ignore[arg-type]

    # -- tensors -----------------------------------------------------------------------------------

    def _examine(self, key: str, slot: Slot, partner: Slot, sources: Sequence[Decision]) -> Decision:
        """Return the decision on a pair of tensors that were not seen before."""
        value, other = slot.value, partner.value
        found = readings(value.shape or (), other.shape or (), self._batches)
        carrying = [layout for layout in found if self._has_rows(layout)]
        if not found:
            return omitted(AXIS)
        origin = self._depends(key, slot, sources)
        if not carrying:
            return self._without_rows(slot, partner, origin)
        is_open = len(found) > 1
        if not is_open:
            return self._selected(key, carrying[0], value, other)
        if origin is False and value.shape == other.shape:
            return WHOLE
        return self._settle(key, slot, partner, found, sources)

    def _has_rows(self, layout: Layout) -> bool:
        return layout.has_samples or (layout.has_tokens and self._batches[0].samples == 1)

    def _depends(self, key: str, slot: Slot, sources: Sequence[Decision]) -> bool | None:
        """Return True if samples enter a value, False if not, None if it is not known."""
        if _is_backward(key):
            return True
        if slot.side.is_source:
            return self._returned.get(fingerprint(slot.value), True if key.startswith("Module.") else None)
        return any(decision.depends_on_batch for decision in sources) if sources else None

    def _without_rows(self, slot: Slot, partner: Slot, origin: bool | None) -> Decision:
        """Return the decision on a value that no layout gives samples."""
        is_equal = slot.value.shape == partner.value.shape
        if origin:
            return omitted(REDUCED)
        is_received = slot.side.is_source and origin is None
        is_other = fingerprint(slot.value) != fingerprint(partner.value)
        return omitted(SHARED, is_other=is_other) if is_received or not is_equal else WHOLE

    def _settle(
        self, key: str, slot: Slot, partner: Slot, found: Sequence[Layout], sources: Sequence[Decision]
    ) -> Decision:
        """Return the decision on tensors whose shapes allow several layouts."""
        value, other = slot.value, partner.value
        expected = self._expected(key, value)
        if expected is not None and expected.layout is None:
            return omitted(AXIS if expected.omission == AXIS else REDUCED)
        layouts = [layout for layout in found if expected is not None and expected.layout == layout]
        if self._may_be_parameter(key, slot):
            layouts += [layout for layout in found if not self._has_rows(layout)]
        layouts += [layout for layout in found if layout not in layouts]
        near, least = layouts[0], FAR
        for layout, apart in self._distances(value, other, layouts, is_scaled=_is_backward(key)):
            if apart < least:
                near, least = layout, apart
            if least <= limits().same:
                break
        if least > limits().near:
            near = found[0] if expected is None else layouts[0]
            is_known = self._is_supported(near, sources) or self._is_data(key, slot, near)
            if expected is None and (_is_backward(key) or not is_known):
                return omitted(AXIS)
        if self._has_rows(near):
            return self._selected(key, near, value, other)
        origin = self._depends(key, slot, sources)
        return self._without_rows(slot, partner, origin)

    def _is_supported(self, layout: Layout, sources: Sequence[Decision]) -> bool:
        """Return True if a value that no layout brings together must have this one, or differs in any.

        The samples are then outermost on the axis on which they are outermost in what the call receives. Or
        all samples are in both batches, so that what was reduced over them would agree as a whole, and the
        first axis has exactly their number.
        """
        received = [one.layout for one in sources if one.layout is not None]
        if any(layout.starts_like(other) for other in received):
            return True
        return all(own.is_whole for own in self._places) and layout.axes[:1] == ((Part.SAMPLE,),)

    def _is_data(self, key: str, slot: Slot, layout: Layout) -> bool:
        """Return True for a value of the batch: received, returned by no call, and of rows without gradient.

        Values of one axis are left out, for buffers such as running means have one.
        """
        is_received = slot.side is Side.INPUT and fingerprint(slot.value) not in self._returned
        has_rows = len(layout.axes) > 1 and layout.axes[0] == (Part.SAMPLE,)
        return is_received and has_rows and not slot.value.requires_grad

    def _may_be_parameter(self, key: str, slot: Slot) -> bool:
        """Return True for a tensor that requires a gradient although no recorded call returned it."""
        is_received = slot.side is Side.INPUT and self._depends(key, slot, ()) is None
        return is_received and bool(slot.value.requires_grad)

    def _expected(self, key: str, value: Value) -> Decision | None:
        """Return the decision on the values of the forward call that have the shape of a gradient.

        Gradients of weights may come transposed.
        """
        if not _is_backward(key):
            return None
        forward = self._by_shape.get(key.replace(".backward", ".forward"), {})
        shape = value.shape or ()
        decisions = forward.get(shape, set())
        if not decisions:
            turned = [own for other, own in forward.items() if sorted(other) == sorted(shape)]
            decisions = {one for own in turned for one in own if one.layout is None}
            decisions = decisions if len(turned) == 1 else set()
        return next(iter(decisions)) if len(decisions) == 1 else None

    def _distances(
        self, value: Value, other: Value, layouts: Sequence[Layout], *, is_scaled: bool
    ) -> Iterator[tuple[Layout, float]]:
        """Yield the distance of both values in each layout; none if they cannot be read."""
        arrays = self._read(value, other)
        if arrays is None:
            return
        for layout in layouts:
            target, golden = self._gathered(arrays, layout)
            scale = (scale_between(target, golden) or 1.0) if is_scaled and self.scale is None else self.scale
            if is_scaled and scale is not None:
                target = target * scale
            yield layout, distance(target, golden)

    def _selected(self, key: str, layout: Layout, value: Value, other: Value) -> Decision:
        """Return the decision to compare rows, for a gradient with the factor between both runs."""
        if not _is_backward(key) or kind(value.dtype) != "float":
            return selected(layout)
        if all(places.is_whole for places in self._places):
            return selected(layout)
        if self.scale is None:
            arrays = self._read(value, other)
            factor = None if arrays is None else scale_between(*self._gathered(arrays, layout))
            if factor is None:
                return selected(layout)
            self.scale = self._simple(factor)
        return selected(layout, self.scale)

    def _simple(self, factor: float) -> float:
        """Return the ratio of the sizes of both batches that a factor is near to, or the factor."""
        rows = self._batches[1].samples / self._batches[0].samples
        tokens = max(1, self._batches[1].tokens) / max(1, self._batches[0].tokens)
        ratios = (1.0, rows, rows * tokens, tokens)
        return next((ratio for ratio in ratios if abs(factor / ratio - 1) <= limits().simple), factor)

    def _gathered(self, arrays: tuple[Array, Array], layout: Layout) -> tuple[Array, Array]:
        target, golden = (gather(array, layout, own) for array, own in zip(arrays, self._places))
        return target, golden

    def _read(self, value: Value, other: Value) -> tuple[Array, Array] | None:
        """Return both arrays; None if one of them is not stored, or cannot be read."""
        if value.data_name is None or other.data_name is None:
            return None
        try:
            with watched:
                target, golden = (run.tensor(one) for run, one in zip(self._runs, (value, other)))
        except UnreadableTensor:
            return None
        are_whole = target.shape == value.shape and golden.shape == other.shape
        return (target, golden) if are_whole else None


def fingerprint(value: Value) -> Print:
    """Return the fingerprint by which a value is recognised in later calls."""
    return value.dtype, value.extent, value.checksum, *map(repr, value.statistics)


def _is_backward(key: str) -> bool:
    return "backward" in key.split(".")
