"""Every element counts once, wherever it lies in memory, and none is written to."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from probe_metrics.cosine import Cosine
from probe_metrics.equal import Equal
from probe_metrics.error_ratio import ErrorRatio
from probe_metrics.euclidean import Euclidean
from probe_metrics.kernel import compute_group_sums
from probe_metrics.mape import Mape
from probe_metrics.max_error import MaxError
from probe_metrics.rmse import Rmse
from probe_metrics.ulp import Ulp
from pytest import approx
from support.cases import every
from support.measuring import look, measure
from support.references.metric_reference import METRICS, SUMMED, pairs

from probe_core.model.measure import BLOCK_ELEMENTS, PairGroup
from probe_core.testing import pair_of

nan, inf = math.nan, math.inf


@pytest.mark.parametrize("place", [0, BLOCK_ELEMENTS - 1, BLOCK_ELEMENTS, 2 * BLOCK_ELEMENTS, 2 * BLOCK_ELEMENTS + 4])
def test_no_element_is_left_out(place: int) -> None:
    """One element differs, at the ends of blocks and in the last, short one."""
    size = 2 * BLOCK_ELEMENTS + 5
    golden = np.ones(size, np.float32)
    target = golden.copy()
    target[place] = 3
    assert look(Euclidean(), target, golden) == [2]
    assert look(MaxError(), target, golden) == [2, 2]
    assert look(ErrorRatio(), target, golden) == [(size - 1) / size] * 2
    assert look(Rmse(), target, golden) == [approx(2 / math.sqrt(size))]
    assert look(Mape(), target, golden) == [approx(2 / size)]
    assert look(Ulp(), target, golden) == [3 << 22, approx((3 << 22) / size), 1 / size]
    assert look(Equal(), target, golden) == [False]
    target[place] = nan
    for name in (*SUMMED, "ulp"):
        assert set(look(METRICS[name], target, golden)) == {"positions"}, name
    golden[place] = nan
    assert look(MaxError(), target, golden) == [0, 0]
    assert look(Cosine(), target, golden) == [approx(1)]


LAYOUTS = {
    "transposed": lambda a: np.ascontiguousarray(a.T).T,
    "fortran": np.asfortranarray,
    "every second of a wider one": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "backwards in memory": lambda a: np.ascontiguousarray(a[::-1, ::-1])[::-1, ::-1],
    "unaligned": lambda a: np.frombuffer(b"\0" + a.tobytes(), a.dtype, a.size, 1).reshape(a.shape),
    "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
}


@every("name", METRICS)
@every("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_memory_layout_is_irrelevant(name: str, layout: Any) -> None:
    """Elements are compared by their indices, wherever they lie in memory."""
    target, golden = pairs(np.float32, (5, 7))
    laid = layout(golden)
    assert laid.tolist() == golden.tolist()
    assert look(METRICS[name], target, laid) == look(METRICS[name], target, golden)
    assert look(METRICS[name], layout(target), golden) == look(METRICS[name], target, golden)


def test_expanded_tensor() -> None:
    """Stride 0, as ``expand`` leaves it: one stored element stands for many, and none is written to."""
    target = np.broadcast_to(np.array([nan, 1], np.float32), (3, 2))
    golden = np.array([[nan, 1], [nan, 1], [nan, 2]], np.float32)
    assert look(MaxError(), target, golden) == [1, 0.5]
    assert math.isnan(target[0, 0])


@pytest.mark.parametrize("name", METRICS)
def test_the_recorded_data_are_not_written_to(name: str) -> None:
    """Nan and inf count as zero in the sums, not in the tensors."""
    target, golden = np.array([nan, inf, 1.0]), np.array([nan, inf, 2.0])
    measure(METRICS[name], target, golden)
    assert np.isnan(target[0]) and np.isinf(golden[1])


def test_one_pass_serves_all() -> None:
    """Six columns of a table read the tensors once."""
    group = PairGroup([pair_of(np.ones(3), np.ones(3))])
    assert group.once(compute_group_sums) is group.once(compute_group_sums)
