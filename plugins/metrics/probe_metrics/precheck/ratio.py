"""The ratio of a device's number to the trusted device's (spec: pre-check guide 9.5)."""

from __future__ import annotations

import math
from typing import NamedTuple

from probe_precheck import Message

from probe_metrics.precheck.verdicts import MEASURED


class Ratio(NamedTuple):
    """A ratio; nan with a message, and whether both numbers are the same inf or nan, where either is one."""

    value: float
    comparable: bool = True
    consistent: bool = True
    message: Message | None = None


def ratio_of(key: str, npu: float, gpu: float, by_zero: float, floor: float = 0.0) -> Ratio:
    """The ratio of two numbers of the details' column ``key``.

    Without a floor, 0 to 0 is 1 and anything else to 0 is ``by_zero`` (seed); with one, the GPU's number
    counts as at least the floor (8.3).
    """
    if not (math.isfinite(npu) and math.isfinite(gpu)):
        return _unlike_numbers(key, npu, gpu)
    if floor:
        return Ratio(abs(npu) / max(abs(gpu), floor))
    if gpu == 0:
        return Ratio(1.0 if npu == 0 else float(by_zero))
    return Ratio(abs(npu / gpu))


def _unlike_numbers(key: str, npu: float, gpu: float) -> Ratio:
    column = MEASURED[key]
    if npu == gpu or (math.isnan(npu) and math.isnan(gpu)):
        alike = f"{column.english}: both are the same inf or nan"
        return Ratio(math.nan, False, True, Message(f"{column.chinese}同为同号inf或nan", alike))
    differ = f"{column.english}: inf or nan on one side only, or not the same"
    return Ratio(math.nan, False, False, Message(f"{column.chinese}inf或nan不一致", differ))
