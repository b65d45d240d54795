"""Damaged runs end with an answer or with a mistake explained, never with a traceback."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
COUNT = 2000


@pytest.fixture
def runs() -> Path:
    return TESTS / "data" / "runs-8.3.3.zip"


@pytest.mark.slow
def test_no_damage_to_a_dump_is_a_defect(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TESTS))
    mutate_dumps = importlib.import_module("mutate_dumps")
    outcomes = mutate_dumps.run_cases(runs, 0, range(COUNT), jobs=2)
    failed = [outcome for outcome in outcomes if outcome.problems]
    assert len(outcomes) == COUNT
    assert not failed, f"{len(failed)} of {COUNT} failed\n" + "\n".join(map(str, failed[:10]))
