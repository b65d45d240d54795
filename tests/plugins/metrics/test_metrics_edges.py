"""Examples worked by hand: the answer of every metric at every edge."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from pytest import approx
from support.measuring import look
from support.references.metric_reference import METRICS, SAME, SUMMED

Array = np.ndarray[Any, Any]

nan, inf = math.nan, math.inf


def case(name: str, target: Any, golden: Any, **expected: Any) -> Any:
    return pytest.param(target, golden, expected, id=name)


def f16(*items: float) -> Array:
    return np.array(items, np.float16)


APART = {name: ["positions"] * count for name, count in
         {"cosine": 1, "euclidean": 1, "max_error": 2, "error_ratio": 2, "rmse": 1, "mape": 1, "ulp": 3}.items()}  # fmt: skip
"""Answers of all metrics if nan or inf at different positions."""

CASES = [
    case("by hand", [1.0, 2.0, 3.0], [1.0, 2.0, 4.0], cosine=[17 / math.sqrt(14 * 21)], euclidean=[1],
         max_error=[1, 0.25], error_ratio=[2 / 3, 2 / 3], rmse=[math.sqrt(1 / 3)], mape=[0.25 / 3], equal=[False]),
    case("by hand, signs", [-2.0, 2.0], [2.0, 4.0], cosine=[4 / math.sqrt(8 * 20)], euclidean=[math.sqrt(20)],
         max_error=[4, 2], error_ratio=[0, 0], rmse=[math.sqrt(10)], mape=[1.25]),
    case("a golden below zero", [-1.0, -3.0], [-2.0, -4.0], max_error=[1, 0.5], mape=[0.375]),
    case("opposite", [1.0, -2.0], [-1.0, 2.0], cosine=[-1], max_error=[4, 2]),
    case("at right angles", [1.0, 0.0], [0.0, 1.0], cosine=[0], max_error=[1, inf]),
    case("parallel", [2.0, 4.0], [1.0, 2.0], cosine=[1], max_error=[2, 1], mape=[1]),
    # 1/1000 and 5/1000 themselves are not below
    case("exactly one thousandth", [1001.0, 1000.0], [1000.0, 1000.0], error_ratio=[0.5, 1]),
    case("exactly five thousandths", [1005.0, 1000.0], [1000.0, 1000.0], error_ratio=[0.5, 0.5]),
    case("just below both", [1000.999, 1004.999], [1000.0, 1000.0], error_ratio=[0.5, 1]),
    # zeros
    case("signs of zero", [-0.0, 1.0], [0.0, 1.0], cosine=[1], equal=[False], **SAME),
    case("both all zero", [0.0, 0.0], [0.0, 0.0], cosine=[1], equal=[True], **SAME),
    case("both all zero, signs differ", [-0.0, 0.0], [0.0, -0.0], cosine=[1], equal=[False], **SAME),
    case("target all zero", [0.0, -0.0], [3.0, 4.0], cosine=["target_zero"], euclidean=[5], max_error=[4, 1],
         error_ratio=[0, 0], rmse=[5 / math.sqrt(2)], mape=[1]),
    case("golden all zero", [3.0, 4.0], [0.0, -0.0], cosine=["golden_zero"], euclidean=[5], max_error=[4, inf],
         error_ratio=[0, 0], rmse=[5 / math.sqrt(2)], mape=[inf]),
    case("one zero in the golden", [1.0, 2.0], [0.0, 2.0], max_error=[1, inf], error_ratio=[0.5, 0.5], mape=[inf]),
    case("zero at one place of both", [0.0, 2.0], [0.0, 4.0], cosine=[1], max_error=[2, 0.5],
         error_ratio=[0.5, 0.5], mape=[0.25]),
    case("tiny against zero", [1e-300, 1.0], [0.0, 1.0], max_error=[1e-300, inf], error_ratio=[0.5, 0.5]),
    # nan and inf
    case("nan at one place of both", [nan, 3.0, 4.0], [nan, 3.0, 4.0], cosine=[1], equal=[True], **SAME),
    case("inf at one place of both", [inf, -inf, 4.0], [inf, -inf, 4.0], cosine=[1], equal=[True], **SAME),
    case("inf of both counts as zero and as equal", [inf, 3.0, 4.0], [inf, 4.0, 3.0], cosine=[24 / 25],
         euclidean=[math.sqrt(2)], max_error=[1, 1 / 3], error_ratio=[1 / 3, 1 / 3], rmse=[1],
         mape=[(1 / 4 + 1 / 3) / 2]),
    case("means leave out what is not finite", np.float32([nan, inf, -inf, 1, 2]), np.float32([nan, inf, -inf, 1, 4]),
         euclidean=[2], max_error=[2, 0.5], rmse=[math.sqrt(2)], mape=[0.25], ulp=[1 << 23, 1 << 22, 0.5]),
    case("complex means leave out what is not finite", [complex(nan, 1), complex(inf, nan), 3j, 1], [complex(nan, 1), complex(inf, nan), 1j, 1],
         rmse=[math.sqrt(2)], mape=[1]),
    case("nothing but nan", [nan, nan], [nan, nan], cosine=[1], equal=[True],
         **{name: ["nan"] * len(answer) if name in ("rmse", "mape", "ulp") else answer for name, answer in SAME.items()}),
    case("nan, else target zero", [nan, 0.0], [nan, 2.0], cosine=["target_zero"], max_error=[2, 1]),
    case("nan, else golden zero", [nan, 2.0], [nan, 0.0], cosine=["golden_zero"], max_error=[2, inf]),
    case("nan on one side", [nan, 1.0], [1.0, 1.0], equal=[False], **APART),
    case("nan on the golden's side", [1.0, 1.0], [1.0, nan], equal=[False], **APART),
    case("nan at different places", [nan, 1.0], [1.0, nan], equal=[False], **APART),
    case("inf on one side", [inf, 1.0], [1.0, 1.0], **APART),
    case("inf of different signs", [inf, 1.0], [-inf, 1.0], equal=[False], **APART),
    case("nan against inf", [nan, 1.0], [inf, 1.0], **APART),
    case("nan and inf change places", [nan, inf], [inf, nan], **APART),
    # no direction
    case("0-d", np.array(3.0), np.array(2.0), cosine=["zero_dimensional"], euclidean=["zero_dimensional"],
         max_error=[1, 0.5], error_ratio=["zero_dimensional"] * 2, rmse=[1], mape=[0.5], equal=[False]),
    case("0-d, equal", np.array(3.0), np.array(3.0), max_error=[0, 0], rmse=[0], mape=[0], ulp=[0, 0, 0],
         equal=[True]),
    case("0-d, zero golden", np.array(3.0), np.array(0.0), cosine=["zero_dimensional"], max_error=[3, inf]),
    case("0-d, nan on one side", np.array(nan), np.array(2.0), **APART),
    case("0-d, nan on both sides", np.array(nan), np.array(nan), cosine=["zero_dimensional"], max_error=[0, 0],
         equal=[True]),
    case("0-d, bool", np.array(True), np.array(False), max_error=[1, inf], rmse=[1], equal=[False]),
    case("0-d, complex", np.array(3 + 4j), np.array(0j), max_error=[5, inf], rmse=[5]),
    case("one element", [3.0], [2.0], cosine=["one_element"], euclidean=[1], max_error=[1, 0.5],
         error_ratio=[0, 0], rmse=[1], mape=[0.5]),
    case("one element in two dimensions", [[3.0]], [[2.0]], cosine=["one_element"], euclidean=[1]),
    case("one element, zero", [3.0], [0.0], cosine=["one_element"], max_error=[3, inf]),
    # integers and truth values
    case("bool", [True, False], [True, True], cosine=[1 / math.sqrt(2)], euclidean=[1], max_error=[1, 1],
         error_ratio=[0.5, 0.5], rmse=[math.sqrt(0.5)], mape=[0.5], ulp=["no_number"] * 3, equal=[False]),
    case("uint8 does not wrap", np.uint8([5, 1]), np.uint8([250, 1]), max_error=[245, 0.98], euclidean=[245]),
    case("int8 does not wrap", np.int8([-128, 1]), np.int8([127, 1]), max_error=[255, 255 / 127]),
    case("int8, the least number's size", np.int8([-128, 0]), np.int8([-128, 0]), cosine=[1], max_error=[0, 0]),
    case("int32 does not wrap", np.int32([-(2**31), 0]), np.int32([2**31 - 1, 0]), max_error=[2**32 - 1, (2**32 - 1) / (2**31 - 1)]),
    case("int64 at its ends", np.int64([-(2**63), 0]), np.int64([2**63 - 1, 0]), max_error=[2.0**64, 2], cosine=[-1]),
    case("uint64 at its end", np.uint64([2**64 - 1, 0]), np.uint64([0, 1]), max_error=[2.0**64, inf]),
    # range
    case("float16 whose norm float16 cannot hold", np.full(300, 1000, np.float16), np.full(300, 2000, np.float16),
         cosine=[1], euclidean=[1000 * math.sqrt(300)], max_error=[1000, 0.5], rmse=[1000]),
    case("float16 whose difference float16 cannot hold", f16(65504, 1), f16(-65504, 1), max_error=[131008, 2]),
    case("float16 denormals", f16(2**-24, 0), f16(2**-23, 0), cosine=[1], max_error=[2.0**-24, 0.5], ulp=[1, 0.5, 0]),
    case("float64 near its end", [1e300, 1e300], [1e300, -1e300], cosine=[0], euclidean=[2e300],
         max_error=[2e300, 2], rmse=[2e300 / math.sqrt(2)], mape=[1]),
    case("float64 near its end, all alike", [1e300] * 5, [1e300] * 5, cosine=[1], **SAME),
    case("float64 near zero", [1e-300, 2e-300], [1e-300, 1e-300], cosine=[3 / math.sqrt(10)], euclidean=[1e-300],
         max_error=[1e-300, 1], rmse=[1e-300 / math.sqrt(2)], mape=[0.5]),
    case("large against small", [1e300, 2e300], [1e-300, 2e-300], cosine=[1], euclidean=[math.sqrt(5) * 1e300]),
    case("float64 denormals", [5e-324, 0.0], [1e-323, 0.0], cosine=[1], euclidean=[5e-324], max_error=[5e-324, 0.5],
         mape=[0.25], ulp=[1, 0.5, 0]),
    case("one denormal beside an ordinary number", [5e-324, 1.0], [1e-323, 1.0], cosine=[1], max_error=[5e-324, 0.5]),
    case("a difference float64 cannot hold", [1.7e308, 1.0], [-1.7e308, 1.0], cosine=[-1], euclidean=[inf],
         max_error=[inf, inf], error_ratio=[0.5, 0.5], rmse=[inf]),
    case("complex128 near its end", [1.5e308 + 1.5e308j, 1], [1.5e308 + 1.5e308j, 1], cosine=[1], max_error=[0, 0]),
    case("complex128, parts near 1e300", [1e300 + 1e300j, 0], [1e300 - 1e300j, 0], cosine=[0], max_error=[2e300, math.sqrt(2)]),
    # complex numbers
    case("complex by hand", [3 + 4j, 1 + 0j], [0j, 1 + 0j], cosine=[1 / math.sqrt(26)], euclidean=[5],
         max_error=[5, inf], error_ratio=[0.5, 0.5], rmse=[5 / math.sqrt(2)]),
    case("complex turned by 90 degrees", [1j, 1j], [1 + 0j, 1 + 0j], cosine=[0], max_error=[math.sqrt(2)] * 2),
    case("complex conjugates", [1 + 1j, 2j], [1 - 1j, -2j], cosine=[-4 / 6], ulp=["no_number"] * 3),
    case("complex nan in the same part", [complex(nan, 1), 2], [complex(nan, 1), 2], cosine=[1], max_error=[0, 0]),
    case("complex nan in different parts", [complex(nan, 1), 2], [complex(1, nan), 2],
         **{name: answer for name, answer in APART.items() if name != "ulp"}),
    case("complex inf of different signs", [complex(0, inf), 2], [complex(0, -inf), 2],
         **{name: answer for name, answer in APART.items() if name != "ulp"}),
]  # fmt: skip


@pytest.mark.parametrize(("target", "golden", "expected"), CASES)
def test_edges(target: Any, golden: Any, expected: dict[str, list[Any]]) -> None:
    for name, answer in expected.items():
        found = look(METRICS[name], target, golden)
        assert found == [item if isinstance(item, str) else approx(item, rel=1e-14, abs=0) for item in answer], name


def test_infinity_of_one_side_by_rounding_is_another_place() -> None:
    """bfloat16 holds 1e38 where float16 has inf: that is a difference, not a coincidence."""
    target, golden = f16(inf, 1), np.array([1e38, 1], ml_dtypes.bfloat16)
    for name in SUMMED:
        assert set(look(METRICS[name], target, golden)) == {"positions"}
