"""Notes on blocks of calls that only one run makes, while all compared values agree."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.runs.comparing import compare
from support.runs.recording import recording

from probe_core.model.answers import Outcome
from probe_core.model.plan import Plan
from probe_core.plugins.manager import Manager


def average(values: list[torch.Tensor]) -> None:
    for value in values:
        value.data = torch.mul(value, 0.5)


def record(path: Path, count: int) -> Path:
    model = torch.nn.Linear(4, 4)
    torch.nn.init.ones_(model.weight)
    torch.nn.init.ones_(model.bias)
    values = [torch.full((4,), float(number)) for number in range(count)]
    with recording(path, level="mix", task="statistics") as debugger:
        debugger.start(model)
        model(torch.ones(2, 4)).sum().backward()
        for number in range(100):
            torch.exp(torch.full((4,), number / 100))
        average(values)
        debugger.stop()
        debugger.step()
    return next(path.rglob("dump.json")).parent


@pytest.mark.parametrize(("count", "is_named"), [(60, True), (5, False)])
def test_line_that_makes_many_calls_in_one_run_is_named(tmp_path: Path, count: int, is_named: bool) -> None:
    runs = record(tmp_path / "t", 0), record(tmp_path / "g", count)
    (report,) = compare(Plan(*runs, tmp_path / "o", "0", formats=("jsonl",)), Manager())
    assert report.answer is not None and report.answer.outcome is Outcome.AGREE
    texts = [note.text for note in report.answer.notes]
    expected = (
        "test_one_sided_blocks.py, line 19, in average makes 60 calls in the golden only, the first is Torch.mul.0"
    )
    assert any(text.startswith(expected) for text in texts) is is_named
