"""The axes of values that hold samples and tokens, by the shapes of both runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Union

from probe_matching.rows.limits import limits
from probe_matching.rows.places import Batch


class Part(str, Enum):
    """Parts of an axis: samples, or tokens of a sample."""

    SAMPLE = "sample"
    TOKEN = "token"


Factor = Union[Part, int]
Axis = tuple[Factor, ...]
Shape = Sequence[int]

_ORDERS: tuple[tuple[Part, ...], ...] = (
    (), (Part.SAMPLE,), (Part.TOKEN,), (Part.SAMPLE, Part.TOKEN), (Part.TOKEN, Part.SAMPLE),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Layout:
    """The parts of each axis of a value, outermost first; numbers are sizes that both runs share."""

    axes: tuple[Axis, ...]

    def sizes(self, batch: Batch) -> list[int]:
        """Return the sizes of all parts in a batch."""
        sizes = {Part.SAMPLE: batch.samples, Part.TOKEN: max(batch.tokens, 1)}
        return [part if isinstance(part, int) else sizes[part] for axis in self.axes for part in axis]

    @property
    def parts(self) -> list[Factor]:
        """The parts of all axes, outermost first."""
        return [part for axis in self.axes for part in axis]

    @property
    def has_samples(self) -> bool:
        """True if an axis holds samples."""
        return Part.SAMPLE in self.parts

    @property
    def has_tokens(self) -> bool:
        """True if an axis holds tokens."""
        return Part.TOKEN in self.parts

    def starts_like(self, other: Layout) -> bool:
        """Return True if samples are the outermost part of the same axis of both."""
        places = [
            next((n for n, axis in enumerate(one.axes) if axis[:1] == (Part.SAMPLE,)), None)
            for one in (self, other)
        ]
        return places[0] is not None and places[0] == places[1]


def readings(target: Shape, golden: Shape, batches: Sequence[Batch]) -> list[Layout]:
    """Return the layouts that both shapes allow, the most likely ones first.

    An axis of sizes ``a`` and ``b`` may hold the product of samples, tokens and a common size ``k`` if
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
        choices = [list(_axes(own, other, batches)) for own, other in zip(target, golden)]
        layouts = [*islice(_combine(choices), 4 * limits().readings)]
    else:
        layouts = list(_with_missing_axis(target, golden, batches))
    return sorted(dict.fromkeys(layouts), key=_unlikeliness)[: limits().readings]


def is_size(target: int, golden: int, batches: Sequence[Batch]) -> bool:
    """Return True if two different numbers are the same multiple of the sizes of both batches."""
    return any(
        target % own == golden % other == 0 and target // own == golden // other > 0
        for own, other in (_counts(order, batches) for order in _ORDERS[1:4])
    )


def _counts(order: Sequence[Part], batches: Sequence[Batch]) -> tuple[int, int]:
    """Return the number of places that parts have in both batches."""
    target, golden = (
        (batch.samples if Part.SAMPLE in order else 1) * (max(batch.tokens, 1) if Part.TOKEN in order else 1)
        for batch in batches
    )
    return target, golden


def _axes(target: int, golden: int, batches: Sequence[Batch]) -> Iterator[Axis]:
    """Yield what an axis of these sizes may hold."""
    for order in _ORDERS:
        if Part.TOKEN in order and not batches[0].tokens:
            continue
        if Part.SAMPLE in order and batches[0].samples == batches[1].samples == 1:
            continue
        own, other = _counts(order, batches)
        if target % own or golden % other or target // own != golden // other:
            continue
        common = target // own
        if common == 1:
            yield order or (1,)
        else:
            yield (*order, common)
            if order == (Part.SAMPLE,):
                yield common, Part.SAMPLE


def _combine(choices: Sequence[Sequence[Axis]], axes: tuple[Axis, ...] = ()) -> Iterator[Layout]:
    parts = [part for axis in axes for part in axis]
    if parts.count(Part.SAMPLE) > 1 or parts.count(Part.TOKEN) > limits().token_axes:
        return
    if len(axes) == len(choices):
        yield Layout(axes)
        return
    for axis in choices[len(axes)]:
        yield from _combine(choices, (*axes, axis))


def _with_missing_axis(target: Shape, golden: Shape, batches: Sequence[Batch]) -> Iterator[Layout]:
    """Yield the layouts of values of which one lacks the axis of its only sample."""
    shapes = [list(target), list(golden)]
    shorter = int(len(golden) < len(target))
    if abs(len(target) - len(golden)) != 1 or batches[shorter].samples != 1:
        return
    for place, size in enumerate(shapes[1 - shorter]):
        if size != batches[1 - shorter].samples:
            continue
        whole = [list(shape) for shape in shapes]
        whole[shorter].insert(place, 1)
        choices = [list(_axes(own, other, batches)) for own, other in zip(whole[0], whole[1])]
        choices[place] = [(Part.SAMPLE,)]
        yield from islice(_combine(choices), limits().readings)


def _unlikeliness(layout: Layout) -> tuple[int, ...]:
    """Return the sort key of a layout; that of a likely one is smaller."""
    parts = layout.parts
    place = next((n for n, axis in enumerate(layout.axes) if Part.SAMPLE in axis), len(layout.axes))
    axis: Axis = layout.axes[place] if place < len(layout.axes) else ()
    return (
        not layout.has_samples,
        -parts.count(Part.TOKEN),
        len([one for one in layout.axes if Part.TOKEN in one and len(one) > 1]),
        any(isinstance(part, int) for part in axis),
        place,
        axis.index(Part.SAMPLE) if axis else 0,
    )
