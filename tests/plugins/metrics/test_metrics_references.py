"""Every metric of sums and maxima against an independent reference, in every dtype and length."""

from __future__ import annotations

import cmath
import itertools
import math
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import given
from probe_metrics.cosine import Cosine
from pytest import approx
from support.cases import every
from support.measuring import PROPERTY, look
from support.references.metric_reference import (
    DTYPES,
    METRICS,
    SUMMED,
    pairs,
    reference,
    reference_cosine,
    reference_differences,
    reference_euclidean,
    reference_relative,
    two_arrays,
)

from probe_core.model.measure import BLOCK_ELEMENTS

Array = np.ndarray[Any, Any]

inf = math.inf


@every("name", SUMMED)
@every("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_every_dtype_against_the_reference(name: str, dtype: Any) -> None:
    """Unsigned and small integers must not wrap around, nor small floats round on the way."""
    target, golden = pairs(dtype)
    assert look(METRICS[name], target, golden) == approx(reference(name, target, golden), rel=1e-12)


MIXES = [
    (ml_dtypes.bfloat16, np.float32), (np.float32, ml_dtypes.bfloat16), (np.float16, np.float32),
    (np.float16, ml_dtypes.bfloat16), (np.float64, np.float16), (np.int32, np.float32), (np.bool_, np.uint8),
    (np.uint8, np.int8), (np.complex64, np.float32), (ml_dtypes.bfloat16, np.complex64),
    (ml_dtypes.float8_e4m3fn, ml_dtypes.bfloat16), (np.dtype(">f4"), np.dtype("<f4")),
]  # fmt: skip


@every("name", SUMMED)
@every("mix", MIXES, ids=lambda mix: "-".join(np.dtype(one).name for one in mix))
def test_mixed_dtypes_against_the_reference(name: str, mix: tuple[Any, Any]) -> None:
    """Each side keeps its own values: neither is rounded to the other's dtype first."""
    target, golden = pairs(mix[0], seed=1)[0], pairs(mix[1], seed=1)[1]
    assert look(METRICS[name], target, golden) == approx(reference(name, target, golden), rel=1e-12)


@every("name", SUMMED)
@every("size", [BLOCK_ELEMENTS - 1, BLOCK_ELEMENTS, BLOCK_ELEMENTS + 1, 3 * BLOCK_ELEMENTS + 7])
def test_long_tensors_against_the_reference(name: str, size: int) -> None:
    """The whole counts, whatever the size of a block."""
    target, golden = pairs(np.float32, size)
    assert look(METRICS[name], target, golden) == approx(reference(name, target, golden), rel=1e-11)


@PROPERTY
@given(two_arrays())
def test_any_floats_against_the_reference(arrays: tuple[Array, Array]) -> None:
    """From denormals to 1e300 in one array; cosine where both sides have a direction."""
    target, golden = arrays
    for name in SUMMED:
        if name != "cosine":
            expected = reference(name, target, golden)
            assert look(METRICS[name], target, golden) == approx(expected, rel=1e-12, abs=1e-323), name
    if target.any() and golden.any():
        assert look(Cosine(), target, golden) == [approx(reference_cosine(target, golden), abs=1e-12)]


def test_the_references_know_the_worked_example() -> None:
    """The reference itself is checked: 3-4-5, and complex numbers through Python's own modulus."""
    assert reference_euclidean([3.0, 0.0], [0.0, 4.0]) == 5
    assert reference_cosine([1.0, 0.0], [1.0, 1.0]) == approx(math.sqrt(0.5))
    assert reference_differences([3 + 4j], [0j]) == [abs(cmath.rect(5, 1))]
    assert list(itertools.chain(reference_relative([0.0, 1.0, 3.0], [0.0, 0.0, 2.0]))) == [0, inf, 0.5]
