"""The compiled engine: ``_kernel.cpp`` asked for the dtypes that it knows, and on guard over mapped files."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from probe_core import engine
from probe_core.files import mapped
from probe_metrics import _kernel
from probe_metrics.tally import NO_TOTALS, Array, Tally, Totals, Units

CODES = {
    name: code
    for code, name in enumerate(
        ("float64", "float32", "float16", "bfloat16", "int8", "int16", "int32", "int64",
         "uint8", "uint16", "uint32", "uint64", "bool")
    )
}  # fmt: skip
MOST_THREADS = 8
"""Behind which memory, and not the processors, sets the pace."""

mapped.use(_kernel)

_codes: dict[np.dtype[np.generic], int] = {}


def supports(target: Array, golden: Array, units: Units | None) -> bool:
    """Whether the kernel knows both dtypes, and the distances that are asked for."""
    ours, theirs = target.dtype, golden.dtype
    for dtype in (ours, theirs):
        if dtype not in _codes:
            _codes[dtype] = CODES.get(dtype.name, -1)
    return _codes[ours] >= 0 and _codes[theirs] >= 0 and (units is None or ours == theirs)


def measure(target: Array, golden: Array, units: Units | None, totals: Totals = NO_TOTALS) -> Tally:
    """The tally of two flat arrays of one length, with no element but theirs."""
    return Tally._make(_kernel.measure(*_request(target, golden, units), _threads(), totals))


def measure_many(requests: Iterable[tuple[Array, Array, Units | None]]) -> list[Tally]:
    """The tallies of several pairs as ``measure`` takes them; the interpreter's lock is let go but once."""
    found = _kernel.measure_many([_request(*request) for request in requests], _threads())
    return [Tally._make(tally) for tally in found]


def _threads() -> int:
    return min(MOST_THREADS, engine.threads())


def _request(target: Array, golden: Array, units: Units | None) -> tuple[Array, Array, int, int, float]:
    ours, theirs = _codes[target.dtype], _codes[golden.dtype]
    if target.dtype.kind == "V":  # bfloat16, which exports no buffer
        target = target.view(np.uint16)
    if golden.dtype.kind == "V":
        golden = golden.view(np.uint16)
    return target, golden, ours, theirs, -1.0 if units is None else units.limit
