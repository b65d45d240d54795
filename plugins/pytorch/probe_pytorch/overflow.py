"""Task overflow_check: only calls that give out, or take in, nan or infinities are kept (spec/dump 14)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

Flags = Callable[[], bool]
"""Asks the device whether something overflowed since the last time, and forgets it."""


def device_flags() -> Flags | None:
    """The overflow flag of an NPU that saturates instead of giving infinities; None elsewhere.

    Written against torch_npu's documented interface, and tried with a stand-in only.
    """
    npu: Any = sys.modules.get("torch_npu")
    if npu is None:
        return None
    utils = getattr(npu.npu, "utils", None)
    if utils is None or not hasattr(utils, "get_npu_overflow_flag") or _has_infinities(npu):
        return None

    def raised() -> bool:
        found = bool(utils.get_npu_overflow_flag())
        if found and hasattr(utils, "clear_npu_overflow_flag"):
            utils.clear_npu_overflow_flag()
        return found

    return raised


def _has_infinities(npu: Any) -> bool:
    supported = getattr(getattr(npu.npu, "utils", None), "is_support_inf_nan", None)
    return bool(supported()) if callable(supported) else True
