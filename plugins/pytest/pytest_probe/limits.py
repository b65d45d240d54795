"""Limits of golden tests, from ``limits.yaml``, which also names their sources."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from probe_core.files.packaged import load_yaml


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of golden tests.

    Attributes:
        repetitions: Number of repetitions to measure the spread.
        min_spread: Smallest stored spread, in eps of the dtype.
        max_spread: Largest spread of a value that is compared, relative to its largest element.
    """

    repetitions: int
    min_spread: float
    max_spread: float


@cache
def load_limits() -> Limits:
    """Return the limits."""
    return Limits(**load_yaml(__package__, "limits.yaml"))
