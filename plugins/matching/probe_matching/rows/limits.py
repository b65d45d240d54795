"""Limits of the search for axes, which ``limits.yaml`` contains with their sources."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from probe_core.files.packaged import load_yaml


@dataclass(frozen=True, slots=True)
class LayoutLimits:
    """Limits of the search for axes.

    Attributes:
        near: Largest distance at which data settle the layout of a value.
        same: Largest distance at which no further layout of a value is tried.
        simple: Largest relative difference between a factor and the ratio of batch sizes that replaces it.
        readings: Largest number of layouts of one value that are tried.
        token_axes: Largest number of axes that may be of tokens.
    """

    near: float
    same: float
    simple: float
    readings: int
    token_axes: int


@cache
def load_limits() -> LayoutLimits:
    """Return the limits."""
    return LayoutLimits(**load_yaml(__package__, "limits.yaml"))
