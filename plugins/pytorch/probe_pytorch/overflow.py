"""The overflow flag of an NPU, for the task overflow_check (docs/configuration.md#overflow)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

Flags = Callable[[], bool]
"""A function that returns True if something on the device overflowed since its last call."""


def find_device_flags() -> Flags | None:
    """Return the overflow flag of an NPU in saturation mode, which computes no infinities; None elsewhere.

    This uses torch_npu's documented interface and was tested with a stand-in only, not on an NPU.
    """
    npu: Any = sys.modules.get("torch_npu")
    if npu is None:
        return None
    utils = getattr(npu.npu, "utils", None)
    if utils is None or not hasattr(utils, "get_npu_overflow_flag") or _has_infinities(npu):
        return None

    def read_overflow_flag() -> bool:
        has_overflowed = bool(utils.get_npu_overflow_flag())
        if has_overflowed and hasattr(utils, "clear_npu_overflow_flag"):
            utils.clear_npu_overflow_flag()
        return has_overflowed

    return read_overflow_flag


def _has_infinities(npu: Any) -> bool:
    supported = getattr(getattr(npu.npu, "utils", None), "is_support_inf_nan", None)
    return bool(supported()) if callable(supported) else True
