"""Benchmark of the metrics' pass over a pair of tensors in memory: ``python kernel.py``.

Each line is for one dtype and one size per side. It shows microseconds per pair and GB/s (of both sides
together) on one thread for the compiled engine, the numpy engine and naive numpy in float64, the speed of the
compiled engine relative to naive numpy, and its share of one core's read bandwidth. All numbers are medians
of thread CPU time.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before numpy is imported: one core's read limit is measured

import ml_dtypes
import numpy as np
from probe_metrics import blocked, compiled
from probe_metrics.tally import Tally

from probe_core import engine

DTYPES: dict[str, Any] = {
    "float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float64": np.float64,
    "int32": np.int32, "bool": np.bool_,
}  # fmt: skip
SIZES = {"4 KiB": 4 << 10, "1 MiB": 1 << 20, "64 MiB": 64 << 20}


def naive(target: Any, golden: Any) -> tuple[float, ...]:
    """Compute the same metrics in the most direct way, with whole arrays in float64."""
    n, b = target.astype(np.float64), golden.astype(np.float64)
    if not (np.isfinite(n).all() and np.isfinite(b).all()):
        raise ValueError("the benchmark has no special values")
    d = n - b
    absolute = np.abs(d)
    with np.errstate(all="ignore"):
        relative = np.where(d == 0, 0.0, absolute / np.abs(b))
    norms = np.sqrt((n * n).sum()), np.sqrt((b * b).sum())
    return (
        float((n * b).sum() / norms[0] / norms[1]), float(np.sqrt((d * d).sum())), float(absolute.max()),
        float(relative.max()), float((relative < 1e-3).mean()), float((relative < 5e-3).mean()),
        float(relative.mean()), float(np.sqrt((d * d).mean())), float(n.max()), float(n.min()),
        float(b.max()), float(b.min()), float(n.mean()), float(b.mean()), *norms,
        bool((target == golden).all()),
    )  # fmt: skip


def seconds(run: Callable[[], object], at_least: float) -> float:
    """Return the median thread CPU time of ``run``, measured for ``at_least`` seconds and three times."""
    calls = 1
    while True:  # find a number of calls that the clock can measure
        begun = time.thread_time()
        for _ in range(calls):
            run()
        if (spent := time.thread_time() - begun) > 2e-3 or calls > 1e5:
            break
        calls *= 4
    times = [spent / calls]
    until = time.thread_time() + at_least
    while len(times) < 3 or time.thread_time() < until:
        begun = time.thread_time()
        for _ in range(calls):
            run()
        times.append((time.thread_time() - begun) / calls)
    return statistics.median(times)


def read_limit(size: int) -> float:
    """Return the bytes per second that one core reads from two arrays of ``size`` bytes each.

    It is the faster of two ways: sums and a dot product.
    """
    first, second = (np.ones(size // 8) for _ in range(2))
    by_sums = seconds(lambda: (first.sum(), second.sum()), 0.3)
    by_dot = seconds(lambda: np.dot(first, second), 0.3)
    return 2 * size / min(by_sums, by_dot)


def pair(dtype: Any, size: int) -> tuple[Any, Any]:
    """Return a target and a golden array that differ by about a thousandth."""
    count = size // np.dtype(dtype).itemsize
    generator = np.random.default_rng(0)
    golden = generator.standard_normal(count, np.float32) * (100 if np.dtype(dtype).kind == "i" else 1)
    target = golden * (1 + 1e-3 * generator.standard_normal(count, np.float32))
    return target.astype(dtype), golden.astype(dtype)


def main() -> None:
    """Run the benchmark and print its table."""
    engine.use_threads(1)
    print("dtype     a side    compiled            numpy              naive        times  of the read limit")
    for name, dtype in DTYPES.items():
        for label, size in SIZES.items():
            target, golden = pair(dtype, size)
            assert compiled.supports(target, golden, None)

            def by(measure: Callable[..., Tally]) -> float:
                return seconds(lambda: measure(target, golden, None), 0.5)  # noqa: B023  # called at once

            fast, plain = by(compiled.measure), by(blocked.measure)
            slow = seconds(lambda: naive(target, golden), 0.5)  # noqa: B023  # called at once
            share = 2 * size / fast / read_limit(size)
            rates = (f"{spent * 1e6:9.1f} us {2 * size / spent / 1e9:5.2f}" for spent in (fast, plain, slow))
            print(f"{name:9} {label:7} {'  '.join(rates)} GB/s {slow / fast:6.0f}x {share:5.0%}", flush=True)
    engine.use_threads(0)


if __name__ == "__main__":
    main()
