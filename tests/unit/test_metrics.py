"""Every metric against an independent reference, its properties, and its answer at every edge.

References: mpmath with 50 digits for what is summed, plain Python floats for the rest, steps of
``nextafter`` and ranks among all numbers of a type for ulp, worked examples by hand.
"""

from __future__ import annotations

import cmath
import itertools
import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import mpmath
import numpy as np
import pytest
from helpers import PROPERTY, look, measure, pair_of, pair_of_values, tensor_value
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from probe_metrics.checksum import Checksum
from probe_metrics.cosine import Cosine
from probe_metrics.equal import Equal
from probe_metrics.error_ratio import ErrorRatio
from probe_metrics.euclidean import Euclidean
from probe_metrics.kernel import sums
from probe_metrics.mape import Mape
from probe_metrics.max_error import MaxError
from probe_metrics.rmse import Rmse
from probe_metrics.statistics import StatisticsDifference
from probe_metrics.ulp import Ulp
from pytest import approx

from probe_core.measure import BLOCK
from probe_core.model import Statistics

nan, inf = math.nan, math.inf
Array = np.ndarray[Any, Any]

METRICS = {
    "cosine": Cosine(), "euclidean": Euclidean(), "max_error": MaxError(), "error_ratio": ErrorRatio(),
    "rmse": Rmse(), "mape": Mape(), "ulp": Ulp(), "equal": Equal(),
}  # fmt: skip
SUMMED = [name for name in METRICS if name not in ("ulp", "equal")]


# -- references --------------------------------------------------------------------------------


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
    """Decision D4."""
    found = []
    for difference, theirs in zip(reference_differences(target, golden), numbers(golden)):
        if difference == 0:
            found.append(0.0)
        else:
            found.append(difference / abs(theirs) if theirs != 0 else inf)
    return found


def reference(name: str, target: Any, golden: Any) -> list[float]:
    """What metric ``name`` is to say of finite tensors of two elements or more."""
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


@pytest.mark.parametrize("name", SUMMED)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
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


@pytest.mark.parametrize("name", SUMMED)
@pytest.mark.parametrize("mix", MIXES, ids=lambda mix: "-".join(np.dtype(one).name for one in mix))
def test_mixed_dtypes_against_the_reference(name: str, mix: tuple[Any, Any]) -> None:
    """Each side keeps its own values: neither is rounded to the other's dtype first."""
    target, golden = pairs(mix[0], seed=1)[0], pairs(mix[1], seed=1)[1]
    assert look(METRICS[name], target, golden) == approx(reference(name, target, golden), rel=1e-12)


@pytest.mark.parametrize("name", SUMMED)
@pytest.mark.parametrize("size", [BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7])
def test_long_tensors_against_the_reference(name: str, size: int) -> None:
    """The whole counts, whatever the size of a block."""
    target, golden = pairs(np.float32, size)
    assert look(METRICS[name], target, golden) == approx(reference(name, target, golden), rel=1e-11)


@pytest.mark.parametrize("place", [0, BLOCK - 1, BLOCK, 2 * BLOCK, 2 * BLOCK + 4])
def test_no_element_is_left_out(place: int) -> None:
    """One element differs, at the ends of blocks and in the last, short one."""
    size = 2 * BLOCK + 5
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


def test_a_difference_beyond_a_mebibyte_is_seen() -> None:
    """Equality is looked at in steps of that many bytes."""
    golden = np.zeros((1 << 20) + 3, np.uint8)
    for place in (0, (1 << 20) - 1, 1 << 20, (1 << 20) + 2):
        target = golden.copy()
        target[place] = 1
        assert look(Equal(), target, golden) == [False]
    assert look(Equal(), golden.copy(), golden) == [True]


LAYOUTS = {
    "transposed": lambda a: np.ascontiguousarray(a.T).T,
    "fortran": np.asfortranarray,
    "every second of a wider one": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "backwards in memory": lambda a: np.ascontiguousarray(a[::-1, ::-1])[::-1, ::-1],
    "unaligned": lambda a: np.frombuffer(b"\0" + a.tobytes(), a.dtype, a.size, 1).reshape(a.shape),
    "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
}


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_layout_does_not_matter(name: str, layout: Any) -> None:
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
    """nan and inf count as zero in the sums, not in the tensors."""
    target, golden = np.array([nan, inf, 1.0]), np.array([nan, inf, 2.0])
    measure(METRICS[name], target, golden)
    assert np.isnan(target[0]) and np.isinf(golden[1])


# -- examples worked by hand, and the edges ----------------------------------------------------


def case(name: str, target: Any, golden: Any, **expected: Any) -> Any:
    return pytest.param(target, golden, expected, id=name)


def f16(*items: float) -> Array:
    return np.array(items, np.float16)


APART = {name: ["positions"] * count for name, count in
         {"cosine": 1, "euclidean": 1, "max_error": 2, "error_ratio": 2, "rmse": 1, "mape": 1, "ulp": 3}.items()}  # fmt: skip
"""What all answer where nan or inf stand at different places."""

SAME = {
    "euclidean": [0],
    "max_error": [0, 0],
    "error_ratio": [1, 1],
    "rmse": [0],
    "mape": [0],
    "ulp": [0, 0, 0],
}
"""What all but cosine answer of equal tensors."""

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
         euclidean=[math.sqrt(2)], max_error=[1, 1 / 3], error_ratio=[1 / 3, 1 / 3], rmse=[math.sqrt(2 / 3)],
         mape=[(1 / 4 + 1 / 3) / 3]),
    case("nothing but nan", [nan, nan], [nan, nan], cosine=[1], equal=[True], **SAME),
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
    # complex: decision D14
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
        assert found == [
            item if isinstance(item, str) else approx(item, rel=1e-14, abs=0) for item in answer
        ], name


def test_infinity_of_one_side_by_rounding_is_another_place() -> None:
    """bfloat16 holds 1e38 where float16 has inf: that is a difference, not a coincidence."""
    target, golden = f16(inf, 1), np.array([1e38, 1], ml_dtypes.bfloat16)
    for name in SUMMED:
        assert set(look(METRICS[name], target, golden)) == {"positions"}


# -- properties --------------------------------------------------------------------------------

FLOATS = st.floats(-1e300, 1e300)
"""Every magnitude whose differences float64 holds, denormals and both zeros among them."""


@st.composite
def two_arrays(draw: st.DrawFn, elements: Any = FLOATS, dtype: Any = np.float64) -> Any:
    """Two arrays of one shape, of two elements or more; half of the time close to each other."""
    shape = draw(
        hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=6).filter(lambda s: np.prod(s) > 1)
    )
    golden = draw(hnp.arrays(dtype, shape, elements=elements))
    if draw(st.booleans()):
        with np.errstate(over="ignore"):
            return golden * dtype(1 + draw(st.floats(-0.01, 0.01))), golden
    return draw(hnp.arrays(dtype, shape, elements=elements)), golden


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


@PROPERTY
@given(two_arrays())
def test_identity(arrays: tuple[Array, Array]) -> None:
    """Whatever the data, they equal themselves, and the answers say exactly that."""
    array = arrays[0]
    assert look(Cosine(), array, array.copy()) == [approx(1, abs=1e-14)]
    for name, answer in {**SAME, "equal": [True]}.items():
        assert look(METRICS[name], array, array.copy()) == answer, name


ANY = st.floats(width=32)


@PROPERTY
@given(two_arrays(ANY, np.float32))
def test_identity_with_nan_and_inf(arrays: tuple[Array, Array]) -> None:
    array = arrays[0]
    for name, answer in {**SAME, "equal": [True]}.items():
        assert look(METRICS[name], array, array.copy()) == answer, name


@PROPERTY
@given(two_arrays(ANY, np.float32))
@pytest.mark.parametrize("name", ["cosine", "euclidean", "rmse", "ulp", "equal"])
def test_symmetry(name: str, arrays: tuple[Array, Array]) -> None:
    """Which side is golden matters only where an error is held against the golden's size."""
    mirror = {"target_zero": "golden_zero", "golden_zero": "target_zero"}
    there = look(METRICS[name], *arrays)
    back = [mirror.get(item, item) for item in look(METRICS[name], *arrays[::-1])]
    assert back == [item if isinstance(item, str) else approx(item, rel=1e-14) for item in there]
    if name == "euclidean":
        forth, other = (look(MaxError(), *order)[0] for order in (arrays, arrays[::-1]))
        assert forth == other


@PROPERTY
@given(two_arrays(st.floats(-1e30, 1e30).map(lambda x: 0.0 if abs(x) < 1e-30 else x)), st.integers(-200, 200))
def test_cosine_does_not_depend_on_scale(arrays: tuple[Array, Array], power: int) -> None:
    """A power of two scales without rounding; the sign turns the angle around."""
    target, golden = arrays
    (cosine,) = look(Cosine(), target, golden)
    scaled = target * 2.0**power
    assert look(Cosine(), scaled, golden) == [approx(cosine, abs=1e-13)]
    turned = cosine if isinstance(cosine, str) or not (target.any() or golden.any()) else -cosine
    assert look(Cosine(), -scaled, golden) == [approx(turned, abs=1e-13)]


@PROPERTY
@given(two_arrays())
def test_bounds(arrays: tuple[Array, Array]) -> None:
    size = arrays[0].size
    (euclidean,), (rmse,), (mape,) = (look(METRICS[name], *arrays) for name in ("euclidean", "rmse", "mape"))
    absolute, relative = look(MaxError(), *arrays)
    one, five = look(ErrorRatio(), *arrays)
    (cosine,) = look(Cosine(), *arrays)
    little = 1 + 1e-12
    assert 0 <= rmse <= absolute * little + 5e-324
    assert absolute <= euclidean * little + 5e-324
    assert euclidean <= absolute * math.sqrt(size) * little + 5e-324
    assert 0 <= one <= five <= 1
    assert 0 <= mape <= relative * little
    assert relative <= mape * size * little
    assert isinstance(cosine, str) or -1 <= cosine <= 1
    if look(Equal(), *arrays) == [True]:
        assert absolute == relative == 0


@PROPERTY
@given(two_arrays(ANY, np.float32))
def test_nothing_but_numbers_and_known_reasons(arrays: tuple[Array, Array]) -> None:
    """A nan is never a measurement: it would pass every threshold."""
    for name, metric in METRICS.items():
        for item in measure(metric, *arrays):
            assert (item.value is None) != (item.reason is None), name
            assert item.number is None or not math.isnan(item.number), name


@PROPERTY
@given(two_arrays(ANY, np.float32))
def test_alignment_is_that_of_the_three_masks(arrays: tuple[Array, Array]) -> None:
    """Decision D11, in its own words: the masks of +inf, of -inf and of nan each agree."""
    masks = [(np.isnan(one), np.isposinf(one), np.isneginf(one)) for one in arrays]
    agree = all(np.array_equal(ours, theirs) for ours, theirs in zip(*masks))
    for name in (*SUMMED, "ulp"):
        assert ("positions" in look(METRICS[name], *arrays)) is not agree, name


def test_one_pass_serves_all() -> None:
    """Six columns of a table read the tensors once."""
    pair = pair_of(np.ones(3), np.ones(3))
    assert pair.once(sums) is pair.once(sums)


# -- ulp ---------------------------------------------------------------------------------------

SMALL = {
    "float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip


def all_numbers(dtype: Any) -> Array:
    """Every finite number of a small type, each once, ascending; both zeros are one."""
    width = np.dtype(dtype).itemsize
    with np.errstate(invalid="ignore"):
        patterns = np.arange(1 << 8 * width, dtype=f"u{width}").view(dtype).astype(np.float64)
    return np.unique(patterns[np.isfinite(patterns)])


@pytest.mark.parametrize("name", SMALL)
def test_ulp_is_the_difference_of_ranks(name: str) -> None:
    """Listing all numbers of the type in order, the distance is that of their places."""
    dtype = SMALL[name]
    every = all_numbers(dtype)
    rng = np.random.default_rng(3)
    ours, theirs = rng.choice(every, 500), rng.choice(every, 500)
    apart = np.abs(np.searchsorted(every, ours) - np.searchsorted(every, theirs))
    expected = [apart.max(), apart.mean(), np.mean(apart > 1)]
    assert look(Ulp(), ours.astype(dtype), theirs.astype(dtype)) == approx(expected)


@pytest.mark.parametrize("name", SMALL)
def test_neighbours_are_one_apart(name: str) -> None:
    """All of them, across zero and across every power of two."""
    dtype = SMALL[name]
    every = all_numbers(dtype).astype(dtype)
    assert look(Ulp(), every[1:], every[:-1]) == [1, 1, 0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("start", [1.0, -1.0, 0.0, -0.0, 1e-45, 3.0e38, -(2.0**20), 0.1])
@pytest.mark.parametrize("steps", [1, 31, 32, 33])
@pytest.mark.parametrize("towards", [inf, -inf])
def test_ulp_counts_steps(dtype: Any, start: float, steps: int, towards: float) -> None:
    """The number of steps of nextafter; more than 32 are over the limit."""
    golden = np.array([start, 7], dtype)
    target = golden.copy()
    for _ in range(steps):
        target[0] = np.nextafter(target[0], dtype(towards))
    assert look(Ulp(), target, golden) == [steps, steps / 2, 0.5 if steps > 32 else 0]


def test_ulp_by_math_nextafter() -> None:
    """float64 by the standard library's own step, over zero."""
    below, above = 0.0, 0.0
    for _ in range(5):
        below, above = math.nextafter(below, -inf), math.nextafter(above, inf)
    assert look(Ulp(), [below, 1.0], [above, 1.0]) == [10, 5, 0]


@pytest.mark.parametrize(
    ("dtype", "places"),
    [(np.float16, 0x7BFF), (ml_dtypes.bfloat16, 0x7F7F), (np.float32, 0x7F7FFFFF), (np.float64, 0x7FEFFFFFFFFFFFFF)],
)  # fmt: skip
def test_ulp_from_end_to_end(dtype: Any, places: int) -> None:
    """The largest distance there is; it must not overflow."""
    most = ml_dtypes.finfo(dtype).max
    golden = np.array([most], dtype)
    assert look(Ulp(), -golden, golden)[0] == float(2 * places)


@pytest.mark.parametrize(
    ("steps", "dtype", "share"),
    [(1, np.float16, 0), (2, np.float16, 1), (1, ml_dtypes.bfloat16, 0), (2, ml_dtypes.bfloat16, 1),
     (1, ml_dtypes.float8_e5m2, 0), (2, ml_dtypes.float8_e5m2, 1), (32, np.float32, 0), (33, np.float32, 1)],
)  # fmt: skip
def test_ulp_limits(steps: int, dtype: Any, share: float) -> None:
    """The pre-check's standard: 32 for float32, 1 for what is coarser; the limit itself is allowed."""
    golden = np.ones(2, dtype)
    width = golden.dtype.itemsize
    target = (golden.view(f"u{width}") + np.array(steps, f"u{width}")).view(dtype)
    assert look(Ulp(), target, golden) == [steps, steps, share]


def test_ulp_of_different_dtypes_is_that_of_the_coarser() -> None:
    """bfloat16 has 8 bits: 1 + 2**-10 is 1 to it, 1 + 2**-7 the next number; either side may be it."""
    fine = np.array([1 + 2**-10, 1 + 2**-7], np.float32)
    coarse = np.array([1, 1], ml_dtypes.bfloat16)
    assert look(Ulp(), fine, coarse) == look(Ulp(), coarse, fine) == [1, 0.5, 0]
    assert look(Ulp(), np.array([1 + 2**-30]), np.ones(1, np.float32)) == [0, 0, 0]


@pytest.mark.parametrize("dtype", [np.bool_, np.int32, np.uint8, np.complex64])
def test_ulp_of_what_is_no_real_floating_point(dtype: Any) -> None:
    array = np.ones(2, dtype)
    assert look(Ulp(), array, array) == ["no_number"] * 3
    assert look(Ulp(), array, np.ones(2, np.float32)) == ["no_number"] * 3


@PROPERTY
@given(two_arrays(ANY, np.float32))
def test_ulp_by_integers(arrays: tuple[Array, Array]) -> None:
    """The textbook's way: bit patterns as integers, the negative ones mirrored."""
    found = look(Ulp(), *arrays)
    if found == ["positions"] * 3:
        return
    places = []
    for array in arrays:
        bits = array.ravel().view(np.int32).astype(object)
        places.append([-(2**31) - bit if bit < 0 else bit for bit in bits])
    finite = np.isfinite(arrays[0].ravel())
    apart = [abs(n - b) if real else 0 for n, b, real in zip(*places, finite)]
    size = len(apart)
    assert found == [max(apart), approx(sum(apart) / size), sum(item > 32 for item in apart) / size]


# -- equal -------------------------------------------------------------------------------------


def test_equal_looks_at_bits() -> None:
    """A nan of other bits is another value to whoever hashes the tensor; the same bits are the same."""
    quiet, other = np.array([0x7FC00000, 0x7FC00001], np.uint32).view(np.float32)
    assert look(Equal(), np.array([quiet, 1]), np.array([quiet, 1])) == [True]
    assert look(Equal(), np.array([quiet, 1]), np.array([other, 1])) == [False]


def test_equal_of_different_dtypes() -> None:
    assert look(Equal(), np.ones(2, np.float32), np.ones(2)) == [False]
    assert look(Equal(), np.zeros(2, np.int32), np.zeros(2, np.uint32)) == [False]
    assert look(Equal(), np.zeros(2, np.float16), np.zeros(2, ml_dtypes.bfloat16)) == [False]


def test_equal_of_different_byte_order() -> None:
    """How a machine stores a number is not part of it."""
    array = np.array([1.5, -2.0], "<f4")
    assert look(Equal(), array.astype(">f4"), array) == [True]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_equal_in_every_dtype(dtype: Any) -> None:
    golden = pairs(dtype)[1]
    other = golden.copy()
    other.view("u1")[1, 2] ^= 1
    assert look(Equal(), golden.copy(), golden) == [True]
    assert look(Equal(), other, golden) == [False]


# -- statistics and checksum -------------------------------------------------------------------


def look_at_statistic(target: Any, golden: Any) -> tuple[Any, Any]:
    """Difference and relative error of one statistic, the minimum, among others that agree."""
    pair = pair_of_values(*(tensor_value(Statistics(1.0, one, 2.0, 3.0)) for one in (target, golden)))
    found = [item.reason.code if item.reason else item.value for item in StatisticsDifference().measure(pair)]
    assert [found[place] for place in (0, 2, 3, 4, 6, 7)] == [0] * 6
    return found[1], found[5]


@pytest.mark.parametrize(
    ("target", "golden", "difference", "relative"),
    [
        pytest.param(1.5, 1.0, 0.5, 0.5, id="plain"),
        pytest.param(1.0, 4.0, -3.0, 0.75, id="the sign of the difference is kept, that of the error is not"),
        pytest.param(-1.0, -4.0, 3.0, 0.75, id="a golden below zero"),
        pytest.param(3, 4, -1, 0.25, id="integers"),
        pytest.param(2.0, 2.0, 0, 0, id="equal"),
        pytest.param(0.0, 0.0, 0, "zero_golden", id="both zero"),
        pytest.param(0.5, 0.0, 0.5, "zero_golden", id="golden zero"),
        pytest.param(0.0, 2.0, -2, 1, id="target zero"),
        pytest.param(nan, 1.0, "nan", "nan", id="target nan"),
        pytest.param(1.0, nan, "nan", "nan", id="golden nan"),
        pytest.param(nan, nan, "nan", "nan", id="both nan"),
        pytest.param(inf, inf, "nan", "nan", id="both inf"),
        pytest.param(inf, -inf, inf, "nan", id="inf of different signs"),
        pytest.param(inf, 1.0, inf, inf, id="target inf"),
        pytest.param(-inf, 1.0, -inf, inf, id="target -inf"),
        pytest.param(1.0, inf, -inf, "nan", id="golden inf"),
        pytest.param(inf, 0.0, inf, "zero_golden", id="inf against zero"),
        pytest.param(None, 1.0, "no_number", "no_number", id="null"),
        pytest.param(None, None, "no_number", "no_number", id="both null"),
        pytest.param("a", "b", "no_number", "no_number", id="texts"),
        pytest.param("1.0", 1.0, "no_number", "no_number", id="a number as text"),
        pytest.param(True, False, "no_number", "no_number", id="truth values"),
        pytest.param(True, 1.0, "no_number", "no_number", id="a truth value against a number"),
        pytest.param(10**400, 1.0, inf, inf, id="an integer beyond float64"),
        pytest.param(1e-320, 5e-320, -4e-320, approx(0.8, rel=1e-3), id="denormals"),
    ],
)
def test_statistics(target: Any, golden: Any, difference: Any, relative: Any) -> None:
    """spec/compare 6 with decision D8, read for one statistic among four."""
    expected = difference if isinstance(difference, str) else approx(difference)
    assert look_at_statistic(target, golden) == (expected, relative)


def test_statistics_are_in_the_order_of_the_columns() -> None:
    pair = pair_of_values(
        tensor_value(Statistics(2.0, 3.0, 4.0, 5.0)), tensor_value(Statistics(1.0, 1.0, 1.0, 1.0))
    )
    assert [item.value for item in StatisticsDifference().measure(pair)] == [1, 2, 3, 4, 1, 2, 3, 4]


@PROPERTY
@given(st.floats(-1e150, 1e150), st.floats(-1e150, 1e150))
def test_statistics_of_any_numbers(target: float, golden: float) -> None:
    difference, relative = look_at_statistic(target, golden)
    assert difference == target - golden
    assert relative == ("zero_golden" if golden == 0 else approx(abs((target - golden) / golden)))


@pytest.mark.parametrize(
    ("target", "golden", "agree"),
    [("0a1b2c3d", "0a1b2c3d", True), ("0a1b2c3d", "0a1b2c3e", False), ("0A1B2C3D", "0a1b2c3d", False),
     (None, None, True), (None, "0a1b2c3d", False), ("0a1b2c3d", None, False), ("", None, False)],
)  # fmt: skip
def test_checksum(target: str | None, golden: str | None, agree: bool) -> None:
    """Both absent count as equal (decision D9)."""
    pair = pair_of_values(tensor_value(checksum=target), tensor_value(checksum=golden))
    (found,) = Checksum().measure(pair)
    assert found.value is agree


def test_the_references_know_the_worked_example() -> None:
    """Who checks the checkers: 3-4-5, and complex numbers through Python's own modulus."""
    assert reference_euclidean([3.0, 0.0], [0.0, 4.0]) == 5
    assert reference_cosine([1.0, 0.0], [1.0, 1.0]) == approx(math.sqrt(0.5))
    assert reference_differences([3 + 4j], [0j]) == [abs(cmath.rect(5, 1))]
    assert list(itertools.chain(reference_relative([0.0, 1.0, 3.0], [0.0, 0.0, 2.0]))) == [0, inf, 0.5]
