"""Programs that compute the same by other calls agree, in tensors and in statistics."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

pytest.importorskip("torch")

from faults.cases import Case
from faults.further import FURTHER
from faults.record import TASKS, record
from faults.score import score
from support.sampling import sampled

CONTROLS = {case.name: case for case in FURTHER.cases if case.is_control}
OFTEN = {
    ("image-optimizer", "statistics"),  # gradients that are zero in theory
    ("language-micro", "tensor"),  # micro batches
    ("sound-loop", "statistics"),  # a layer written out by hand
    ("sound-loop", "tensor"),
}
"""One of each kind of control, which always run."""


@pytest.mark.parametrize("name, task", sampled(itertools.product(CONTROLS, TASKS), 0, OFTEN.__contains__))
def test_another_way_agrees(name: str, task: str, tmp_path: Path) -> None:
    """Gradients that are zero in theory, micro batches and layers written out by hand are no cause."""
    case: Case = CONTROLS[name]
    record(case, tmp_path, [task])
    (found,) = score(case, tmp_path, [task])
    assert not found.causes, found.causes
    assert found.verdict == "AGREE"


def test_the_kinds_are_there() -> None:
    assert set(itertools.product(CONTROLS, TASKS)) > OFTEN and len(TASKS) == 2
