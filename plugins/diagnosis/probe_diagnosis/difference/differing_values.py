"""Clauses on a value that differs, and the search for the first one."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from probe_diagnosis.timeline.compared_calls import DifferenceKind, ValueComparison

IN_REGION_NOTE = "paired within calls that could not be aligned"
"""Note in the evidence of a value whose target and golden may not correspond to each other."""

MAY_BE_PERMUTED_NOTE = "the same statistics, so the values may be in another order, or differ by rounding"
"""Note in the evidence of a value whose checksums differ although its statistics agree."""

_OP_PREFIX_PATTERN = re.compile(r".*?\.(?:forward|backward)\.(?:\d+\.)?")


def describe_values(value: ValueComparison) -> str:
    """Return words for a differing value, for use after a verb such as "returns"."""
    is_permuted = value.kind is DifferenceKind.PERMUTED
    return "the same values in another order" if is_permuted else "values that differ"


def describe_difference(value: ValueComparison) -> str:
    """Return a clause whose subject is the value that differs."""
    return f"holds {describe_values(value)}" if value.kind is DifferenceKind.PERMUTED else "differs"


def get_short_name(row: str) -> str:
    """Return the name of a row without its op, such as ``output.0``."""
    return _OP_PREFIX_PATTERN.sub("", row)


def format_difference(value: ValueComparison) -> str:
    """Return the short name of a value, and the evidence that it differs."""
    name = get_short_name(value.row)
    distance_clauses = ""
    if value.explained_distance and value.scale and math.isfinite(value.explained_distance):
        distance_clauses = f", the baseline at most {value.explained_distance / value.scale:.2g}"
    distance_clauses += _describe_reference_distance(value)
    evidence = format_evidence(value)
    return f"{name}: {evidence}{distance_clauses}" if evidence else name


def _describe_reference_distance(value: ValueComparison) -> str:
    """Return a clause on the distance of the target from the reference.

    It is empty if the distance was not measured or is excused.
    """
    if not value.reference_distance_ratio or value.is_excused:
        return ""
    if math.isinf(value.reference_distance_ratio):
        return "; the golden agrees with the reference, the target does not"
    digits = 2 if value.reference_distance_ratio <= 1 else 3
    return f"; the target is {value.reference_distance_ratio:.{digits}g} times as far from the reference as the golden"


def format_evidence(value: ValueComparison) -> str:
    """Return the evidence that a value differs; empty if there is none."""
    order = MAY_BE_PERMUTED_NOTE if value.kind is DifferenceKind.MAY_BE_PERMUTED else ""
    return "; ".join(filter(None, (value.evidence, order, IN_REGION_NOTE if value.is_in_region else "")))


def find_first_differing(values: Iterable[ValueComparison], min_multiple: float) -> ValueComparison | None:
    """Return the first value that differs by more than its rounding and by more than ``min_multiple`` times that.

    The result is None if there is no such value.
    """
    return next(
        (value for value in values if value.measure_multiple(value.scale, value.noise) > max(1.0, min_multiple)), None
    )
