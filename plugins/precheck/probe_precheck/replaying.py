"""Results of a call as recorded, and computed again in higher precision."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from probe_precheck.model import Array

NOTHING_TO_JUDGE = "returns no floating-point tensor of 16 or 32 bits"
"""Reason of a record without results to which a rounding bound applies."""


class RecomputedResult(NamedTuple):
    """Recorded floating-point tensor that a call returned, and its reference.

    Attributes:
        name: The name of the value in the record, such as ``output.0``.
        recorded: The tensor as the run recorded it.
        reference: The same values, computed from the recorded inputs in higher precision.
        doubt: The reason why the recorded tensor may contain more than the result of the call; empty if it does not.
    """

    name: str
    recorded: Array
    reference: np.ndarray[Any, Any]
    doubt: str = ""


class Replay(NamedTuple):
    """Results of a call by direction, or the reason why there are no results.

    ``backward`` is None if the run recorded no backward.
    """

    forward: tuple[RecomputedResult, ...] | str
    backward: tuple[RecomputedResult, ...] | str | None = None
