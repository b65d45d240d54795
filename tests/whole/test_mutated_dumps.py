"""Damaged runs end with an answer or with a mistake explained, never with a traceback."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from support import DATA, TESTS

SHORT, LONG = 100, 4000


@pytest.fixture
def runs() -> Path:
    return DATA / "runs-8.3.3.zip"


@pytest.mark.parametrize("count", [SHORT, pytest.param(LONG, marks=pytest.mark.slow)])
def test_no_damage_to_a_dump_is_a_defect(runs: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.syspath_prepend(str(TESTS))
    mutate_dumps = importlib.import_module("mutate_dumps")
    outcomes = mutate_dumps.run_cases(runs, 0, range(count), jobs=2)
    failed = [outcome for outcome in outcomes if outcome.problems]
    assert len(outcomes) == count
    assert not failed, f"{len(failed)} of {count} failed\n" + "\n".join(map(str, failed[:10]))
