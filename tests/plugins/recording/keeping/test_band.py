"""The band of a series: its limits, its false alarms, and series that it must not judge."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from probe_recording.keeping.band import Band, BandRule, compute_median, find_limit, load_band_rule

RULE = load_band_rule()
ENOUGH = RULE.level_steps + RULE.least_steps


def reference_limit(values: list[float], smallest_rise: float) -> float | None:
    """Compute the limit as the page states it, in plain Python."""
    values = values[-(RULE.level_steps + RULE.window_steps) :]
    if len(values) < ENOUGH:
        return None
    is_positive = all(value > 0 for value in values)
    scaled = [math.log(value) for value in values] if is_positive else values
    levels = [
        statistics.median(scaled[end - RULE.level_steps : end]) for end in range(RULE.level_steps, len(scaled) + 1)
    ]
    distances = [value - level for value, level in zip(scaled[RULE.level_steps :], levels)]
    middle = statistics.median(distances)
    spread = statistics.median(abs(distance - middle) for distance in distances)
    width = max(RULE.excess_factor * max(distances), RULE.mad_factor * spread)
    if is_positive:
        return math.exp(levels[-1] + max(width, math.log(smallest_rise)))
    if width <= 0:
        return None
    return levels[-1] + max(width, (smallest_rise - 1) * statistics.median(map(abs, values)))


@pytest.mark.parametrize("kind", ["positive", "signed", "zeros", "constant"])
@pytest.mark.parametrize("length", [0, 1, ENOUGH - 1, ENOUGH, 100, 144, 300])
def test_find_limit_equals_the_reference(kind: str, length: int) -> None:
    draw = np.random.default_rng(length)
    values = {
        "positive": np.exp(draw.normal(size=length)),
        "signed": draw.normal(size=length),
        "zeros": np.where(draw.random(length) < 0.3, 0.0, draw.random(length)),
        "constant": np.full(length, 2.5),
    }[kind]
    limit, expected = find_limit(values, 2.0, RULE), reference_limit(values.tolist(), 2.0)
    if expected is None:
        assert limit is None
    else:
        assert limit is not None and limit.highest == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("length", [1, 2, 7, 8])
def test_median_equals_numpy(length: int) -> None:
    values = np.random.default_rng(length).normal(size=(3, length))
    assert np.array_equal(compute_median(values), np.median(values, axis=1))


def test_find_limit_does_not_judge_values_without_spread_around_zero() -> None:
    assert find_limit(np.zeros(100), 2.0, RULE) is None
    assert find_limit(np.full(100, -0.0), 2.0, RULE) is None


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_band_ignores_values_that_are_not_finite(value: float) -> None:
    band = Band(2.0, RULE)
    for _ in range(100):
        assert band.add(1.0) is None
    assert band.add(value) is None
    assert band.add(1.0) is None
    assert band.add(3.0) is not None


def test_band_does_not_judge_the_first_values() -> None:
    band = Band(2.0, RULE)
    assert [band.add(value) for value in [*[1.0] * (ENOUGH - 1), 1e9]] == [None] * ENOUGH


def test_band_accepts_a_new_level_after_as_many_values_as_it_needs() -> None:
    band = Band(2.0, RULE)
    for _ in range(100):
        band.add(1.0)
    outside = [band.add(10.0) is not None for _ in range(200)]
    assert outside == [True] * RULE.least_steps + [False] * (200 - RULE.least_steps)


def test_band_follows_trends() -> None:
    band = Band(2.0, RULE)
    growing = [1e-6 * 1.1**step for step in range(300)]
    falling = [growing[-1] * 0.9**step for step in range(300)]
    assert [band.add(value) for value in growing + falling] == [None] * 600


@pytest.mark.parametrize("tail", [0.5, 1.0, 3.0])
def test_false_alarms_of_power_laws_are_as_derived(tail: float) -> None:
    """A factor of 1 has a false-alarm probability of about 1 / (n + 1), and one of 2 of 2 / (n + 1)(n + 2)."""
    draw = np.random.default_rng(0)
    window, runs = 128, 20_000
    excess = draw.exponential(1 / tail, size=(runs, window + 1))  # logarithms of Pareto's distribution
    largest = excess[:, :-1].max(axis=1)
    for factor, expected in ((1, 1 / 129), (2, 2 / (129 * 130))):
        count = int((excess[:, -1] > factor * largest).sum())
        assert abs(count - runs * expected) < 5 * math.sqrt(runs * expected) + 1


def test_the_stated_bound_is_that_of_the_rule() -> None:
    def bound(count: int) -> float:
        factor = RULE.excess_factor
        return math.exp(math.lgamma(count + 1) + math.lgamma(1 + factor) - math.lgamma(count + 1 + factor))

    assert bound(RULE.window_steps) == pytest.approx(8.3e-8, rel=0.02)
    assert bound(RULE.least_steps) == pytest.approx(1.7e-5, rel=0.02)


def test_the_rule_names_each_kind() -> None:
    assert isinstance(RULE, BandRule) and set(RULE.smallest_rise) == {"loss", "gradient_norm", "size"}


def noise(kind: str, draw: np.random.Generator, length: int) -> np.ndarray:
    """Return noise of a logarithm."""
    return {
        "normal": lambda: draw.normal(size=length),
        "laplace": lambda: draw.laplace(size=length),
        "skewed": lambda: draw.exponential(size=length) - 1,
    }[kind]()


def trend(kind: str, draw: np.random.Generator, length: int) -> np.ndarray:
    """Return the logarithm of a loss curve or a gradient norm without noise."""
    step = np.arange(length)
    period = int(draw.integers(40, 200))
    return {
        "flat": lambda: np.zeros(length),
        "decay": lambda: np.log(10 * np.exp(-step / draw.uniform(30, 300)) + draw.uniform(0.001, 1)),
        "warm-up": lambda: np.where(step < 100, step / 50, 2 - 1.5 * (step - 100) / length),
        "epochs": lambda: -0.3 * (step // period) + 0.2 * (step % period) / period,
        "walk": lambda: np.cumsum(draw.normal(size=length) * 0.05),
    }[kind]()


def count_alarms(runs: int, length: int) -> int:
    draw = np.random.default_rng(7)
    count = 0
    for number in range(runs):
        tail = ("normal", "laplace", "skewed")[number % 3]
        shape = ("flat", "decay", "warm-up", "epochs", "walk")[number % 5]
        scale = 10 ** draw.uniform(-3, 0)
        values = np.exp(trend(shape, draw, length) + scale * noise(tail, draw, length))
        band = Band(2.0, RULE)
        count += any([band.add(float(value)) is not None for value in values])
    return count


def test_band_raises_no_alarm_on_noisy_curves() -> None:
    assert count_alarms(15, 400) == 0


@pytest.mark.slow
def test_band_raises_no_alarm_on_many_noisy_curves() -> None:
    assert count_alarms(600, 1000) <= 1


@pytest.mark.parametrize("sigma", [0.05, 0.3, 1.5])
@pytest.mark.parametrize("smallest_rise", [2.0, 4.0])
def test_values_that_need_no_limit_are_those_inside_of_it(smallest_rise: float, sigma: float) -> None:
    values = np.exp(np.random.default_rng(0).normal(0, sigma, 400))
    values[300:303] *= 50
    band = Band(smallest_rise, RULE)
    kept: list[float] = []
    for value in values.tolist():
        limit = find_limit(np.array(kept), smallest_rise, RULE)
        is_inside = limit is None or value <= limit.highest
        assert (band.add(value) is None) == is_inside
        if is_inside:
            kept.append(value)
