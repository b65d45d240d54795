"""Values as JSON can express them."""

from __future__ import annotations

import math
from typing import TypeVar

Value = TypeVar("Value")


def encode_number(value: Value) -> Value | str:
    """Return NaN and infinities as text, and other values unchanged."""
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value
