"""Arguments that name a device: they state where a value is stored, without effect on it."""

from __future__ import annotations

import re

from probe_core.model import Kind, Value

_DEVICE_PATTERN = re.compile(r"(?:cpu|gpu|cuda|npu|ascend|xpu|mps|hpu|musa|mlu)(?::(?:\d+|None))?", re.I)


def is_device(value: Value) -> bool:
    """Return True for a scalar that names a device, such as ``cuda:0``."""
    text = value.statistics.max
    return value.kind is Kind.SCALAR and isinstance(text, str) and _DEVICE_PATTERN.fullmatch(text) is not None
