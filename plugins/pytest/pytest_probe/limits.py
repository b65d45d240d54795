"""Limits of golden tests, which ``limits.yaml`` holds with their sources."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from probe_core.files.packaged import load_yaml


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of golden tests.

    Attributes:
        repetitions: Number of repetitions by which the spread is measured.
        least: Smallest spread that is kept, in eps of the dtype.
        largest: Largest spread of a value that is compared.
    """

    repetitions: int
    least: float
    largest: float


@cache
def load_limits() -> Limits:
    """Return the limits."""
    return Limits(**load_yaml(__package__, "limits.yaml"))
