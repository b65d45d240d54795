"""Findings of detectors: their order among the causes of probe, and detectors that fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from probe_diagnosis.api import Detection, DetectorSpec, Timeline
from probe_diagnosis.testing import DetectorConformance, try_detector
from support.runs.answered import Calls, call, compared, normal, record

from probe_core.model.answers import Outcome
from probe_core.model.report import Report
from probe_core.plugins.manager import Manager

A, B, C = (f"Torch.{name}.0.forward" for name in "abc")
X, Y = normal(8), normal(8, seed=1)
CHAIN: Calls = {A: call(X, out=X), B: call(X, out=X), C: call(X, out=X)}


class Blames:
    """A detector that blames some calls, or fails."""

    def __init__(self, *ops: str, word: str = "is odd") -> None:
        self._ops, self._word = ops, word

    def detect(self, timeline: Timeline) -> Iterator[Detection]:
        if not self._ops:
            raise ArithmeticError("of mine")
        known = {one.op for one in timeline.calls()}
        yield from (Detection(op, self._word, f"{op}.output.0") for op in self._ops if op in known)


def answer(monkeypatch: pytest.MonkeyPatch, directory: Path, target: Calls, *detectors: Blames) -> Report:
    specs = [DetectorSpec(f"d{n}", "s", lambda one=one: one, order=n) for n, one in enumerate(detectors)]
    plain = Manager.specs
    monkeypatch.setattr(
        Manager, "specs", lambda self, kind, spec: specs if kind == "detectors" else plain(self, kind, spec)
    )
    paths = [record(directory / side, calls) for side, calls in (("t", target), ("g", CHAIN))]
    return compared(directory, *paths)


@pytest.mark.parametrize(
    "ops, causes",
    [((A,), [(A, "detector"), (B, "introduced")]), ((B,), [(B, "detector")]),
     ((C,), [(B, "introduced"), (C, "detector")]), ((C, A), [(A, "detector"), (B, "introduced"), (C, "detector")])],
)  # fmt: skip
def test_statements_come_in_the_order_of_the_calls(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ops: tuple[str, ...], causes: list[tuple[str, str]]
) -> None:
    found = answer(monkeypatch, tmp_path, {**CHAIN, B: call(X, out=Y), C: call(Y, out=Y)}, Blames(*ops)).answer
    assert found is not None and found.outcome is Outcome.DIVERGED
    assert [(cause.op, cause.reason.code) for cause in found.causes] == causes


def test_a_statement_makes_equal_runs_diverge(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = answer(monkeypatch, tmp_path, CHAIN, Blames(B)).answer
    assert found is not None and found.sentence == f"DIVERGED: {B} is odd"
    (cause,) = found.causes
    assert (cause.row, cause.evidence) == (f"{B}.output.0", {"detector": "d0"})


def test_the_first_of_two_detectors_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = answer(monkeypatch, tmp_path, CHAIN, Blames(B), Blames(B, C, word="is strange")).answer
    assert found is not None
    assert [(one.op, one.reason.detail) for one in found.causes] == [(B, "is odd"), (C, "is strange")]


def test_a_detector_that_fails_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    report = answer(monkeypatch, tmp_path, CHAIN, Blames(), Blames(C))
    assert report.answer is not None and [one.op for one in report.answer.causes] == [C]
    (problem,) = report.problems
    assert problem.startswith('The detector "d0"') and "of mine" in problem


class TestConformance(DetectorConformance):
    spec = DetectorSpec("none", "blames nothing", lambda: Blames("Torch.z.0.forward"))


def test_a_detector_that_blames_equal_runs_does_not_conform() -> None:
    with pytest.raises(TypeError, match="in two equal runs"):
        try_detector(DetectorSpec("mul", "s", lambda: Blames("Torch.mul.0.forward")))
