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
from probe_core.files.mapped import allow_mapping
from probe_core.model import Kind, Record, Side, Slot, Value
from probe_core.model.columns import Array
from probe_core.model.dtypes import get_dtype_kind
from probe_core.model.run import Run
from probe_core.store.names import is_backward, is_gradient, is_module
from probe_matching.rows.axes import AxisPart, Layout, find_layouts, is_batch_multiple
from probe_matching.rows.decisions import (
    AXIS_OMISSION,
    REDUCED_OMISSION,
    SHARED_OMISSION,
    SIZE_OMISSION,
    WHOLE,
    Decision,
    create_omission,
    create_selection,
)
from probe_matching.rows.distances import MAX_DISTANCE, compute_distance, estimate_scale
from probe_matching.rows.gather import gather
from probe_matching.rows.limits import load_limits
from probe_matching.rows.places import Places

Fingerprint = tuple[object, ...]


class Survey:
    """The decisions on all pairs of values of two runs.

    Args:
        target: The target.
        golden: The golden.
        places: The common places of both batches.

    Attributes:
        decisions: The decision on each value of both runs, by the name of its record and its place there.
        by_fingerprint: For both runs, the decisions on tensors by their fingerprints.
        scale: The factor between gradients of both runs; None if no gradient was selected.
    """

    def __init__(self, target: Run, golden: Run, places: tuple[Places, Places]) -> None:
        self._runs = target, golden
        self._places = places
        self._batches = places[0].batch, places[1].batch
        self.decisions: dict[tuple[str, Side, str], Decision] = {}
        self.by_fingerprint: tuple[dict[Fingerprint, Decision], dict[Fingerprint, Decision]] = {}, {}
        self.scale: float | None = None
        self._decisions_by_print: dict[tuple[Fingerprint, Fingerprint], Decision] = {}
        self._returned: dict[Fingerprint, bool] = {}
        self._parameters = {
            compute_fingerprint(slot.value)
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

    def _decide(self, record: Record, golden_record: Record) -> None:
        """Decide on the values of a pair of records; inputs first, because outputs follow from them."""
        golden_slots = {slot.place: slot for slot in golden_record.slots}
        pairs = [(slot, golden_slots[slot.place]) for slot in record.slots if slot.place in golden_slots]
        sources: list[Decision] = []
        for slot, partner in sorted(pairs, key=lambda pair: not pair[0].side.is_source):
            decision = self._decide_value(record.key, slot, partner, sources)
            if decision is None:
                continue
            side, path = slot.place
            self.decisions[record.key, side, path] = decision
            if slot.value.kind is not Kind.TENSOR:
                continue
            for side_decisions, value in zip(self.by_fingerprint, (slot.value, partner.value)):
                side_decisions.setdefault(compute_fingerprint(value), decision)
            self._by_shape.setdefault(record.key, {}).setdefault(slot.value.shape or (), set()).add(decision)
            if slot.side.is_source:
                sources.append(decision)
            else:
                self._returned[compute_fingerprint(slot.value)] = decision.depends_on_batch

    def _decide_value(self, key: str, slot: Slot, partner: Slot, sources: Sequence[Decision]) -> Decision | None:
        """Return the decision on a pair of values; None for values that have nothing to do with rows."""
        value, golden_value = slot.value, partner.value
        if value.kind is not Kind.TENSOR or golden_value.kind is not Kind.TENSOR:
            return create_omission(SIZE_OMISSION) if self._are_sizes(value, golden_value) else None
        if value.is_empty and golden_value.is_empty:
            return None
        prints = compute_fingerprint(value), compute_fingerprint(golden_value)
        if slot.side is Side.PARAMETERS or (prints[0] in self._parameters and not is_backward(key)):
            return create_omission(SHARED_OMISSION, differs=prints[0] != prints[1])
        if slot.side is Side.PARAMETERS_GRAD or is_gradient(key):
            return create_omission(REDUCED_OMISSION)
        decision = self._decisions_by_print.get(prints)
        if decision is None:
            decision = self._decisions_by_print[prints] = self._examine(key, slot, partner, sources)
        return decision

    def _are_sizes(self, target: Value, golden: Value) -> bool:
        """Return True for two different numbers, or lists of them, that follow from the sizes of batches."""
        if target.kind is not Kind.SCALAR or golden.kind is not Kind.SCALAR:
            return False
        first, second = target.statistics.max, golden.statistics.max
        if first is None or second is None:  # a size or a slice, which has a checksum only
            return target.checksum != golden.checksum
        are_numbers = type(first) is int and type(second) is int
        return are_numbers and first != second and is_batch_multiple(first, second, self._batches)  # type: ignore[arg-type]

    # -- tensors -----------------------------------------------------------------------------------

    def _examine(self, key: str, slot: Slot, partner: Slot, sources: Sequence[Decision]) -> Decision:
        """Return the decision on a pair of tensors that were not seen before."""
        value, golden_value = slot.value, partner.value
        layouts = find_layouts(value.shape or (), golden_value.shape or (), self._batches)
        carrying = [layout for layout in layouts if self._has_rows(layout)]
        if not layouts:
            return create_omission(AXIS_OMISSION)
        origin = self._depends_on_batch(key, slot, sources)
        if not carrying:
            return self._decide_without_rows(slot, partner, origin)
        is_open = len(layouts) > 1
        if not is_open:
            return self._decide_selected(key, carrying[0], value, golden_value)
        if origin is False and value.shape == golden_value.shape:
            return WHOLE
        return self._settle(key, slot, partner, layouts, sources)

    def _has_rows(self, layout: Layout) -> bool:
        return layout.has_samples or (layout.has_tokens and self._batches[0].samples == 1)

    def _depends_on_batch(self, key: str, slot: Slot, sources: Sequence[Decision]) -> bool | None:
        """Return True if samples enter a value, False if not, None if it is not known."""
        if is_backward(key):
            return True
        if slot.side.is_source:
            return self._returned.get(compute_fingerprint(slot.value), True if is_module(key) else None)
        return any(decision.depends_on_batch for decision in sources) if sources else None

    def _decide_without_rows(self, slot: Slot, partner: Slot, origin: bool | None) -> Decision:
        """Return the decision on a value that no layout gives samples."""
        is_equal = slot.value.shape == partner.value.shape
        if origin:
            return create_omission(REDUCED_OMISSION)
        is_received = slot.side.is_source and origin is None
        differs = compute_fingerprint(slot.value) != compute_fingerprint(partner.value)
        return create_omission(SHARED_OMISSION, differs=differs) if is_received or not is_equal else WHOLE

    def _settle(
        self, key: str, slot: Slot, partner: Slot, candidates: Sequence[Layout], sources: Sequence[Decision]
    ) -> Decision:
        """Return the decision on tensors whose shapes allow several layouts."""
        value, golden_value = slot.value, partner.value
        expected = self._find_expected_decision(key, value)
        if expected is not None and expected.layout is None:
            return create_omission(AXIS_OMISSION if expected.omission == AXIS_OMISSION else REDUCED_OMISSION)
        layouts = [layout for layout in candidates if expected is not None and expected.layout == layout]
        if self._may_be_parameter(key, slot):
            layouts += [layout for layout in candidates if not self._has_rows(layout)]
        layouts += [layout for layout in candidates if layout not in layouts]
        near, least = layouts[0], MAX_DISTANCE
        for layout, distance in self._measure_distances(value, golden_value, layouts, is_scaled=is_backward(key)):
            if distance < least:
                near, least = layout, distance
            if least <= load_limits().same:
                break
        if least > load_limits().near:
            near = candidates[0] if expected is None else layouts[0]
            is_certain = self._is_supported(near, sources) or self._is_data(slot, near)
            if expected is None and (is_backward(key) or not is_certain):
                return create_omission(AXIS_OMISSION)
        if self._has_rows(near):
            return self._decide_selected(key, near, value, golden_value)
        origin = self._depends_on_batch(key, slot, sources)
        return self._decide_without_rows(slot, partner, origin)

    def _is_supported(self, layout: Layout, sources: Sequence[Decision]) -> bool:
        """Return True if a value that no layout brings together must have this one, or differs in any.

        The samples are then outermost on the axis on which they are outermost in what the call receives. Or
        all samples are in both batches, so that what was reduced over them would agree as a whole, and the
        first axis has exactly their number.
        """
        received = [source.layout for source in sources if source.layout is not None]
        if any(layout.has_same_sample_axis(received_layout) for received_layout in received):
            return True
        return all(places.is_whole for places in self._places) and layout.axes[:1] == ((AxisPart.SAMPLE,),)

    def _is_data(self, slot: Slot, layout: Layout) -> bool:
        """Return True for a value of the batch: received, returned by no call, and of rows without gradient.

        Values with a single axis are left out, because buffers such as running means have this shape.
        """
        is_received = slot.side is Side.INPUT and compute_fingerprint(slot.value) not in self._returned
        has_rows = len(layout.axes) > 1 and layout.axes[0] == (AxisPart.SAMPLE,)
        return is_received and has_rows and not slot.value.requires_grad

    def _may_be_parameter(self, key: str, slot: Slot) -> bool:
        """Return True for a tensor that requires a gradient although no recorded call returned it."""
        is_received = slot.side is Side.INPUT and self._depends_on_batch(key, slot, ()) is None
        return is_received and bool(slot.value.requires_grad)

    def _find_expected_decision(self, key: str, value: Value) -> Decision | None:
        """Return the decision on the values of the forward call that have the shape of a gradient.

        Gradients of weights may come transposed.
        """
        if not is_backward(key):
            return None
        forward = self._by_shape.get(key.replace(".backward", ".forward"), {})
        shape = value.shape or ()
        decisions = forward.get(shape, set())
        if not decisions:
            turned = [
                shape_decisions
                for forward_shape, shape_decisions in forward.items()
                if sorted(forward_shape) == sorted(shape)
            ]
            decisions = {
                decision for shape_decisions in turned for decision in shape_decisions if decision.layout is None
            }
            decisions = decisions if len(turned) == 1 else set()
        return next(iter(decisions)) if len(decisions) == 1 else None

    def _measure_distances(
        self, value: Value, golden_value: Value, layouts: Sequence[Layout], *, is_scaled: bool
    ) -> Iterator[tuple[Layout, float]]:
        """Yield the distance of both values in each layout; none if they cannot be read."""
        arrays = self._read(value, golden_value)
        if arrays is None:
            return
        for layout in layouts:
            target, golden = self._gather_arrays(arrays, layout)
            scale = (estimate_scale(target, golden) or 1.0) if is_scaled and self.scale is None else self.scale
            if is_scaled and scale is not None:
                target = target * scale
            yield layout, compute_distance(target, golden)

    def _decide_selected(self, key: str, layout: Layout, value: Value, golden_value: Value) -> Decision:
        """Return the decision to compare rows, for a gradient with the factor between both runs."""
        if not is_backward(key) or get_dtype_kind(value.dtype) != "float":
            return create_selection(layout)
        if all(places.is_whole for places in self._places):
            return create_selection(layout)
        if self.scale is None:
            arrays = self._read(value, golden_value)
            factor = None if arrays is None else estimate_scale(*self._gather_arrays(arrays, layout))
            if factor is None:
                return create_selection(layout)
            self.scale = self._find_simple_ratio(factor)
        return create_selection(layout, self.scale)

    def _find_simple_ratio(self, factor: float) -> float:
        """Return the ratio of the sizes of both batches that a factor is near to, or the factor."""
        rows = self._batches[1].samples / self._batches[0].samples
        tokens = max(1, self._batches[1].tokens) / max(1, self._batches[0].tokens)
        ratios = (1.0, rows, rows * tokens, tokens)
        return next((ratio for ratio in ratios if abs(factor / ratio - 1) <= load_limits().simple), factor)

    def _gather_arrays(self, arrays: tuple[Array, Array], layout: Layout) -> tuple[Array, Array]:
        target, golden = (gather(array, layout, places) for array, places in zip(arrays, self._places))
        return target, golden

    def _read(self, value: Value, golden_value: Value) -> tuple[Array, Array] | None:
        """Return both arrays; None if one of them is not stored, or cannot be read."""
        if value.data_name is None or golden_value.data_name is None:
            return None
        try:
            with allow_mapping:
                target, golden = (
                    run.tensor(tensor_value) for run, tensor_value in zip(self._runs, (value, golden_value))
                )
        except UnreadableTensor:
            return None
        are_whole = target.shape == value.shape and golden.shape == golden_value.shape
        return (target, golden) if are_whole else None


def compute_fingerprint(value: Value) -> Fingerprint:
    """Return the fingerprint that identifies a value in later calls."""
    return value.dtype, value.extent, value.checksum, *map(repr, value.statistics)
