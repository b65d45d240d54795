"""The search for signatures of a lower precision (docs/diagnosis.md#precision-of-products)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

import numpy as np

from probe_core.model.run import Run
from probe_core.store.names import is_forward
from probe_diagnosis.precision.precision_settings import find_arrangement, is_gradient_of_product, load_settings
from probe_diagnosis.precision.recomputation import find_formats, is_computable, measure_rounding
from probe_diagnosis.timeline.call_columns import CallColumns
from probe_diagnosis.timeline.compared_calls import Basis, ComparedCall, DifferenceKind, ValueState
from probe_diagnosis.timeline.value_table import SAME_CODE, UNJUDGED_CODE


@dataclass(frozen=True, slots=True)
class Signature:
    """A lower precision of all matrix products in one of two runs.

    Attributes:
        formats: The formats that round about as coarsely.
        side: 0 for the target, 1 for the golden; None if it is not known which run it is.
        rounding: The largest relative change of a number by that rounding, as measured.
        calls: The names of the calls that show it.
        first: The name of the first matrix product, which is not computed again in a large run.
    """

    formats: tuple[str, ...]
    side: int | None
    rounding: float
    calls: tuple[str, ...]
    first: str


def raise_noise(calls: CallColumns, bits: int) -> None:
    """Raise what rounding explains of all values to what it explains in a format.

    Args:
        calls: The calls of a rank.
        bits: The bits of the format's significand.
    """
    lines = calls.table.lines
    noise = load_settings().explained * 2.0 ** (1 - bits)
    is_float = (lines["noise"] > 0) & (lines["state"] != UNJUDGED_CODE)
    lines["noise"][is_float] = np.maximum(lines["noise"][is_float], noise)
    is_explained = is_float & (lines["kind"] == DifferenceKind.VALUE)
    is_explained &= lines["distance"] <= lines["noise"] * lines["scale"]
    lines["state"][is_explained] = SAME_CODE
    calls.clear_caches()


def find_signature(calls: CallColumns, runs: Sequence[Run], conditions: Set[str] = frozenset()) -> Signature | None:
    """Return the signature of a lower precision; None if there is none.

    Args:
        calls: The calls of a rank.
        runs: The target and the golden.
        conditions: The names of the conditions that differ.
    """
    products = [number for number, key in enumerate(calls.keys) if find_arrangement(key) is not None]
    if not products:
        return None
    is_decided = bool(conditions & load_settings().conditions)
    signature = _find_by_recomputation(calls, runs, products, is_decided=is_decided)
    if signature is None and is_decided:
        products += [number for number, key in enumerate(calls.keys) if is_gradient_of_product(key)]
    return signature or _find_by_distances(calls, products, is_decided=is_decided)


def _find_by_recomputation(
    calls: CallColumns, runs: Sequence[Run], products: Sequence[int], *, is_decided: bool
) -> Signature | None:
    """Return the signature that products show which are computed again from their recorded inputs.

    A product that is precise in both runs shows nothing: a device rounds only those whose sizes its kernels of
    lower precision support.

    Args:
        calls: The calls of a rank.
        runs: The target and the golden.
        products: The numbers of the calls that are matrix products.
        is_decided: True if a condition differs that decides how products are rounded.
    """
    limits = load_settings()
    measured = _measure_products(calls, runs, products)
    precise = limits.precise * 2.0 ** -max(limits.formats.values())
    rounded = {key: pair for key, pair in measured.items() if max(pair) > precise}
    if not rounded or not _are_enough(len(rounded), len(measured), is_decided=is_decided):
        return None
    for side in (0, 1):
        coarse, fine = ([pair[place] for pair in rounded.values()] for place in (side, 1 - side))
        median = statistics.median(coarse)
        formats = find_formats(median, limits.factors["tensor"])
        are_alike = max(coarse) <= limits.scatter * median and median <= limits.scatter * min(coarse)
        if formats and are_alike and max(fine) <= precise:
            return Signature(formats, side, median, tuple(rounded), calls.keys[products[0]])
    return None


def _measure_products(
    calls: CallColumns, runs: Sequence[Run], products: Sequence[int]
) -> dict[str, tuple[float, float]]:
    """Return how coarsely both runs rounded the inputs of some products that can be computed again."""
    roundings = {}
    computable = [number for number in products if is_computable(calls.keys[number])]
    for number in computable[:: max(1, len(computable) // load_settings().recomputed)]:
        key = calls.keys[number]
        target = measure_rounding(runs[0], key)
        golden = measure_rounding(runs[1], calls.golden_ops.get(number, key)) if target is not None else None
        if target is not None and golden is not None:
            roundings[key] = target, golden
    return roundings


def _are_enough(count: int, total: int, *, is_decided: bool) -> bool:
    """Return True if so many products of a total show a lower precision, not a fault of their own."""
    return is_decided or (2 * count > total and count >= min(total, load_settings().calls))


def _find_by_distances(calls: CallColumns, products: Sequence[int], *, is_decided: bool) -> Signature | None:
    """Return the signature in the differences of products whose inputs agree, if no other call differs.

    Args:
        calls: The calls of a rank.
        products: The numbers of those that are matrix products.
        is_decided: True if a condition differs that decides how products are rounded.
    """
    limits = load_settings()
    product_numbers = {*products}
    independent = [calls[number] for number in _find_independent_calls(calls, product_numbers)]
    of_products = {call.op for call in independent if calls.numbers_by_key[call.op] in product_numbers}
    differing = [call for call in independent if any(value.state == ValueState.DIFFERS for value in call.outputs())]
    if len(differing) < (1 if is_decided else limits.calls) or not all(call.op in of_products for call in differing):
        return None
    if not _are_enough(len(differing), len(of_products), is_decided=is_decided):
        return None
    roundings = [rounding for call in differing for rounding in _measure_roundings(call)]
    if not roundings:
        return None
    median = statistics.median(roundings)
    by_tensor = all(value.basis is Basis.TENSOR for call in differing for value in call.outputs())
    formats = find_formats(median, limits.factors["tensor" if by_tensor else "statistics"])
    if not formats:
        return None
    return Signature(formats, None, median, tuple(call.op for call in differing), differing[0].op)


def _find_independent_calls(calls: CallColumns, products: Set[int]) -> Iterator[int]:
    """Yield the calls of the forward pass, and products, around no other call, whose input tensors all agree.

    A product of the backward pass also reads tensors of its forward call, which agree if no call differs before it.
    """
    table = calls.table
    is_input = table.is_tensor & table.is_source
    has_input = calls.has_any(is_input)
    has_other = calls.has_any(is_input & (table.lines["state"] != SAME_CODE))
    around = {module for modules in calls.modules for module in modules}
    for number in np.flatnonzero(has_input & ~has_other).tolist():
        key = calls.keys[number]
        if (number in products or is_forward(key)) and key not in around:
            yield number


def _measure_roundings(call: ComparedCall) -> Iterator[float]:
    """Yield how coarsely a product rounded its inputs, by the distances of its results in float32.

    For factors that are independent and centred, the error is the square root of 2 times the rounding error
    of a factor, relative to the result. Of gradients only the smallest difference beyond rounding counts: the gradient
    of a bias is a sum of numbers that are not rounded, and may be zero in theory.
    """
    roundings = [*_measure_all_roundings(call)]
    if is_gradient_of_product(call.op):
        beyond = [rounding for rounding, state in roundings if state == ValueState.DIFFERS]
        roundings = [(min(beyond), ValueState.DIFFERS)] if beyond else []
    yield from (rounding for rounding, _ in roundings)


def _measure_all_roundings(call: ComparedCall) -> Iterator[tuple[float, str]]:
    """Yield how coarsely a product rounded its inputs, and the state, of each result in float32."""
    limits = load_settings()
    for value in call.outputs():
        is_plain = value.kind is DifferenceKind.VALUE and value.state in (ValueState.SAME, ValueState.DIFFERS)
        if is_plain and value.scale and 0 < value.noise < limits.coarse_noise and math.isfinite(value.distance):
            share = math.sqrt(2) * limits.rounding
            share *= limits.extrema if value.basis is not Basis.TENSOR else 1.0
            yield value.distance / value.scale / share, value.state
