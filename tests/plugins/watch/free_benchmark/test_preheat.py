"""Preheating: the schedule of samples, and thresholds by worked examples."""

from __future__ import annotations

from probe_watch.free_benchmark.preheat import Preheat, PreheatRole
from probe_watch.free_benchmark.settings import BenchmarkSettings, ChangeMode
from probe_watch.free_benchmark.thresholds import load_thresholds
from support.cases import every

MODE = ChangeMode.ADD_NOISE


def preheat(steps: int = 4, most: int = 20, calls: int = 6) -> Preheat:
    """Return a preheating whose first step counted ``calls`` calls."""
    result = Preheat(BenchmarkSettings(preheat=True, preheat_step=steps, max_sample=most), load_thresholds())
    assert [result.take("f") for _ in range(calls)] == [PreheatRole.COUNTED] * calls
    result.end_step()
    return result


def samples(subject: Preheat, calls: int) -> list[int]:
    """Return the numbers, from 1, of the samples of one step."""
    return [n for n in range(1, calls + 1) if subject.take("f") is PreheatRole.SAMPLE]


@every("steps,most,calls,expected", [
    (4, 20, 6, [[1, 5], [2, 6], [1, 3]]),
    (3, 20, 12, [[1, 4, 7, 10], [2, 5, 8, 11]]),
    (3, 2, 12, [[1, 4], [2, 5]]),
    (3, 20, 1, [[1], [1]]),
    (3, 20, 2, [[1], [2]]),
    (2, 20, 3, [[1, 3]]),
    (1, 20, 3, []),
])  # fmt: skip
def test_samples_follow_the_schedule(steps: int, most: int, calls: int, expected: list[list[int]]) -> None:
    subject = preheat(steps, most, calls)
    for numbers in expected:
        assert samples(subject, calls) == numbers
        subject.end_step()
    assert samples(subject, calls) == []
    assert subject.take("f") is PreheatRole.COMPARED


def test_an_api_that_is_called_first_after_counting_is_compared() -> None:
    assert preheat().take("g") is PreheatRole.COMPARED


def learned(ratios: list[tuple[float, bool]], calls: int = 6) -> float:
    """Return the threshold after samples of one step."""
    subject = preheat(calls=calls)
    samples(subject, calls)
    for ratio, agrees in ratios:
        subject.add("f", "float32", ratio, agrees_with_cpu=agrees)
        subject.end_sample(MODE, "f")
    return subject.limit(MODE, "f", "float32")


@every("ratios,expected", [
    ([], 2.05),
    ([(1.1, True)], 2.05),  # the second sample is missing
    ([(1.1, True), (1.0, True)], 1.525),
    ([(2.5, True), (1.0, True)], 3.1),
    ([(1.1, True), (1.5, False)], 1.5),
    ([(1.1, True), (3.0, False)], 2.05),
    ([(1.6, True), (1.5, False)], 2.05),
    ([(1.7, False), (1.5, False)], 1.5),
    ([(1.0, False), (1.0, False)], 1.0002),
])  # fmt: skip
def test_thresholds_are_learned(ratios: list[tuple[float, bool]], expected: float) -> None:
    assert abs(learned(ratios) - expected) < 1e-12


def test_thresholds_never_fall_below_the_default() -> None:
    subject = preheat(steps=30, calls=1)
    for _ in range(29):
        assert subject.take("f") is PreheatRole.SAMPLE
        subject.add("f", "float16", 1.0, agrees_with_cpu=True)
        subject.end_sample(MODE, "f")
        subject.end_step()
    assert subject.limit(MODE, "f", "float16") == 1.002
    assert subject.limit(MODE, "f", "float32") == 2.05  # each dtype has its own
    assert subject.limit(MODE, "g", "float16") == 2.05


def test_an_inconsistent_sample_ends_preheating_of_the_api() -> None:
    subject = preheat()
    assert samples(subject, 6) == [1, 5]
    for _ in range(2):
        subject.add("f", "float32", 1.5, agrees_with_cpu=False)
        subject.end_sample(MODE, "f")
    subject.end_step()
    assert samples(subject, 6) == []
    assert subject.take("f") is PreheatRole.COMPARED
