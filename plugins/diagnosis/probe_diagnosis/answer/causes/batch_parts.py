"""Comparison of a run that computes a batch in parts, such as micro batches, with a run that computes it at once.

Tensors of a part have another shape, so that no row compares them. Together, the parts must have the maximum,
minimum, mean and norm of the whole; these are on record with every task but md5.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from probe_core.model import Kind, Record, Value
from probe_core.model.dtypes import get_dtype_kind
from probe_core.store.names import is_backward, is_gradient
from probe_diagnosis.answer.causes.compared_runs import ComparedRuns
from probe_diagnosis.answer.causes.findings import strip_numbers
from probe_diagnosis.limits import limits
from probe_diagnosis.timeline.order import OPTIMIZER

RUN_NAMES = ("target", "golden")


class PartsAgreement(NamedTuple):
    """Agreement of the parts that one run computes with what the other computes at once.

    Attributes:
        side: The run that computes in parts: 0 for the target, 1 for the golden.
        number: Number of parts.
        agreeing: Number of floating-point tensors of the whole that agree.
        unknown: Number of floating-point tensors of the whole that were not compared.
    """

    side: int
    number: int
    agreeing: int
    unknown: int

    @property
    def sentence(self) -> str:
        """The agreement, as the sentence of a verdict."""
        return (
            f"the {RUN_NAMES[self.side]} computes in {self.number} parts what the {RUN_NAMES[1 - self.side]} "
            "computes at once, and the statistics of the parts together agree within rounding in "
            f"{self.agreeing:,} of its {self.agreeing + self.unknown:,} floating-point tensors; "
            "the others were not compared in this way"
        )


def compare_in_parts(runs: ComparedRuns, noise: float, *, are_sums_known: bool = False) -> PartsAgreement | None:
    """Return the agreement of parts and whole; None if no run computes in parts, or if the parts differ.

    Args:
        runs: Both runs.
        noise: The largest relative difference that rounding explains.
        are_sums_known: True if the gradients that the optimizer takes are known to agree. Those that were
            recorded with the first of several backward passes are then left out.
    """
    groups = [_group_records(runs, side) for side in (0, 1)]
    shared = [key for key in groups[0] if key in groups[1]]
    computed = [key for key in shared if not is_gradient(key[0]) and OPTIMIZER not in key]
    ratios = Counter(_measure_ratio(len(groups[0][key]), len(groups[1][key])) for key in computed)
    often = [(times, ratio) for ratio, times in ratios.items() if ratio[1] > 1]
    if not often or 2 * max(often)[0] < len(computed):  # most calls are not made by each part
        return None
    side, count = max(often)[1]
    whole = runs.both[1 - side]
    agreeing = 0
    for key in shared:
        whole_indices, part_indices = groups[1 - side][key], groups[side][key]
        if are_sums_known and is_gradient(key[0]):
            continue
        if len(part_indices) not in (len(whole_indices), count * len(whole_indices)):
            continue
        for occurrence, record_index in enumerate(whole_indices):
            parts = [runs.both[side].record(index) for index in part_indices[occurrence :: len(whole_indices)]]
            for is_same in _compare_tensors(whole.record(record_index), parts, noise):
                if not is_same:
                    return None
                agreeing += 1
    total = sum(
        _is_float(slot.value) for record_index in range(len(whole)) for slot in whole.record(record_index).slots
    )
    return PartsAgreement(side, count, agreeing, total - agreeing) if 2 * agreeing >= total else None


def _group_records(runs: ComparedRuns, side: int) -> dict[tuple[str, ...], list[int]]:
    """Return the indices of the records of each API or module in the same modules, numbers left out."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for record_index, key in enumerate(runs.both[side].names()):
        groups.setdefault(tuple(map(strip_numbers, (key, *runs.list_modules(key, side)))), []).append(record_index)
    return groups


def _measure_ratio(target: int, golden: int) -> tuple[int, int]:
    """Return the side that makes more calls, and how many times as many; 1 if that is not an integer."""
    few, many = sorted((target, golden))
    return int(golden > target), 1 if many % few else many // few


def _compare_tensors(whole: Record, parts: Sequence[Record], noise: float) -> Iterator[bool]:
    """Yield, for each floating-point tensor of a call that has comparable parts, whether the parts agree with it."""
    of_parts = [{slot.place: slot.value for slot in part.slots} for part in parts]
    is_sum = is_gradient(whole.key) or is_backward(whole.key)
    min_scale = max((_find_magnitude(slot.value) for slot in whole.slots if _is_float(slot.value)), default=0.0)
    for slot in whole.slots:
        values = [part.get(slot.place) for part in of_parts]
        part_values = [value for value in values if value is not None]
        if len(part_values) < len(parts):
            continue
        if not _is_float(slot.value):
            if slot.value.kind is not Kind.TENSOR and not _is_same_argument(slot.value, part_values, noise):
                yield False
            continue
        is_same = _compare_together(slot.value, part_values, noise, min_scale if is_sum else 0.0)
        if is_same is not None:
            yield is_same


def _is_same_argument(whole: Value, parts: Sequence[Value], noise: float) -> bool:
    """Return False if a part received another value of a floating-point argument."""
    number = whole.statistics.max
    others = [part.statistics.max for part in parts]
    if not (isinstance(number, float) and all(isinstance(part_number, float) for part_number in others)):
        return True
    return all(
        repr(part_number) == repr(number) or abs(_to_float(part_number) - number) <= noise * abs(number)
        for part_number in others
    )


def _compare_together(whole: Value, parts: Sequence[Value], noise: float, min_scale: float) -> bool | None:
    """Return True if the parts together agree with the whole; None if they cannot be compared.

    Args:
        whole: The tensor of the run that computes at once.
        parts: Those of the other run.
        noise: The largest relative difference that rounding explains.
        min_scale: The smallest scale that differences are divided by.
    """
    filled = [part for part in parts if not part.is_empty]
    if whole.shape is None or not (filled and all(map(_is_float, filled)) and not whole.is_empty):
        return None
    if all(part.shape == whole.shape for part in filled):
        is_same = all(_have_same_statistics([part], whole, noise, min_scale) for part in filled)
        return is_same if is_same or len(parts) == 1 else _compare_numbers(whole, filled, noise)
    return _have_same_statistics(filled, whole, noise, min_scale) if _adds_up(whole.shape, filled) else None


def _compare_numbers(whole: Value, parts: Sequence[Value], noise: float) -> bool | None:
    """Return True if the mean or the sum of single numbers, such as losses, is the whole; else None.

    The mean of the parts is that of the whole only if all parts have the same size. The sum of the parts is the mean of
    the whole only if each part was scaled.
    """
    numbers = [part.statistics.max for part in parts]
    number = whole.statistics.max
    if math.prod(whole.shape or ()) != 1 or not isinstance(number, float):
        return None
    total = math.fsum(map(_to_float, numbers))
    is_same = min(abs(total - number), abs(total / len(parts) - number)) <= noise * abs(number)
    return True if is_same else None


def _adds_up(shape: tuple[int, ...], parts: Sequence[Value]) -> bool:
    """Return True if the parts, joined along one dimension, have the given shape."""
    shapes = [part.shape or () for part in parts]
    if any(len(part_shape) != len(shape) for part_shape in shapes):
        return False
    axes = [axis for axis in range(len(shape)) if any(part_shape[axis] != shape[axis] for part_shape in shapes)]
    return len(axes) == 1 and sum(part_shape[axes[0]] for part_shape in shapes) == shape[axes[0]]


def _have_same_statistics(parts: Sequence[Value], whole: Value, noise: float, min_scale: float) -> bool:
    """Return True if the statistics of the parts together are those of the whole."""
    sizes = [math.prod(part.shape or ()) for part in parts]
    high, low, mean, norm = ([_to_float(part.statistics[column]) for part in parts] for column in range(4))
    wanted = [_to_float(number) for number in whole.statistics]
    scale = max(_find_magnitude(whole), min_scale)
    far = [abs(number) for number in (*high, *low, *wanted) if math.isfinite(number)]
    if max(far, default=0.0) > limits().min_mask_magnitude or not all(
        map(math.isfinite, (*high, *low, *mean, *norm, *wanted))
    ):
        return max(high) == wanted[0] or abs(max(high) - wanted[0]) <= noise * scale
    joined = (
        max(high),
        min(low),
        math.fsum(value * size for value, size in zip(mean, sizes)) / sum(sizes),
        math.sqrt(math.fsum(value * value for value in norm)),
    )
    tolerances = (*[noise * scale] * 3, noise * max(wanted[3], min_scale))
    return all(abs(value - expected) <= tolerance for value, expected, tolerance in zip(joined, wanted, tolerances))


def _is_float(value: Value) -> bool:
    return value.kind is Kind.TENSOR and get_dtype_kind(value.dtype) == "float" and value.statistics.norm is not None


def _find_magnitude(value: Value) -> float:
    return max(abs(_to_float(value.statistics.max)), abs(_to_float(value.statistics.min)))


def _to_float(number: object) -> float:
    return float(number) if isinstance(number, (int, float)) else math.nan
