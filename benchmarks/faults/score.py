"""Comparison of recorded cases as a user makes it, and the score of what it says."""

from __future__ import annotations

import io
import json
import re
import shutil
import time
from collections.abc import Iterable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faults.cases import Case, Cause
from faults.record import REFERENCE, TASKS
from faults.truth import falsehoods

AGREE, DIVERGED = "AGREE", "DIVERGED"
LOOKED_AT = 3
"""Number of causes that a person reads."""
STAMP = "20000101000000"


@dataclass(frozen=True)
class Score:
    """The result of comparing a case that was recorded in one way.

    Attributes:
        rank: The place of the first cause that names the fault, from 1; 0 if none does.
        false: Statements that the tensors contradict, each with the contradiction.
        unchecked: Number of statements on what no recorded tensor shows.
        seconds: Duration of the comparison.
    """

    case: Case
    task: str
    verdict: str
    causes: list[Cause]
    rank: int
    false: list[str] = field(default_factory=list)
    unchecked: int = 0
    seconds: float = 0.0

    @property
    def is_right(self) -> bool:
        """Return True if the first cause names the fault, or a control agrees without any cause."""
        return not self.is_alarm if self.case.is_control else self.rank == 1

    @property
    def is_alarm(self) -> bool:
        """Return True for a control that raises something."""
        named = self.causes and not self.case.may_differ
        return self.case.is_control and bool(named or self.verdict != AGREE)

    @property
    def word(self) -> str:
        """The result in a word."""
        if self.case.is_control:
            return "ALARM" if self.is_alarm else "agree"
        if not self.causes:
            return "SILENT"
        return {0: "WRONG", 1: "right"}.get(self.rank, f"rank {self.rank}")


def first_lines(target: Path, golden: Path, output: Path, reference: Path | None = None) -> tuple[str, list[Cause]]:
    """Compare two runs; return the verdict and its causes, most important first."""
    from probe_core.cli.main import run

    shutil.rmtree(output, ignore_errors=True)
    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(printed):
        third = ["--reference", str(reference)] if reference is not None and reference.is_dir() else []
        run(["compare", str(target), str(golden), "-o", str(output), "--format", "csv", *third])
    answers = sorted(output.glob("answer_*.json"))
    if not answers:
        return suspects(target, golden, output / "again")
    answer = json.loads(answers[-1].read_text("utf-8"))
    return str(answer["verdict"]).upper(), [cause_of(found) for found in answer["causes"]]


def cause_of(found: Mapping[str, Any]) -> Cause:
    """Return a cause of an answer file."""
    parts = {name: str(found.get(name) or "") for name in ("op", "row", "statement", "argument", "where", "kind")}
    modules = found.get("module") or ()
    partner = (found.get("evidence") or {}).get("golden_op")
    return Cause(
        **parts,
        modules=(modules,) if isinstance(modules, str) else tuple(modules),
        step=int(re.sub(r"\D", "", str(found.get("step") or "")) or 0),
        partner=partner if isinstance(partner, str) else "",
    )


def suspects(target: Path, golden: Path, output: Path) -> tuple[str, list[Cause]]:
    """Return what a comparison without an answer file says: the suspects of each step in turn."""
    from probe_core.flow.execution import PlanExecution
    from probe_core.model.plan import Plan
    from probe_core.plugins.manager import Manager

    plan = Plan(target, golden, output, STAMP, formats=("csv",), jobs=1)
    causes: list[Cause] = []
    for finished in PlanExecution.open(plan, Manager()).run():
        if finished.report is None:
            return "NOT COMPARABLE", []
        step = re.search(r"step(\d+)", str(finished.pair.target))
        causes += [
            Cause(suspect.op, suspect.row, suspect.why, (suspect.module,), "", suspect.where,
                  step=int(step[1]) if step else 0)
            for suspect in finished.report.suspects
        ]  # fmt: skip
    return (DIVERGED if causes else AGREE), causes


def score(case: Case, directory: Path, tasks: Iterable[str] = TASKS, *, with_reference: bool = False) -> list[Score]:
    """Compare a case that ``record`` wrote below ``directory``, once for each task."""
    home = directory / case.name
    scores = []
    for task in tasks:
        begun = time.perf_counter()
        reference = home / task / REFERENCE if with_reference else None
        verdict, causes = first_lines(home / task / "target", home / task / "golden", home / task / "output", reference)
        seconds = time.perf_counter() - begun
        places = [place for place, cause in enumerate(causes, 1) if case.is_named_by(cause)]
        false, unchecked = checked(home / "tensor" / "target", home / "tensor" / "golden", causes)
        rank = places[0] if places else 0
        scores.append(Score(case, task, verdict, causes, rank, false, unchecked, seconds))
    return scores


def checked(target: Path, golden: Path, causes: Iterable[Cause]) -> tuple[list[str], int]:
    """Return each statement that the recorded tensors contradict, and the number of those not checked."""
    false: list[str] = []
    unchecked = 0
    for cause in causes:
        step = f"step{cause.step}/rank"
        wrong = falsehoods(target / step, golden / step, cause)
        unchecked += wrong is None
        false += [f"{cause.row or cause.op} {cause.statement} -- but {text}" for text in wrong or ()]
    return false, unchecked
