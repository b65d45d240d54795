"""The rows that ptdbg_ascend 6.0 colored in its workbook: overflows, and outputs worse than their inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from probe_core.model import Colour
from probe_core.model.columns import convert_to_float
from probe_legacy.compare.dump import Cells
from probe_legacy.compare.table_texts import get_table_entry

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
