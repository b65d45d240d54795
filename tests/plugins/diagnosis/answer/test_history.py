"""Verdicts on later steps that consider earlier ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.probe import Probe
from support.runs.answered import call, normal, record

LINEAR, NEXT = "Functional.linear.0.forward", "Functional.linear.1.forward"


def step(x: Any, weight: Any, coarse: bool, off: float = 0.0, **keywords: Any) -> dict[str, Any]:
    """A step of two products, the first in float16 if it is ``coarse``; ``off`` scales the second result."""
    first = (x @ weight).astype(np.float16 if coarse else np.float32)
    second = (first.astype(np.float32) @ weight) * np.float32(1 + off)
    return {LINEAR: call(x, weight, out=first), NEXT: call(first, weight, out=second, **keywords)}


def write(directory: Path, *steps: dict[str, Any]) -> Path:
    for number, calls in enumerate(steps):
        record(directory / f"step{number}" / "rank0", calls, task="statistics")
    return directory


def moved(array: Any, share: float) -> Any:
    """The array with each element changed by about ``share`` of their root mean square."""
    return (array + share * normal(*array.shape, seed=9)).astype(np.float32)


X, WEIGHT = normal(16, 16), normal(16, 16, seed=1)
LATER = normal(16, 16, seed=2)


def verdict(probe: Probe, tmp_path: Path, target: list[Any], golden: list[Any], formats: str = "csv") -> str:
    paths = write(tmp_path / "target", *target), write(tmp_path / "golden", *golden)
    probe("compare", *paths, "-o", tmp_path / "out", "--format", formats)
    return probe.out.splitlines()[0]


@pytest.mark.parametrize("coarse, outcome", [(True, "AGREE: within rounding"), (False, "DIVERGED: in step1")])
def test_parameters_may_differ_by_the_rounding_of_the_step_before(
    probe: Probe, tmp_path: Path, coarse: bool, outcome: str
) -> None:
    other = moved(WEIGHT, 1e-3)
    target = [step(X, WEIGHT, coarse), step(LATER, other, False)]
    golden = [step(X, WEIGHT, coarse), step(LATER, WEIGHT, False)]
    told = verdict(probe, tmp_path, target, golden, "csv,html")  # the page asks for the verdict, too
    assert told.startswith(outcome)
    by_itself = f"note: step1 by itself, as its own files state: DIVERGED: {LINEAR} receives values that"
    assert (by_itself in probe.out) is coarse


def test_a_difference_that_the_rounding_of_earlier_steps_does_not_explain_counts(
    probe: Probe, tmp_path: Path
) -> None:
    other = moved(WEIGHT, 0.5)
    target = [step(X, WEIGHT, True), step(LATER, other, False)]
    golden = [step(X, WEIGHT, True), step(LATER, WEIGHT, False)]
    told = verdict(probe, tmp_path, target, golden)
    assert told.startswith(f"DIVERGED: in step1, {LINEAR} receives values that differ")


def test_an_argument_of_a_later_step_counts(probe: Probe, tmp_path: Path) -> None:
    target = [step(X, WEIGHT, True), step(LATER, moved(WEIGHT, 1e-3), False, 0.3, scale=1.3)]
    golden = [step(X, WEIGHT, True), step(LATER, WEIGHT, False, scale=1.0)]
    told = verdict(probe, tmp_path, target, golden)
    assert told.startswith(f"DIVERGED: in step1, {NEXT} was called with a different argument")


def test_growth_in_a_later_step_is_not_decided(probe: Probe, tmp_path: Path) -> None:
    """Values that grow call by call do not show an error where parameters carry rounding."""
    grown = [moved(WEIGHT, 3e-5)]
    golden = [step(X, WEIGHT, False), step(LATER, WEIGHT, False)]
    target = [step(X, WEIGHT, False), step(LATER, grown[0], False)]
    told = verdict(probe, tmp_path, target, golden)
    assert told.startswith("CANNOT TELL: step1: ")
    assert "it may be rounding that has added up since the first step" in told


def test_a_step_that_diverges_leaves_later_verdicts_alone(probe: Probe, tmp_path: Path) -> None:
    golden = [step(X, WEIGHT, True), step(LATER, WEIGHT, False)]
    target = [step(moved(X, 1.0), WEIGHT, True), step(LATER, moved(WEIGHT, 1e-3), False)]
    told = verdict(probe, tmp_path, target, golden)
    assert told.startswith(f"DIVERGED: in step0, {LINEAR} receives values that differ")
    assert "(2 of 2 comparisons diverged)" in told
