"""A comparison closes both runs if it cannot be opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from probe_core.errors import UserError
from probe_core.flow import comparison
from probe_core.flow.comparison import RunComparison
from probe_core.model import Mode
from probe_core.model.plan import Plan
from probe_core.model.run import Header
from probe_core.plugins.manager import Manager

PLAN = Plan(Path("target"), Path("golden"), Path("out"), "20260101000000")


class RecordedRun:
    def __init__(self) -> None:
        self.mode, self.is_debug, self.header = Mode.TENSOR, False, Header("tensor", "L1", "pytorch")
        self.is_open = True

    def close(self) -> None:
        self.is_open = False


@pytest.mark.parametrize("step", ["select_records", "select_contributions", "RowEvaluator", "MatchedRuns.match"])
def test_both_runs_are_closed_if_a_step_of_opening_fails(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = RecordedRun(), RecordedRun()

    def refuse(*_: Any, **__: Any) -> None:
        raise UserError("It fails.", "Correct it.")

    monkeypatch.setattr(comparison, "open_runs", lambda *_: runs)
    monkeypatch.setattr(comparison, "select_records", lambda manager, target, golden: (target, golden, []))
    monkeypatch.setattr(comparison, "select_contributions", lambda *_, **__: None)
    monkeypatch.setattr(comparison, "RowEvaluator", lambda *_: None)
    monkeypatch.setattr(f"{comparison.__name__}.{step}", refuse)
    with pytest.raises(UserError, match="It fails"):
        RunComparison.open(PLAN, Manager([], []), Path("target"), Path("golden"))
    assert not any(run.is_open for run in runs)
