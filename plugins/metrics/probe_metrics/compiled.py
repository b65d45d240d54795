"""Python side of the compiled engine ``_kernel.cpp``: its dtypes, its threads, and guards on mapped files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from probe_core import engine
from probe_core.files import mapped
from probe_metrics import _kernel
from probe_metrics.tally import NO_TOTALS, Array, Tallies, Tally, Totals, Units

DTYPE_CODES = {
    name: code
    for code, name in enumerate(
        ("float64", "float32", "float16", "bfloat16", "int8", "int16", "int32", "int64",
         "uint8", "uint16", "uint32", "uint64", "bool")
    )
}  # fmt: skip
MAX_THREADS = 8
"""Limit of threads; beyond it the memory, not the processors, limits the speed."""

mapped.install_guard(_kernel)

_codes: dict[np.dtype[np.generic], int] = {}


def supports(target: Array, golden: Array, units: Units | None) -> bool:
    """Return True if the kernel knows both dtypes and, unless ``units`` is None, their distances in ulp."""
    for dtype in (target.dtype, golden.dtype):
        if dtype not in _codes:
            _codes[dtype] = DTYPE_CODES.get(dtype.name, -1)
    is_known = _codes[target.dtype] >= 0 and _codes[golden.dtype] >= 0
    return is_known and (units is None or target.dtype == golden.dtype)


def measure(target: Array, golden: Array, units: Units | None, totals: Totals = NO_TOTALS) -> Tally:
    """Return the tally of two contiguous flat arrays of one length.

    Args:
        target: The target's elements.
        golden: The golden's elements.
        units: The dtype and limit of distances in ulp; None to leave them out.
        totals: The sums of the elements before these, if the tensors come in several pieces.
    """
    return Tallies(_measure_requests([(*_build_request(target, golden, units), totals)]))[0]


def measure_many(requests: Iterable[tuple[Array, Array, Units | None]]) -> Array:
    """Return the tallies of several pairs as ``Tallies`` takes them, of shape (pairs, fields).

    The interpreter's lock is released once for all of them.
    """
    return _measure_requests([_build_request(*request) for request in requests])


def _measure_requests(requests: list[tuple[Any, ...]]) -> Array:
    table = np.empty((len(requests), len(Tally._fields)))
    _kernel.measure(requests, _count_threads(), table)
    return table


def _count_threads() -> int:
    return min(MAX_THREADS, engine.count_threads())


def _build_request(target: Array, golden: Array, units: Units | None) -> tuple[Array, Array, int, int, float]:
    target_code, golden_code = _codes[target.dtype], _codes[golden.dtype]
    if target.dtype.kind == "V":  # bfloat16, which exports no buffer
        target = target.view(np.uint16)
    if golden.dtype.kind == "V":
        golden = golden.view(np.uint16)
    return target, golden, target_code, golden_code, -1.0 if units is None else units.limit
