"""Verdicts on later steps that consider earlier ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from probe_diagnosis.answer.verdict.step_history import add_earlier_origin
from probe_diagnosis.difference.reasons import CauseKind
from support.probe import Probe
from support.runs.answered import back, call, normal, record
from support.runs.differences import strictly

from probe_core.model import Reason
from probe_core.model.answers import Finding

MEAN, MODULE = "Tensor.lerp_.0.forward", "Module.book.Codebook.forward.0"
LINEAR, NEXT = "Functional.linear.0.forward", "Functional.linear.1.forward"


def step(x: Any, weight: Any, coarse: bool, off: float = 0.0, **keywords: Any) -> dict[str, Any]:
    """A step of two products, the first in float16 if it is ``coarse``; ``off`` scales the second result."""
    first = (x @ weight).astype(np.float16 if coarse else np.float32)
    second = (first.astype(np.float32) @ weight) * np.float32(1 + off)
    return {LINEAR: call(x, weight, out=first), NEXT: call(first, weight, out=second, **keywords)}


def write(directory: Path, *steps: dict[str, Any]) -> Path:
    task = "tensor" if any(MODULE in calls for calls in steps) else "statistics"
    for number, calls in enumerate(steps):
        parents = {MEAN: MODULE} if MODULE in calls else None
        record(directory / f"step{number}" / "rank0", calls, task=task, construct=parents)
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
    by_itself = f"note: step1 alone, as its files state: DIVERGED: {LINEAR} receives values that"
    assert (by_itself in probe.out) is coarse


def test_a_difference_that_the_rounding_of_earlier_steps_does_not_explain_counts(probe: Probe, tmp_path: Path) -> None:
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
    assert "it may be accumulated rounding since the first step" in told


def test_a_step_that_diverges_leaves_later_verdicts_alone(probe: Probe, tmp_path: Path) -> None:
    golden = [step(X, WEIGHT, True), step(LATER, WEIGHT, False)]
    target = [step(moved(X, 1.0), WEIGHT, True), step(LATER, moved(WEIGHT, 1e-3), False)]
    told = verdict(probe, tmp_path, target, golden)
    assert told.startswith(f"DIVERGED: in step0, {LINEAR} receives values that differ")
    assert "(2 of 2 comparisons diverged)" in told


def averaged(share: float, later: float | None = None) -> list[dict[str, Any]]:
    """Two steps: a module updates an average with a share in the first, which only the second reads."""
    loss, gradient = normal(1, seed=5), {"weight": [normal(16, seed=6)]}
    ends = {"Functional.mse_loss.0.backward": back(loss, X), "Module.m.Linear.parameters_grad": gradient}
    average = (1 - share) * WEIGHT + share * LATER
    read = average if later is None else (1 - later) * WEIGHT + later * LATER
    update: dict[str, Any] = {MEAN: call(WEIGHT, LATER, share, out=average.astype(np.float32))}
    update[MODULE] = call(X, out=X)
    first = {**update, "Functional.mse_loss.0.forward": call(X, out=loss), **ends}
    return [first, {"Tensor.to.0.forward": call(read.astype(np.float32), out=read.astype(np.float32))}]


def test_what_has_no_effect_in_its_step_explains_a_later_one(probe: Probe, tmp_path: Path) -> None:
    told = verdict(probe, tmp_path, averaged(0.8), averaged(0.2))
    assert told.startswith(f"DIVERGED: in step0, {MEAN} was called with a different argument")
    assert "; in step1, Tensor.to.0.forward receives values that differ" in told
    (file,) = (tmp_path / "out").glob("answer_*.json")
    found = strictly(file)
    (cause,) = found["causes"]
    assert (cause["step"], cause["consequences"]) == ("step0", {"count": 1, "first": ["Tensor.to.0.forward"]})
    assert cause["line"], "its row is in the table of its own step"
    assert [one["op"] for one in found["steps"][0]["ranks"][0]["withdrawn"]] == [MEAN]
    assert f"note: {MEAN}" not in probe.out, "a cause is no note"
    assert "next: Look at" not in probe.out


def test_nothing_earlier_is_named_without_a_difference_before(probe: Probe, tmp_path: Path) -> None:
    told = verdict(probe, tmp_path, averaged(0.2, later=0.8), averaged(0.2))
    assert told.startswith("DIVERGED: in step1, Tensor.to.0.forward receives values that differ")


def test_a_cause_with_an_origin_of_its_own_stays(probe: Probe, tmp_path: Path) -> None:
    target, golden = averaged(0.8), averaged(0.2)
    for steps, scale in ((target, 2.0), (golden, 1.0)):
        steps[1] = {NEXT: call(X, scale, out=(X * scale).astype(np.float32))}
    told = verdict(probe, tmp_path, target, golden)
    assert told.startswith(f"DIVERGED: in step1, {NEXT} was called with a different argument")


def test_only_the_rank_itself_and_all_other_causes_are_kept() -> None:
    taken = Finding("Torch.a.0.forward", "", Reason(CauseKind.RECEIVED.value, "receives"), step="step1", rank=1)
    further = Finding("Torch.b.0.forward", "", Reason(CauseKind.INTRODUCED.value, "returns"), step="step1", rank=1)
    earlier = [Finding(f"Torch.c.{rank}.forward", "", Reason("argument", "was called"), rank=rank) for rank in (0, 1)]
    first, second = add_earlier_origin([taken, further], [[], earlier])
    assert (first.op, first.reason.detail) == (
        "Torch.c.1.forward",
        "was called; in step1, Torch.a.0.forward receives",
    )
    assert second is further
    assert add_earlier_origin([taken, further], [earlier[:1]]) == [taken, further]
