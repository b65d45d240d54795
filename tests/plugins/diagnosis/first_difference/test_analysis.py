"""The causes that ``diff_analyze`` contains."""

from __future__ import annotations

from typing import Any

import pytest
from probe_diagnosis.difference.reasons import CauseKind
from probe_diagnosis.first_difference import analysis

from probe_core.model import Reason
from probe_core.model.answers import Finding


def list_causes(codes: list[CauseKind], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the calls that are selected from causes with these codes; the last cause is on a rank that agrees."""
    causes = [Finding(f"op{i}", "", Reason(code.value, ""), rank=i) for i, code in enumerate(codes)]
    unused: Any = None
    monkeypatch.setattr(analysis, "find_step_causes", lambda *_: causes)
    monkeypatch.setattr(analysis, "find_agreeing_ranks", lambda *_: {len(codes) - 1})
    return [cause.op for cause in analysis._select_decisive_causes(unused, "")]


def test_calls_that_are_only_called_differently_are_left_out_after_the_first_cause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    codes = [CauseKind.GRADIENT, CauseKind.ALTERED_CALL, CauseKind.GRADIENT, CauseKind.GRADIENT]
    assert list_causes(codes, monkeypatch) == ["op0", "op2"]


def test_the_first_cause_stays_even_if_it_is_only_called_differently(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = [CauseKind.ALTERED_CALL, CauseKind.ALTERED_CALL, CauseKind.GRADIENT]
    assert list_causes(codes, monkeypatch) == ["op0"]
