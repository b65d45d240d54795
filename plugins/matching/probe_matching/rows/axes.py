"""The axes of values that belong to samples and tokens, by the shapes of both runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Union

from probe_matching.rows.limits import load_limits
from probe_matching.rows.places import BatchSize


class AxisPart(str, Enum):
    """Parts of an axis: samples, or tokens of a sample."""

    SAMPLE = "sample"
    TOKEN = "token"


Factor = Union[AxisPart, int]
Axis = tuple[Factor, ...]
Shape = Sequence[int]

_ORDERS: tuple[tuple[AxisPart, ...], ...] = (
    (), (AxisPart.SAMPLE,), (AxisPart.TOKEN,), (AxisPart.SAMPLE, AxisPart.TOKEN), (AxisPart.TOKEN, AxisPart.SAMPLE),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Layout:
    """The parts of each axis of a value, outermost first; numbers are sizes that both runs share."""

    axes: tuple[Axis, ...]

    def compute_sizes(self, batch: BatchSize) -> list[int]:
        """Return the sizes of all parts in a batch."""
        sizes = {AxisPart.SAMPLE: batch.samples, AxisPart.TOKEN: max(batch.tokens, 1)}
        return [part if isinstance(part, int) else sizes[part] for axis in self.axes for part in axis]

    @property
    def parts(self) -> list[Factor]:
        """The parts of all axes, outermost first."""
        return [part for axis in self.axes for part in axis]

    @property
    def has_samples(self) -> bool:
        """True if an axis is of samples."""
        return AxisPart.SAMPLE in self.parts

    @property
    def has_tokens(self) -> bool:
        """True if an axis is of tokens."""
        return AxisPart.TOKEN in self.parts

    def has_same_sample_axis(self, layout: Layout) -> bool:
        """Return True if samples are the outermost part of the same axis of both."""
        places = [
            next((n for n, axis in enumerate(layout.axes) if axis[:1] == (AxisPart.SAMPLE,)), None)
            for layout in (self, layout)
        ]
        return places[0] is not None and places[0] == places[1]


def find_layouts(target: Shape, golden: Shape, batches: Sequence[BatchSize]) -> list[Layout]:
    """Return the layouts that both shapes allow, the most likely ones first.

    An axis of sizes ``a`` and ``b`` may be the product of samples, tokens and a common size ``k`` if
    ``a`` is ``k`` times the number of these in the target, and ``b`` in the golden. Samples are on at most
    one axis, tokens on at most two. An axis of one sample may be missing in one of both runs.

    Args:
        target: The shape in the target.
        golden: The shape in the golden.
        batches: The sizes of both batches.
    """
    if 0 in (*target, *golden):
        return []
    if len(target) == len(golden):
        choices = [list(_iterate_axes(*sizes, batches)) for sizes in zip(target, golden)]
        layouts = [*islice(_iterate_layouts(choices), 4 * load_limits().readings)]
    else:
        layouts = list(_iterate_layouts_with_missing_axis(target, golden, batches))
    return sorted(dict.fromkeys(layouts), key=_compute_unlikeliness)[: load_limits().readings]


def is_batch_multiple(target: int, golden: int, batches: Sequence[BatchSize]) -> bool:
    """Return True if two different numbers are the same multiple of the sizes of both batches."""
    return any(
        target % target_count == golden % golden_count == 0 and target // target_count == golden // golden_count > 0
        for target_count, golden_count in (_count_places(order, batches) for order in _ORDERS[1:4])
    )


def _count_places(order: Sequence[AxisPart], batches: Sequence[BatchSize]) -> tuple[int, int]:
    """Return the number of places that parts have in both batches."""
    target, golden = (
        (batch.samples if AxisPart.SAMPLE in order else 1) * (max(batch.tokens, 1) if AxisPart.TOKEN in order else 1)
        for batch in batches
    )
    return target, golden


def _iterate_axes(target: int, golden: int, batches: Sequence[BatchSize]) -> Iterator[Axis]:
    """Yield the possible meanings of an axis of these sizes."""
    for order in _ORDERS:
        if AxisPart.TOKEN in order and not batches[0].tokens:
            continue
        if AxisPart.SAMPLE in order and batches[0].samples == batches[1].samples == 1:
            continue
        target_count, golden_count = _count_places(order, batches)
        if target % target_count or golden % golden_count or target // target_count != golden // golden_count:
            continue
        common = target // target_count
        if common == 1:
            yield order or (1,)
        else:
            yield (*order, common)
            if order == (AxisPart.SAMPLE,):
                yield common, AxisPart.SAMPLE


def _iterate_layouts(choices: Sequence[Sequence[Axis]], axes: tuple[Axis, ...] = ()) -> Iterator[Layout]:
    parts = [part for axis in axes for part in axis]
    if parts.count(AxisPart.SAMPLE) > 1 or parts.count(AxisPart.TOKEN) > load_limits().token_axes:
        return
    if len(axes) == len(choices):
        yield Layout(axes)
        return
    for axis in choices[len(axes)]:
        yield from _iterate_layouts(choices, (*axes, axis))


def _iterate_layouts_with_missing_axis(target: Shape, golden: Shape, batches: Sequence[BatchSize]) -> Iterator[Layout]:
    """Yield the layouts of values of which one lacks the axis of its only sample."""
    shapes = [list(target), list(golden)]
    shorter = int(len(golden) < len(target))
    if abs(len(target) - len(golden)) != 1 or batches[shorter].samples != 1:
        return
    for place, size in enumerate(shapes[1 - shorter]):
        if size != batches[1 - shorter].samples:
            continue
        padded_shapes = [list(shape) for shape in shapes]
        padded_shapes[shorter].insert(place, 1)
        choices = [
            list(_iterate_axes(target_size, golden_size, batches))
            for target_size, golden_size in zip(padded_shapes[0], padded_shapes[1])
        ]
        choices[place] = [(AxisPart.SAMPLE,)]
        yield from islice(_iterate_layouts(choices), load_limits().readings)


def _compute_unlikeliness(layout: Layout) -> tuple[int, ...]:
    """Return the sort key of a layout; that of a likely one is smaller."""
    parts = layout.parts
    place = next((n for n, axis in enumerate(layout.axes) if AxisPart.SAMPLE in axis), len(layout.axes))
    axis: Axis = layout.axes[place] if place < len(layout.axes) else ()
    return (
        not layout.has_samples,
        -parts.count(AxisPart.TOKEN),
        len([candidate for candidate in layout.axes if AxisPart.TOKEN in candidate and len(candidate) > 1]),
        any(isinstance(part, int) for part in axis),
        place,
        axis.index(AxisPart.SAMPLE) if axis else 0,
    )
