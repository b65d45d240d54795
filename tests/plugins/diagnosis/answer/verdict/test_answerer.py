"""The answer over several ranks, from the answers on each."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from probe_diagnosis.answer.verdict.answerer import VerdictAnswerer
from support.runs.answer_files import read_answer
from support.runs.answered import back, call, normal, record

from probe_core.flow.execution import PlanExecution
from probe_core.model.plan import Plan
from probe_core.plugins.manager import Manager
from probe_core.plugins.protocols import AllResults

X, Y, Z, NOISE = (normal(4096, seed=number) for number in range(4))
A, LOSS = "Torch.a.0.forward", "Functional.mse_loss.0.forward"
BACK, GRADIENT = "Functional.mse_loss.0.backward", "Module.m.Linear.parameters_grad"


def step(off: float = 0.0) -> Any:
    """A step whose first call is so many times what rounding explains off; loss and gradients are not."""
    out = (Y + np.float32(off * 64 * 2.0**-23) * NOISE).astype(np.float32)
    return {A: call(X, out=out), LOSS: call(out, out=Z), BACK: back(Z, X), GRADIENT: {"weight": [Z]}}


def test_rounding_on_one_rank_is_no_cause_on_all(tmp_path: Path, probe: Any) -> None:
    for rank in (0, 1):
        record(tmp_path / "t" / f"rank{rank}", step(4.0 * rank))
        record(tmp_path / "g" / f"rank{rank}", step())
    runs = tmp_path / "t", tmp_path / "g"
    assert probe("compare", *runs, "-o", tmp_path / "o", "--fail-on", "suspect", "--jobs", "1") in (0, 1)
    found = read_answer(tmp_path / "o")
    assert found["verdict"] == "AGREE" and not found["causes"]
    assert "made differently" not in found["sentence"]
    assert len(found["notes"]) == 1


def test_a_cause_across_ranks_has_its_line_of_code(tmp_path: Path) -> None:
    """Also where the rank by itself names another one."""
    for rank in (0, 1):
        for side, size in (("t", 1e4), ("g", 0)):
            path = record(tmp_path / side / f"rank{rank}", step(size))
            stacks = {A: ["File train.py, line 7, in step, \n y = a(x)"]}
            (path.parent / "stack.json").write_text(json.dumps(stacks))
    plan = Plan(tmp_path / "t", tmp_path / "g", tmp_path / "o", "0", formats=("csv",), jobs=1)
    ranks = PlanExecution.open(plan, Manager())
    finished = list(ranks.run())
    for one in finished:
        assert one.report is not None and one.report.answer is not None
    finished = [
        replace(one, report=replace(one.report, answer=replace(one.report.answer, causes=()))) for one in finished
    ]
    (concluded,) = VerdictAnswerer().conclude(AllResults(plan, Manager(), ranks.pairing, finished))
    assert [cause.op for cause in concluded.answer.causes] == [A, A]
    assert concluded.answer.causes[0].where.startswith("File train.py, line 7, in step")
