"""The metrics that measure tensors, independent references to hold them against, and arrays for both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import mpmath
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from probe_metrics.cosine import Cosine
from probe_metrics.equal import Equal
from probe_metrics.error_ratio import ErrorRatio
from probe_metrics.euclidean import Euclidean
from probe_metrics.mape import Mape
from probe_metrics.max_error import MaxError
from probe_metrics.rmse import Rmse
from probe_metrics.ulp import Ulp

Array = np.ndarray[Any, Any]

inf = math.inf

METRICS = {
    "cosine": Cosine(), "euclidean": Euclidean(), "max_error": MaxError(), "error_ratio": ErrorRatio(),
    "rmse": Rmse(), "mape": Mape(), "ulp": Ulp(), "equal": Equal(),
}  # fmt: skip
SUMMED = [name for name in METRICS if name not in ("ulp", "equal")]


def numbers(array: Any) -> list[complex | float]:
    """The elements as Python's own floats or complexes, in their order."""
    flat = np.ravel(array)
    return [
        complex(item) if flat.dtype.kind == "c" else float(item)
        for item in flat.astype(complex if flat.dtype.kind == "c" else float)
    ]


def reference_cosine(target: Any, golden: Any) -> float:
    with mpmath.workdps(50):
        ours, theirs = ([mpmath.mpmathify(item) for item in numbers(side)] for side in (target, golden))
        dot = mpmath.fsum(mpmath.re(n * mpmath.conj(b)) for n, b in zip(ours, theirs))
        return float(dot / reference_norm(ours) / reference_norm(theirs))


def reference_norm(items: Sequence[Any]) -> Any:
    with mpmath.workdps(50):
        return mpmath.sqrt(mpmath.fsum(mpmath.mpmathify(abs(item)) ** 2 for item in items))


def reference_differences(target: Any, golden: Any) -> list[Any]:
    """|N - B|, each rounded once as float64 does."""
    return [abs(n - b) for n, b in zip(numbers(target), numbers(golden))]


def reference_euclidean(target: Any, golden: Any) -> float:
    return float(reference_norm(reference_differences(target, golden)))


def reference_rmse(target: Any, golden: Any) -> float:
    differences = reference_differences(target, golden)
    with mpmath.workdps(50):
        return float(reference_norm(differences) / mpmath.sqrt(len(differences)))


def reference_relative(target: Any, golden: Any) -> list[float]:
    """Return relative errors: 0 where both sides agree, else divided by the golden."""
    found = []
    for difference, theirs in zip(reference_differences(target, golden), numbers(golden)):
        if difference == 0:
            found.append(0.0)
        else:
            found.append(difference / abs(theirs) if theirs != 0 else inf)
    return found


def reference(name: str, target: Any, golden: Any) -> list[float]:
    """Return what metric ``name`` must say of finite tensors of two elements or more."""
    relative = reference_relative(target, golden)
    size = len(relative)
    return {
        "cosine": lambda: [reference_cosine(target, golden)],
        "euclidean": lambda: [reference_euclidean(target, golden)],
        "max_error": lambda: [max(reference_differences(target, golden)), max(relative)],
        "error_ratio": lambda: [
            sum(item < 0.001 for item in relative) / size,
            sum(item < 0.005 for item in relative) / size,
        ],
        "rmse": lambda: [reference_rmse(target, golden)],
        "mape": lambda: [math.fsum(relative) / size if inf not in relative else inf],
    }[name]()


def pairs(dtype: Any, shape: Any = (4, 9), seed: int = 0) -> tuple[Array, Array]:
    """A golden of ``dtype`` and a target that is off by about a thousandth of most elements."""
    dtype = np.dtype(dtype)
    rng = np.random.default_rng(seed)
    if dtype.kind == "b":
        golden = rng.integers(0, 2, shape).astype(bool)
        return golden ^ (rng.random(shape) < 0.2), golden
    if dtype.kind in "iu":
        least = max(np.iinfo(dtype).min, -(10**6))
        most = min(np.iinfo(dtype).max, 10**6)
        golden = rng.integers(least, most, shape, dtype=dtype, endpoint=True)
        return rng.integers(least, most, shape, dtype=dtype, endpoint=True), golden
    golden = rng.normal(0, 3, shape)
    target = golden * (1 + rng.normal(0, 2e-3, shape))
    if dtype.kind == "c":
        golden = golden + 1j * rng.normal(0, 3, shape)
        target = target + 1j * golden.imag * (1 + rng.normal(0, 2e-3, shape))
    return target.astype(dtype), golden.astype(dtype)


DTYPES = [
    np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.float16,
    ml_dtypes.bfloat16, np.float32, np.float64, np.complex64, np.complex128, ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e5m2,
]  # fmt: skip

SAME = {
    "euclidean": [0],
    "max_error": [0, 0],
    "error_ratio": [1, 1],
    "rmse": [0],
    "mape": [0],
    "ulp": [0, 0, 0],
}
"""Answers of all metrics but cosine on equal tensors."""

FLOATS = st.floats(-1e300, 1e300)
"""Every magnitude whose differences float64 holds, denormals and both zeros among them."""

ANY = st.floats(width=32)


@st.composite
def two_arrays(draw: st.DrawFn, elements: Any = FLOATS, dtype: Any = np.float64) -> Any:
    """Two arrays of one shape, of two elements or more; half of the time close to each other."""
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=6).filter(lambda s: np.prod(s) > 1))
    golden = draw(hnp.arrays(dtype, shape, elements=elements))
    if draw(st.booleans()):
        with np.errstate(over="ignore"):
            return golden * dtype(1 + draw(st.floats(-0.01, 0.01))), golden
    return draw(hnp.arrays(dtype, shape, elements=elements)), golden
