"""A more precise third run, against which target and golden are measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from probe_diagnosis.timeline.compared_calls import ValueComparison
from probe_diagnosis.timeline.value_table import ValueTable, build_call_table
from support.runs.answered import Calls, call, normal, record

import probe_core
from probe_core.model import Side
from probe_core.model.answers import Answer

A, B, C, D = (f"Torch.{name}.0.forward" for name in "abcd")
X, Y, Z, NOISE, OTHER, FURTHER = (normal(4096, seed=number).astype(np.float64) for number in range(6))
TASKS = pytest.mark.parametrize("task", ["tensor", "statistics"])


def run(error: float = 0.0, noise: Any = NOISE, later: float = 0.0, dtype: Any = np.float32) -> Calls:
    """Four calls.

    Args:
        error: The relative error that the second call makes, and that the third passes on.
        noise: The direction of the error.
        later: The relative error of the fourth call.
        dtype: The dtype of all tensors.
    """
    x, y, z = X.astype(dtype), (Y + error * noise).astype(dtype), (Z + error * noise).astype(dtype)
    last = (z + later * FURTHER).astype(dtype)
    return {A: call(x, out=x), B: call(x, out=y), C: call(y, out=z), D: call(z, out=last)}


EXACT = run(dtype=np.float64)


def answer(
    directory: Path, target: Calls, golden: Calls, reference: Calls | Path = EXACT, task: str = "tensor"
) -> Answer:
    """The answer with a reference."""
    paths = [record(directory / name, calls, task) for name, calls in (("t", target), ("g", golden))]
    third = reference if isinstance(reference, Path) else record(directory / "r", reference, task)
    found = probe_core.compare(*paths, reference=str(third), output=str(directory / "o")).answer
    assert found is not None
    return found


@TASKS
def test_a_target_that_is_nearer_agrees(task: str, tmp_path: Path) -> None:
    found = answer(tmp_path, run(1e-4, OTHER), run(1e-2), task=task)
    assert found.outcome.value == "AGREE"
    assert found.text.startswith(
        "where they differ, the target is at least as near to the reference as the golden (5 values of 3 calls, "
        f"the first in {B}, where the golden is "
    )
    ratio = float(found.text.partition("the golden is ")[2].partition(" ")[0])
    assert ratio == pytest.approx(100, rel=0.5)
    assert found.notes[-1].text.endswith("covers 4 of the golden's 4 calls")
    assert (found.reference["values"], found.reference["farther"]) == (5, 0)


def test_a_fault_of_the_golden_alone_is_not_one_of_the_target(tmp_path: Path) -> None:
    found = answer(tmp_path, run(), run(0.5))
    assert found.outcome.value == "AGREE"
    assert f"the first in {B}, where the target equals the reference" in found.text


@TASKS
def test_runs_that_are_as_far_from_the_reference_agree(task: str, tmp_path: Path) -> None:
    found = answer(tmp_path, run(2e-2, OTHER), run(1e-2), task=task)
    assert found.outcome.value == "AGREE"
    assert "as near to the reference as the golden, or at most 4 times as far (" in found.text


@TASKS
def test_a_target_that_is_farther_stays_diverged(task: str, tmp_path: Path) -> None:
    """The evidence states how much farther it is, measured here with numpy."""
    found = answer(tmp_path, run(1e-2, OTHER), run(1e-3), task=task)
    assert found.outcome.value == "DIVERGED"
    (cause,) = found.causes
    assert cause.op == B
    ratio = cause.evidence["farther_from_reference"]
    if task == "tensor":
        norms = [np.linalg.norm((Y + e * n).astype(np.float32) - Y) for e, n in ((1e-2, OTHER), (1e-3, NOISE))]
        assert ratio == pytest.approx(norms[0] / norms[1], rel=1e-6)
    assert f"; the target is {ratio:.3g} times as far from the reference as the golden)" in cause.reason.detail


def test_a_golden_that_equals_the_reference_is_stated(tmp_path: Path) -> None:
    exact = {key: call(X, out=X) for key in (A, B, C, D)}
    target = exact | {B: call(X, out=X + 1e-2 * NOISE)}
    found = answer(tmp_path, target, exact, {**exact})
    assert found.causes[0].op == B
    assert "; the golden agrees with the reference, the target does not)" in found.causes[0].reason.detail


def test_a_later_fault_is_named_although_the_golden_is_worse_before(tmp_path: Path) -> None:
    found = answer(tmp_path, run(later=0.1), run(1e-2))
    assert found.outcome.value == "DIVERGED"
    assert [cause.op for cause in found.causes] == [D]
    assert "although its inputs agree" in found.causes[0].reason.detail
    assert "as near to the reference as the golden inputs" in found.causes[0].reason.detail


def test_a_fault_smaller_than_the_error_of_the_golden_is_mentioned(tmp_path: Path) -> None:
    """It agrees; a note says that the target's distance grows in the call."""
    found = answer(tmp_path, run(later=2e-2), run(1e-2))
    assert found.outcome.value == "AGREE"
    assert found.reference["first_jump"] == D
    assert f"in 1 excused call, the first of them {D}, the target's distance from it grows" in found.notes[-1].text


def test_the_call_where_the_distance_jumps_comes_first(tmp_path: Path) -> None:
    """Its error is within the limit; a later call makes it larger than that."""
    target = run(later=3e-2)
    golden = run(1e-2)
    last = "Torch.e.0.forward"
    runs = [
        calls | {last: call(calls[D]["output"][0], out=(Y + error * FURTHER).astype(kind))}
        for calls, error, kind in ((target, 1.0, np.float32), (golden, 0.01, np.float32), (EXACT, 0.0, float))
    ]
    found = answer(tmp_path, *runs)
    assert found.outcome.value == "DIVERGED"
    assert found.causes[0].op == D


def test_integers_must_be_at_least_as_near(tmp_path: Path) -> None:
    whole = np.arange(64)
    runs = [{A: call(X, out=X), B: call(X, out=whole + shift)} for shift in (0, 1, 0)]
    assert answer(tmp_path / "1", *runs).outcome.value == "AGREE"
    runs = [{A: call(X, out=X), B: call(X, out=whole + shift)} for shift in (2, 1, 0)]
    assert answer(tmp_path / "2", *runs).outcome.value != "AGREE"


def test_arguments_and_shapes_are_not_excused(tmp_path: Path) -> None:
    shapes = [{A: call(X, out=X), B: call(X, out=Y[:size])} for size in (4096, 4095, 4096)]
    assert answer(tmp_path, *shapes).outcome.value == "DIVERGED"


def test_a_golden_that_is_not_finite_is_farther(tmp_path: Path) -> None:
    broken = np.where(np.arange(4096) == 7, np.nan, Y)
    golden = {A: call(X, out=X), B: call(X, out=broken)}
    exact = {A: call(X, out=X), B: call(X, out=Y)}
    near = {A: call(X, out=X), B: call(X, out=Y * (1 + 1e-4))}
    assert answer(tmp_path / "1", near, golden, exact).outcome.value == "AGREE"
    assert answer(tmp_path / "2", golden, exact, {**exact}).outcome.value == "DIVERGED"


def test_a_reference_is_not_needed_where_the_runs_agree(tmp_path: Path) -> None:
    found = answer(tmp_path, run(), run())
    assert found.text.startswith("equal in all ")
    assert found.notes[-1].text.endswith("was not used: target and golden agree without it")


# -- runs that are no reference -------------------------------------------------------------------


def refused(directory: Path, reference: Calls | Path) -> str:
    """The reason why a reference is not used."""
    found = answer(directory, run(1e-2, OTHER), run(1e-3), reference)
    assert found.outcome.value == "DIVERGED"
    assert found.reference["unused_in"] == 1
    return found.notes[-1].text.partition(" was not used: ")[2]


def test_the_golden_or_the_target_is_no_reference(tmp_path: Path) -> None:
    assert refused(tmp_path, tmp_path / "g").endswith("is the golden itself, which is always nearest to it")
    assert refused(tmp_path / "2", tmp_path / "2" / "t").endswith("is the target itself, which is always nearest to it")


def test_a_run_with_another_seed_is_no_reference(tmp_path: Path) -> None:
    """It would excuse every difference."""
    other = {key: call(FURTHER, out=FURTHER) for key in (A, B, C, D)}
    why = refused(tmp_path, other)
    assert why.startswith(f"target and golden agree in {A}.input.0, and both are far from it")


def test_a_run_of_another_program_is_no_reference(tmp_path: Path) -> None:
    other = {A: EXACT[A]} | {f"Torch.x{n}.0.forward": call(X, out=X) for n in range(9)}
    assert refused(tmp_path, other).startswith("only ")


# -- several steps and ranks ----------------------------------------------------------------------


def written(directory: Path, calls: Any, ranks: int = 2) -> Path:
    """A run of two steps and some ranks."""
    for step in range(2):
        for rank in range(ranks):
            record(directory / f"step{step}" / f"rank{rank}", calls(step, rank))
    return directory


def test_steps_and_ranks_in_several_processes(tmp_path: Path, probe: Any) -> None:
    target = written(tmp_path / "t", lambda step, rank: run())
    golden = written(tmp_path / "g", lambda step, rank: run(1e-2) if rank else run())
    third = written(tmp_path / "r", lambda step, rank: EXACT)
    arguments = ["compare", target, golden, "-o", tmp_path / "out", "--format", "csv", "--reference", third]
    assert probe(*arguments, "--jobs", "2") == 0, probe.err
    assert probe.out.startswith("AGREE: where they differ, the target is at least as near"), probe.out
    (file,) = (tmp_path / "out").glob("answer_*.json")
    found = json.loads(file.read_text())["reference"]
    counts = {name: found[name] for name in ("comparisons", "unused_in", "values", "calls_excused", "first")}
    assert counts == {"comparisons": 4, "unused_in": 2, "values": 10, "calls_excused": 6, "first": B}
    assert "it was not used in 2 of 4 comparisons: target and golden agree without it" in probe.out


def test_what_a_process_found_is_restored() -> None:
    """A comparison that is resumed continues with the excused values."""
    value = ValueComparison(
        f"{B}.output.0",
        Side.OUTPUT,
        "same",
        1e-2,
        1.0,
        1e-6,
        explained_distance=1e-2,
        reference_distance_ratio=0.5,
        is_excused=True,
    )
    restored = ValueTable.from_plain(json.loads(json.dumps(build_call_table(B, [value]).plain())))
    (found,) = restored.create_comparisons(0, 1, B)
    assert (found.reference_distance_ratio, found.is_excused, found.explained_distance) == (0.5, True, 1e-2)


def test_a_rank_without_reference_is_stated(tmp_path: Path, probe: Any) -> None:
    target = written(tmp_path / "t", lambda step, rank: run())
    golden = written(tmp_path / "g", lambda step, rank: run(1e-2))
    third = written(tmp_path / "r", lambda step, rank: EXACT, ranks=1)
    probe("compare", target, golden, "-o", tmp_path / "out", "--format", "csv", "--reference", third)
    assert probe.out.startswith("DIVERGED: ")
    assert "; it was not used in 2 of 4 comparisons: " in probe.out, probe.out


def test_options_that_exclude_each_other(tmp_path: Path, probe: Any) -> None:
    for name in ("t", "g"):
        record(tmp_path / name, run())
    runs = ["compare", tmp_path / "t", tmp_path / "g", "-o", tmp_path / "out"]
    assert probe(*runs, "--reference", tmp_path / "nowhere") == 2
    assert "does not exist" in probe.err
    for options in (["-da", "--reference", tmp_path / "g"], ["--reference", tmp_path / "g", "-da"]):
        assert probe(*runs, *options) == 2
        assert "-da and --reference exclude each other" in probe.err
