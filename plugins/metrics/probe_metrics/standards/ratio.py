"""Ratio of a device's number to the trusted device's (docs/standards.md#benchmark-ratio)."""

from __future__ import annotations

import math
from typing import NamedTuple

from probe_precheck.api import Message

from probe_metrics.standards.verdicts import MEASURED_COLUMNS


class Ratio(NamedTuple):
    """Ratio of two numbers, or the reason why there is none.

    Attributes:
        value: The ratio; nan if either number is inf or nan.
        is_comparable: False if either number is inf or nan.
        is_consistent: True if the ratio can be taken, or both numbers are the same inf or nan.
        message: The text for a row whose numbers are not comparable.
    """

    value: float
    is_comparable: bool = True
    is_consistent: bool = True
    message: Message | None = None


def compare_numbers(key: str, npu: float, gpu: float, by_zero: float, floor: float = 0.0) -> Ratio:
    """Return the ratio ``|npu| / |gpu|`` of two numbers of the details' column ``key``.

    inf or nan on either side gives nan and a message. -0.0 counts as 0.0.

    Args:
        key: The column, for the message.
        npu: The number of the device under test.
        gpu: The number of the trusted device.
        by_zero: The ratio if only ``gpu`` is 0; if both are 0 it is 1 (msprobe 1.0.4).
        floor: The least that ``|gpu|`` counts as, so that no division by zero is left (msprobe 8.3); 0 for
            none.
    """
    if not (math.isfinite(npu) and math.isfinite(gpu)):
        return _create_unlike_ratio(key, npu, gpu)
    if floor:
        return Ratio(abs(npu) / max(abs(gpu), floor))
    if gpu == 0:
        return Ratio(1.0 if npu == 0 else float(by_zero))
    return Ratio(abs(npu / gpu))


def _create_unlike_ratio(key: str, npu: float, gpu: float) -> Ratio:
    column = MEASURED_COLUMNS[key]
    if npu == gpu or (math.isnan(npu) and math.isnan(gpu)):
        alike = f"{column.english}: both are the same inf or nan"
        return Ratio(math.nan, False, True, Message(f"{column.chinese}同为同号inf或nan", alike))
    differ = f"{column.english}: inf or nan on one side only, or not the same"
    return Ratio(math.nan, False, False, Message(f"{column.chinese}inf或nan不一致", differ))
