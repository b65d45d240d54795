"""Programs that compute the same by other calls agree, in tensors and in statistics."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from faults.cases import Case
from faults.further import FURTHER
from faults.record import TASKS, record
from faults.score import score

CONTROLS = [case for case in FURTHER.cases if case.is_control]


@pytest.mark.parametrize("case", CONTROLS, ids=lambda case: case.name)
def test_another_way_agrees(case: Case, tmp_path: Path) -> None:
    """Gradients that are zero in theory, micro batches and layers written out by hand are no cause."""
    record(case, tmp_path)
    for found in score(case, tmp_path):
        assert not found.causes, found.causes
        assert found.verdict == "AGREE"
    assert len(TASKS) == 2
