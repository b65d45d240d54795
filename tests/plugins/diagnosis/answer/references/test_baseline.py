"""A second golden run: what differs between both golden runs is no cause."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.runs.answered import Calls, back, call, normal, record
from support.runs.comparing import compare

import probe_core
from probe_core.model.answers import Answer
from probe_core.model.plan import Plan
from probe_core.plugins.manager import Manager

A, B, C = (f"Torch.{name}.0.forward" for name in "abc")
X, Y, Z, NOISE, OTHER = (normal(4096, seed=number) for number in range(5))


def run(scale: float = 0.0, noise: Any = NOISE, **more: Any) -> Calls:
    """Three calls, of which the second returns values that are off by ``scale``."""
    out = (Y + np.float32(scale) * noise).astype(np.float32)
    return {A: call(X, out=X), B: call(X, out=out), C: call(out, out=out)} | more


def answer(directory: Path, target: Calls, golden: Calls, second: Any, task: str = "tensor") -> Answer:
    runs = {"t": target, "g": golden, "second": second}
    paths = [record(directory / name, calls, task) for name, calls in runs.items() if isinstance(calls, dict)]
    baseline = paths[2] if isinstance(second, dict) else second
    plan = Plan(paths[0], paths[1], directory / "o", "0", options={"baseline": baseline}, formats=("jsonl",))
    (report,) = compare(plan, Manager())
    assert report.answer is not None
    return report.answer


@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_what_differs_between_golden_runs_is_no_cause(task: str, tmp_path: Path) -> None:
    target, golden, second = run(1e-3, OTHER), run(), run(1e-3)
    without = answer(tmp_path / "without", target, golden, None, task)
    assert without.outcome.value == "DIVERGED"
    assert not without.baseline
    found = answer(tmp_path / "with", target, golden, second, task)
    assert found.sentence == (
        "AGREE: within rounding, or within what the baseline explains, in all 6 values that both runs recorded"
    )
    assert not found.causes
    path = tmp_path / "with" / "second" / "dump.json"
    assert [note.text for note in found.notes] == [
        f"the baseline {path} covers 3 of the golden's 3 calls, and in 2 of them explains what rounding does not",
    ]


def test_a_larger_difference_remains_a_cause(tmp_path: Path) -> None:
    """Its evidence states what the baseline explains."""
    found = answer(tmp_path, run(1e-2, OTHER), run(), run(1e-3))
    assert found.outcome.value == "DIVERGED"
    (cause,) = found.causes
    assert cause.op == B
    assert ", the baseline at most 0.004)" in cause.reason.detail
    assert cause.evidence["baseline"] == pytest.approx(4e-3, rel=0.05)


def test_a_cause_elsewhere_is_not_explained(tmp_path: Path) -> None:
    """The limit is raised for the values that differ between the golden runs, and for no others."""
    target = run(1e-3, OTHER) | {A: call(X, out=(X + np.float32(1e-3) * NOISE).astype(np.float32))}
    found = answer(tmp_path, target, run(), run(1e-3))
    assert [cause.op for cause in found.causes] == [A]


def test_rows_that_fail_in_the_table_as_well(tmp_path: Path) -> None:
    """Sums that cancel: their cosine is -1, and between both golden runs as well."""
    tiny = np.full(64, 1e-45, np.float32)
    runs = [run() | {"Torch.d.0.forward": call(X, out=side * tiny)} for side in (-1, 1, -1)]
    assert answer(tmp_path / "1", *runs[:2], None).outcome.value == "CANNOT TELL"


def refused(directory: Path, second: Any, target: Any = None, golden: Any = None) -> str:
    """The note on a baseline that is not used; the verdict is that without it."""
    found = answer(directory, target or run(1e-3, OTHER), golden or run(), second)
    assert found.outcome.value == "DIVERGED"
    assert found.baseline["unused"] and found.baseline["unused_in"] == 1
    return found.notes[-1].text.partition(" was not used: ")[2]


def test_a_baseline_that_is_the_golden_itself(tmp_path: Path) -> None:
    why = refused(tmp_path, tmp_path / "g")
    assert why == f"{tmp_path / 'g'} is the golden itself and explains nothing"


def test_baseline_that_is_the_target_itself_is_refused(tmp_path: Path) -> None:
    why = refused(tmp_path, tmp_path / "t")
    assert why == f"{tmp_path / 't'} is the target itself and would explain every difference"


def test_a_baseline_that_shares_too_little(tmp_path: Path) -> None:
    second = {A: run()[A]} | {f"Torch.x{n}.0.forward": call(X, out=X) for n in range(4)}
    why = refused(tmp_path, second)
    assert why == "only 33% of the golden's floating-point tensors could be compared with it"


def test_a_baseline_of_another_model(tmp_path: Path) -> None:
    """Other weights, another argument, and a call that returns far more than another kernel would."""
    weights = run() | {B: call(Z, out=Z)}
    assert refused(tmp_path / "1", weights).startswith(f"in it, {B} receives values that differ")
    argument = run() | {A: call(X, 2.0, out=X), B: call(X, 3.0, out=(Y + np.float32(1e-3) * NOISE))}
    golden = run() | {A: call(X, 2.0, out=X), B: call(X, 2.0, out=Y)}
    why = refused(tmp_path / "2", argument, golden | {B: call(X, 2.0, out=Z)}, golden)
    assert why.startswith(f"in it, {B} was called with a different argument (")
    assert refused(tmp_path / "3", run(0.1)).startswith(f"in it, {B} returns values that differ")


def test_a_baseline_that_cannot_be_read(tmp_path: Path) -> None:
    assert refused(tmp_path, tmp_path / "nowhere") == f'"{tmp_path}/nowhere" cannot be read: it does not exist'


def test_calls_that_one_golden_makes_more_often_are_aligned(tmp_path: Path) -> None:
    more = {"Torch.a.1.forward": call(Y, out=Z)}
    second = {"Torch.a.0.forward": call(Z, out=Z), "Torch.a.1.forward": call(X, out=X)}
    second |= {B: run(1e-3)[B], C: run(1e-3)[C]}
    found = answer(tmp_path, run(1e-3, OTHER), run(), second)
    assert found.outcome.value == "AGREE", found.sentence
    assert not more or found.baseline["covered"] == 3


def written(directory: Path, calls: Any, steps: int = 2, ranks: int = 2) -> Path:
    """A run of several steps and ranks."""
    for step in range(steps):
        for rank in range(ranks):
            record(directory / f"step{step}" / f"rank{rank}", calls(step, rank))
    return directory


def test_many_ranks_and_steps(tmp_path: Path, probe: Any) -> None:
    target = written(tmp_path / "t", lambda step, rank: run(1e-3, OTHER) if rank else run())
    golden = written(tmp_path / "g", lambda step, rank: run())
    second = written(tmp_path / "g2", lambda step, rank: run(1e-3) if rank else run())
    arguments = ["compare", target, golden, "-o", tmp_path / "out", "--format", "csv", "--jobs", "1"]
    assert probe(*arguments, "--fail-on", "suspect") == 1
    assert probe.out.startswith("DIVERGED: ")
    assert probe(*arguments, "--baseline", second, "--fail-on", "suspect") in (0, 1)
    assert probe.out.startswith("AGREE: "), probe.out
    (file,) = [f for f in (tmp_path / "out").glob("answer_*.json") if '"path"' in f.read_text()]
    found = json.loads(file.read_text())["baseline"]
    assert found == {
        "path": str(second), "unused": "", "comparisons": 4, "unused_in": 0, "calls": 12, "covered": 12,
        "raised": 4,
    }  # fmt: skip


def test_a_rank_without_baseline_is_said(tmp_path: Path, probe: Any) -> None:
    target, golden = (written(tmp_path / name, lambda step, rank: run()) for name in ("t", "g"))
    second = written(tmp_path / "g2", lambda step, rank: run(), ranks=1)
    probe("compare", target, golden, "-o", tmp_path / "out", "--format", "csv", "--baseline", second)
    assert "; it was not used in 2 of 4 comparisons: " in probe.out, probe.out


def test_compare_takes_a_baseline(tmp_path: Path) -> None:
    for name, calls in (("t", run(1e-3, OTHER)), ("g", run()), ("g2", run(1e-3))):
        record(tmp_path / name, calls)
    found = probe_core.compare(tmp_path / "t", tmp_path / "g", baseline=str(tmp_path / "g2")).answer
    assert found is not None
    assert found.outcome.value == "AGREE"


def test_options_that_cannot_be(tmp_path: Path, probe: Any) -> None:
    for name in ("t", "g"):
        record(tmp_path / name, run())
    runs = ["compare", tmp_path / "t", tmp_path / "g", "-o", tmp_path / "out"]
    assert probe(*runs, "--baseline", tmp_path / "nowhere") == 2
    assert "does not exist" in probe.err
    for options in (["-da", "--baseline", tmp_path / "g"], ["--baseline", tmp_path / "g", "-da"]):
        assert probe(*runs, *options) == 2
        assert "-da and --baseline exclude each other" in probe.err


def test_backward_calls(tmp_path: Path) -> None:
    """Nondeterministic sums of gradients."""
    key = "Torch.b.0.backward"
    runs = [run() | {key: back(X, Y + np.float32(5e-4) * noise)} for noise in (OTHER, 0 * Z, NOISE)]
    assert answer(tmp_path / "1", *runs[:2], None).outcome.value == "DIVERGED"
    assert answer(tmp_path / "2", *runs).outcome.value == "AGREE"
