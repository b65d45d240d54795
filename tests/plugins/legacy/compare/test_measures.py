"""Measurements of the older tools on values that have no ordinary answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from probe_legacy.compare.measures import judge_ptdbg, measure_hooks, measure_ptdbg

NAN, INF = float("nan"), float("inf")
NO = "Nan"


@pytest.mark.parametrize(
    ("npu", "bench", "cosine", "difference", "verdict", "said"),
    [
        ([1, 2], [1, 2], "1.0", "0.000000", "Yes", ""),
        ([1, 0], [0, 1], "0.000000", "1.000000", "No", ""),
        ([1, 0], [-1, 0], "-1.000000", "2.000000", "No", ""),
        ([0.001, 0], [0, 0.001], "0.000000", "0.001000", "Yes", ""),
        ([0, 0], [0, 0], "1.0", "0.000000", "Yes", ""),
        ([-0.0, 0], [0, 0], "1.0", "0.000000", "Yes", ""),
        ([0, 0], [1, 2], NO, "2.000000", NO, "Cannot compare by Cosine Similarity, All the data is Zero in npu dump data."),
        ([1, 2], [0, 0], NO, "2.000000", NO, "Cannot compare by Cosine Similarity, All the data is Zero in Bench dump data."),
        ([NAN, 2], [1, 2], NO, "nan", NO, "Cannot compare by Cosine Similarity, the dump data has NaN."),
        ([INF, 2], [INF, 2], NO, "nan", NO, "Cannot compare by Cosine Similarity, the dump data has NaN."),
        ([5], [-5], "1.000000", "10.000000", "Yes", "This tensor is scalar."),
        ([], [], 1, 0, "Yes", "This is empty data, can not compare."),
        (3.0, 4.0, 1, "1.000000", "Yes", "This is type of scalar data, can not compare."),
        (True, True, 1, "0.000000", "Yes", "This is type of scalar data, can not compare."),
        (True, False, 0, "1.000000", "No", "This is type of scalar data, can not compare."),
        ([1, 2], [1], "shape unmatched", "shape unmatched", "Unmatched",
         "Shape of NPU and bench Tensor do not match. Skipped."),
    ],
)  # fmt: skip
def test_ptdbg(npu: Any, bench: Any, cosine: object, difference: object, verdict: str, said: str) -> None:
    measured = measure_ptdbg(np.array(npu), np.array(bench))
    assert measured == (cosine, difference, said)
    assert judge_ptdbg(*measured[:2]) == verdict


@pytest.mark.parametrize(
    ("npu", "bench", "cosine", "rmse", "mape"),
    [
        ([0, 0], [0, 0], "nan", 0.0, "nan%"),
        ([1, 2], [0, 0], "nan", pytest.approx(1.5811388), "inf%"),
        ([0, 0], [1, 2], "nan", pytest.approx(1.5811388), "100.0%"),
        ([NAN, 1], [1, 1], "nan", "", "nan%"),
        ([INF, 1], [1, 1], "nan", INF, "inf%"),
        ([INF, 1], [INF, 1], "nan", "", "nan%"),
        ([1, 0], [0, 1], "0.0", 1.0, "inf%"),
        (2.0, 1.0, "1.0", 1.0, "100.0%"),
        (-2.0, 1.0, "-1.0", 3.0, "300.0%"),
        ([], [], "nan", "", "nan%"),
        ([1, 2], [1], "cannot be calculated ", "cannot be calculated", "cannot be calculated"),
    ],
)
def test_hooks(npu: Any, bench: Any, cosine: str, rmse: object, mape: str) -> None:
    assert measure_hooks(np.array(npu), np.array(bench)) == (cosine, rmse, mape)
