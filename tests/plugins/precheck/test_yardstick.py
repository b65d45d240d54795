"""The yardstick: what rounding explains of a result, and what it does not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from probe_precheck.api import Array, Call, Output
from probe_precheck.yardstick import (
    ErrorMeasurement,
    create_rounding_message,
    estimate_summands,
    load_limits,
    measure,
)

RANDOM = np.random.default_rng(7)
INF, NAN = math.inf, math.nan


def measured(
    recorded: object, reference: object, kind: str = "float32", *, api: str = "exp", direction: str = "forward",
    length: float = 1.0, moved: object = None, can_move: bool = True,
) -> ErrorMeasurement:  # fmt: skip
    """Measure a result; bfloat16 is held as float32."""
    held = {"bfloat16": "float32"}.get(kind, kind)
    further = None if moved is None else Array(np.asarray(moved, np.float64), "float64")
    return measure(
        Output(
            api,
            Array(np.asarray(reference, np.float64), "torch.float64"),
            Array(np.asarray(recorded, held), f"torch.{kind}"),
            moved=(lambda: further) if can_move else None,
            direction=direction,
            summands=length,
        )
    )


@pytest.mark.parametrize("kind", ["float32", "float16"])
def test_rounding_once_is_explained(kind: str) -> None:
    reference = RANDOM.standard_normal(10_000)
    found = measured(reference.astype(kind), reference, kind)
    assert 0 < found.times < 0.4 and not found.is_beyond
    assert found.error < load_limits()["unit"][kind]


@pytest.mark.parametrize(("kind", "off"), [("float32", 1e-5), ("float16", 5e-3), ("bfloat16", 3e-2)])
def test_more_than_rounding_is_not(kind: str, off: float) -> None:
    reference = RANDOM.standard_normal(10_000)
    found = measured(reference * (1 + off), reference, kind)
    assert found.is_beyond and found.error == pytest.approx(off, rel=0.6)


def test_one_wrong_element_among_many_is_found() -> None:
    reference = RANDOM.standard_normal(1_000_000)
    recorded = reference.astype(np.float32)
    recorded[123_456] += 0.01
    assert measured(recorded, reference).is_beyond


def test_sensitive_results_may_be_off_by_as_much_as_they_move() -> None:
    """The difference of two sums is as wrong as the sums, however small it is."""
    reference = np.full(100, 1e-6)
    recorded = reference + RANDOM.uniform(-1e-7, 1e-7, 100)
    assert measured(recorded, reference).is_beyond
    found = measured(recorded, reference, moved=reference + RANDOM.uniform(-1e-7, 1e-7, 100))
    assert found.is_fragile and not found.is_beyond
    assert create_rounding_message(found).english.startswith("Fragile, not wrong: ")
    found = measured(recorded, reference, moved=reference + RANDOM.uniform(-1e-12, 1e-12, 100))
    assert found.is_beyond and not found.is_fragile
    assert create_rounding_message(found).english.startswith("Within the limits; beyond rounding: ")


def test_a_zero_in_theory_is_fragile_whatever_the_device_makes_of_it() -> None:
    """Such as the gradient of a bias before a normalisation: rounding on both sides, or an exact zero."""
    reference, moved = RANDOM.uniform(-1e-17, 1e-17, (2, 100))
    for device in (np.zeros(100), RANDOM.uniform(-1e-9, 1e-9, 100)):
        assert measured(device, reference).is_beyond
        assert measured(device, reference, moved=moved * 1e8).is_fragile
    assert measured(RANDOM.uniform(-1e-3, 1e-3, 100), reference, moved=moved * 1e8).is_beyond


def test_a_runner_that_cannot_move_inputs_allows_more() -> None:
    reference = RANDOM.standard_normal(1000)
    recorded = reference * (1 + 60 * 2.0**-24)
    assert measured(recorded, reference).is_beyond
    assert not measured(recorded, reference, can_move=False).is_beyond
    assert measured(reference * (1 + 150 * 2.0**-24), reference, can_move=False).is_beyond


def test_a_reference_of_the_same_precision_is_rounded_as_well() -> None:
    value = Array(RANDOM.standard_normal(1000).astype(np.float32), "torch.float32")
    further = Array(value.values * np.float32(1 + 46 * 2.0**-24), "torch.float32")
    assert not measure(Output("exp", value, further, moved=lambda: None)).is_beyond
    assert measured(further.values, value.values).is_beyond


def test_dtypes_without_a_unit_are_not_judged() -> None:
    one, other = (Array(np.full(3, value, np.float32), "torch.float8_e4m3fn") for value in (1, 2))
    assert not measure(Output("exp", one, other)).is_beyond


def test_summands_are_the_most_that_the_shapes_allow() -> None:
    given = [{"type": "torch.Tensor", "shape": [4, 6]}, {"type": "torch.Tensor", "shape": [6, 5]}]
    matmul = Call("Torch.matmul.0", 0, {"input_args": given, "input_kwargs": {}})
    assert estimate_summands(matmul, 20) == 6
    assert estimate_summands(Call("Torch.sum.0", 0, {"input_args": given[:1]}), 1) == 24
    assert estimate_summands(Call("Torch.zeros.0", 0, {"input_args": []}), 7) == 1


def test_long_sums_of_float32_may_be_off_by_more() -> None:
    reference = RANDOM.standard_normal(1000)
    recorded = reference * (1 + 60 * 2.0**-24)
    assert measured(recorded, reference).is_beyond
    assert not measured(recorded, reference, length=10_000).is_beyond
    assert measured(reference * 1.02, reference, "bfloat16", api="linear", length=10_000).is_beyond
    assert not measured(
        reference * 1.02, reference, "bfloat16", api="embedding", direction="backward", length=10_000
    ).is_beyond


def test_products_are_limited_alike_in_both_directions() -> None:
    reference = RANDOM.standard_normal(1000)
    recorded = reference * 1.015
    assert measured(recorded, reference, "bfloat16", api="linear", direction="backward").is_beyond
    assert not measured(recorded, reference, "bfloat16", api="softmax", direction="backward").is_beyond


def test_masks_hide_nothing() -> None:
    reference = RANDOM.standard_normal(1000)
    reference[::2] = -3.4e38
    recorded = reference.copy()
    recorded[1::2] *= 1.001
    assert measured(recorded, reference).is_beyond
    assert not measured(reference.astype(np.float32), reference).is_beyond


def test_probabilities_of_many_magnitudes_hide_nothing() -> None:
    """Tiny elements count by the scale of the whole, as a gradient of p - 1 cancels to."""
    reference = np.concatenate([np.full(99, 1e-20), np.full(10, -0.01)])
    assert not measured(reference + 1e-10 * (reference > 0), reference).is_beyond
    assert measured(reference + 1e-6 * (reference > 0), reference).is_beyond


@pytest.mark.parametrize(
    ("recorded", "reference", "apart"),
    [
        ([NAN, 1.0], [NAN, 1.0], 0), ([INF, 1.0], [INF, 1.0], 0), ([-INF, 1.0], [-INF, 1.0], 0),
        ([INF, 1.0], [1e39, 1.0], 0), ([3.4028235e38, 1.0], [3.4028236e38, 1.0], 0),
        ([NAN, 1.0], [2.0, 1.0], 1), ([INF, 1.0], [2.0, 1.0], 1), ([INF, 1.0], [-INF, 1.0], 1),
        ([2.0, 1.0], [NAN, 1.0], 1), ([2.0, 1.0], [INF, 1.0], 1), ([INF, NAN], [NAN, INF], 2),
    ],
)  # fmt: skip
def test_nan_and_inf(recorded: list[float], reference: list[float], apart: int) -> None:
    with np.errstate(all="ignore"):
        found = measured(recorded, reference)
    assert (found.nonfinite_mismatches, found.is_beyond) == (apart, apart > 0)


def test_edges() -> None:
    assert measured([], []).times == 0
    assert measured([0.0, -0.0], [-0.0, 0.0]).times == 0
    assert measured(1.0, 1.0).times == 0 and measured(1.0, 1.0).shape == ()
    assert measured([1e-3], [0.0]).is_beyond
    assert not measured([0.0, 1.0], [1e-42, 1.0]).is_beyond  # flushed to zero
    assert measured([1.5], [1.0]).is_beyond
