"""Measurements of ptdbg_ascend 3.0 to 6.0, as the texts and numbers in their tables."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from probe_legacy.compare.dump import Release
from probe_legacy.compare.measures import EPSILON, Array
from probe_legacy.compare.table_texts import get_message, get_table_entry


class LaterMeasurement(NamedTuple):
    """The measurements of two tensors.

    Attributes:
        cosine: The cosine of the angle between them.
        difference: The largest absolute difference.
        relative: The largest relative difference.
        within_thousandth: The share of values whose relative difference is below 0.001.
        within_five: The share of values whose relative difference is below 0.005.
        message: The message.
    """

    cosine: object
    difference: object
    relative: object
    within_thousandth: object
    within_five: object
    message: str


def repeat_text(text: str, message: str) -> LaterMeasurement:
    """Return measurements that are all the same text."""
    return LaterMeasurement(text, text, text, text, text, message)


def measure_later(npu: Array, bench: Array, release: Release) -> LaterMeasurement:
    """Return the measurements of two tensors.

    Zeros of the bench are replaced by the smallest relative step of their dtype, and the values of the NPU
    in the same places are increased by it, because the relative difference divides by the bench. Infinities and
    NaN in the same places of both count as zeros, except in the relative difference.
    """
    if npu.shape != bench.shape:
        return repeat_text(get_message("shapes"), get_message("shapes_said"))
    if not npu.size:
        return LaterMeasurement(get_message("unsupported"), 0, 0, 0, 0, get_message("empty"))
    is_zero = not npu.any(), not bench.any()
    with np.errstate(all="ignore"):
        npu, bench = _convert_to_float(npu, bench)
        relative = np.abs((npu - bench) / bench)
        if npu.ndim == 0:
            largest = _format_number(np.max(np.abs(npu - bench)), release)
            missing = get_message("not_available")
            return LaterMeasurement(
                get_message("unsupported"), largest, _find_largest_error(relative, release)[0], missing, missing,
                get_message("number"),
            )  # fmt: skip
        npu_values, bench_values = npu.reshape(-1).astype(float), bench.reshape(-1).astype(float)
        if not _has_same_special_values(npu_values, bench_values):
            return repeat_text(get_message("not_comparable"), get_message("other_places"))
        npu_values, bench_values = (np.where(np.isfinite(values), values, 0.0) for values in (npu_values, bench_values))
        cosine, cosine_message = _compute_cosine(npu_values, bench_values, is_zero, release)
        largest, error_message = _find_largest_error(relative, release)
        first, second = (np.sum(relative < limit) / relative.size for limit in get_table_entry("later", "within"))
        shares = _format_number(first, release), _format_number(second, release)
        difference = _format_number(np.max(np.abs(npu_values - bench_values)), release)
    return LaterMeasurement(cosine, difference, largest, shares[0], shares[1], error_message or cosine_message)


def _convert_to_float(npu: Array, bench: Array) -> tuple[Array, Array]:
    """Return both tensors as floating-point numbers, without zeros in the bench."""
    if bench.dtype.kind != "f":
        npu, bench = npu.astype(float), bench.astype(float)
    elif npu.dtype.kind != "f":
        npu = npu.astype(float)
    step = np.finfo(bench.dtype).eps
    zero = bench == 0
    return np.where(zero, npu + step, npu).astype(npu.dtype), np.where(zero, step, bench).astype(bench.dtype)


def _has_same_special_values(npu: Array, bench: Array) -> bool:
    """Return True if both tensors hold NaN and the same infinities in the same places."""
    special = ~np.isfinite(npu)
    if not np.array_equal(special, ~np.isfinite(bench)):
        return False
    return np.array_equal(npu[special], bench[special], equal_nan=True)


def _compute_cosine(npu: Array, bench: Array, is_zero: tuple[bool, bool], release: Release) -> tuple[object, str]:
    if len(npu) == 1:
        return get_message("unsupported"), ""
    best = _format_number(1.0, release) if release >= Release.V6 else "1.0"
    norm, norm_of_bench = np.linalg.norm(npu), np.linalg.norm(bench)
    if is_zero == (True, True) or (norm <= EPSILON and norm_of_bench <= EPSILON):
        return best, ""
    if is_zero[0] or norm <= EPSILON:
        return get_message("not_available"), get_message("npu_zero")
    if is_zero[1] or norm_of_bench <= EPSILON:
        return get_message("not_available"), get_message("bench_zero")
    text = _format_number(npu.dot(bench) / (norm * norm_of_bench), release)
    return (best if float(str(text)) > get_table_entry("ptdbg", "one_from") else text), ""


def _find_largest_error(relative: Array, release: Release) -> tuple[object, str]:
    largest = np.max(relative)
    if np.isnan(largest):
        return get_message("not_available"), get_message("nan_relative")
    return _format_number(largest, release), ""


def _format_number(number: Any, release: Release) -> object:
    """Return a number as a cell: a text with 6 or 12 decimals, or in 6.0 a number with 12."""
    text = f"{number:.{get_table_entry('later', 'decimals')[release.value]}f}"
    return float(text) if release >= Release.V6 else text


def judge_later(cosine: object, difference: object) -> str:
    """Return the verdict on a row, from the cells of Cosine and MaxAbsErr."""
    missing = get_message("not_available")
    if cosine == get_message("shapes"):
        return get_message("shapes_verdict")
    if missing in (cosine, difference):
        return missing
    if get_message("not_comparable") in (cosine, difference):
        return "No"
    if cosine == get_message("unsupported"):
        return missing
    cosine_value, difference_value = float(str(cosine)), float(str(difference))
    if cosine_value < get_table_entry("ptdbg", "least_cosine") and difference_value > get_table_entry(
        "ptdbg", "most_difference"
    ):
        return "No"
    is_far = cosine_value < get_table_entry("later", "least_cosine") or difference_value > get_table_entry(
        "later", "most_difference"
    )
    return "No" if is_far else "Yes"
