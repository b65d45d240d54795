"""Measurements of ptdbg_ascend 3.0 to 6.0, as the texts and numbers in their tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from probe_core.model import Colour
from probe_core.model.columns import convert_to_float
from probe_legacy.compare.dump import Cells, Release
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


ROWS = ("max", "min", "mean", "l2norm", "diff")
"""The last words of the columns of numbers."""
LARGEST_DIFFERENCE_COLUMNS = ("MaxAbsErr", "Max diff")


def choose_colors(columns: Sequence[str], rows: Sequence[Cells]) -> Mapping[int, Colour]:
    """Return the colors of the rows of one group, by their index.

    Red are rows of the NPU with NaN or infinities and rows of very large differences; red or yellow are
    outputs whose differences are larger than those of an input of their call.

    Args:
        columns: The columns of the table.
        rows: The rows of the group.
    """
    largest = next((name for name in LARGEST_DIFFERENCE_COLUMNS if name in columns), None)
    if largest is None:
        return {}
    limits = get_table_entry("later", "colors")
    parsed_rows = [dict(zip(columns, map(convert_to_number, row))) for row in rows]
    colors: dict[int, Colour] = {}
    for place, row in enumerate(parsed_rows):
        is_overflow = any(not _is_finite(row[f"NPU {name}"]) for name in ("max", "min"))
        if is_overflow or (_is_number(row[largest]) and row[largest] > limits["most_difference"]):
            colors[place] = Colour.RED
    compared = [(place, row) for place, row in enumerate(parsed_rows) if _is_compared(row, largest)]
    inputs = [row for _, row in compared if _split_name(row)[1] == "input"]
    for place, row in compared:
        call, side = _split_name(row)
        if place in colors or side == "input":
            continue
        call_inputs = [input_row for input_row in inputs if _split_name(input_row)[0] == call]
        input_colors = {
            color for input_row in call_inputs for color in _compare_with_input(input_row, row, largest, limits)
        }
        if input_colors:
            colors[place] = Colour.RED if Colour.RED in input_colors else Colour.YELLOW
    return colors


def _split_name(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return the name of the call of a row, and its side."""
    side = "input" if "input" in row["NPU Name"] else "output"
    return row["NPU Name"].partition(side)[0], side


def _compare_with_input(
    input_row: Mapping[str, Any], row: Mapping[str, Any], largest: str, limits: Mapping[str, float]
) -> set[Colour]:
    """Return the colors of an output beside one of the inputs of its call."""
    colors: set[Colour] = set()
    if _compute_order(row[largest]) - _compute_order(input_row[largest]) >= limits["orders"]:
        colors.add(Colour.YELLOW)
    if largest == LARGEST_DIFFERENCE_COLUMNS[0]:
        share, share_of_input = (side["One Thousandth Err Ratio"] for side in (row, input_row))
        if _is_number(share) and _is_number(share_of_input):
            if share_of_input > limits["share_of_input"] and share < limits["share_of_output"]:
                colors.add(Colour.RED)
            elif share_of_input - share > limits["share_lost"]:
                colors.add(Colour.YELLOW)
        cosine, cosine_of_input = (side["Cosine"] for side in (row, input_row))
        has_cosines = _is_number(cosine) and _is_number(cosine_of_input)
        if has_cosines and cosine_of_input - cosine > limits["cosine_lost"]:
            colors.add(Colour.YELLOW)
    else:
        relative, of_input = (
            abs(side[largest] / max(limits["least_bench"], side["Bench max"])) for side in (row, input_row)
        )
        if relative > limits["relative_red"]:
            colors.add(Colour.RED)
        elif relative > limits["relative_of_output"] and of_input < limits["relative_of_input"]:
            colors.add(Colour.YELLOW)
    return colors


def _compute_order(difference: float) -> float:
    """Return the order of magnitude of a difference; those below 1 are of the same."""
    return math.log10(abs(difference)) if abs(difference) >= 1 else 0.0


def _is_compared(row: Mapping[str, Any], largest: str) -> bool:
    return all(_is_number(row[name]) for name in ("NPU max", "Bench max", largest))


def convert_to_number(cell: object) -> object:
    """Return a cell, whole numbers as float64."""
    return convert_to_float(cell) if isinstance(cell, int) else cell


def _is_number(cell: object) -> bool:
    return isinstance(cell, int | float)


def _is_finite(cell: object) -> bool:
    return not isinstance(cell, float) or math.isfinite(cell)
