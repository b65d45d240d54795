"""Calls of one run whose results reach later calls by ways that are not recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support.runs.answered import answered, call, causes, normal
from support.runs.comparing import compare
from support.runs.recording import recording
from torch import nn

from probe_core.model.plan import Plan
from probe_core.model.report import Report
from probe_core.plugins.manager import Manager

X = torch.linspace(-1, 2, 32).reshape(4, 8)


def drop_rows(values: torch.Tensor, factor: float) -> torch.Tensor:
    """Return two rows of the values, divided unless the factor is 1."""
    values = values if factor == 1 else values / factor
    torch.exp(X)
    return torch.stack([values[0], values[2]])


def record(path: Path, factor: float) -> Path:
    model = nn.Sequential(nn.Linear(8, 2))
    with recording(path, level="mix", task="statistics") as debugger:
        debugger.start(model)
        model(drop_rows(X, factor)).sum().backward()
        debugger.stop()
        debugger.step()
    return path


def compare_runs(directory: Path, target: Path, golden: Path) -> Report:
    paths = [next(path.rglob("dump.json")).parent for path in (target, golden)]
    (report,) = compare(Plan(*paths, directory / "o", "0", formats=("jsonl",)), Manager())
    return report


def test_unreceived_call_of_the_same_function_is_named(tmp_path: Path) -> None:
    torch.manual_seed(0)
    target = record(tmp_path / "t", 1)
    torch.manual_seed(0)
    golden = record(tmp_path / "g", 2)
    op, statement = causes(compare_runs(tmp_path, target, golden))[0]
    assert op == "Tensor.__truediv__.0.forward"
    assert statement.startswith("is called in the golden only, and precedes Torch.stack.0.forward in the same function")
    assert statement.endswith("receives values that differ, and no recorded call returned them")


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_call_that_permutes_values_is_named_if_statistics_do_not_show_it(tmp_path: Path, task: str) -> None:
    values, module = normal(64), "Module.positions.Net.forward.0"

    def calls(table: Any) -> dict[str, Any]:
        return {
            "Torch.cat.0.forward": call(table, table, out=table.repeat(2)),
            module: call(normal(4, seed=2), out=table[:7]),
            "Torch.exp.0.forward": call(table[:7], out=table[:7] * 2),
        }

    golden = {"Torch.flip.0.forward": call(values, out=values[::-1].copy()), **calls(values[::-1].copy())}
    op, statement = causes(answered(tmp_path, calls(values), golden, task))[0]
    assert op == "Torch.flip.0.forward"
    assert ("returns values in another order, which statistics do not show" in statement) is (task == "statistics")


def test_other_calls_of_one_run_are_no_suspects(tmp_path: Path) -> None:
    """The statement does not claim that nothing earlier explains the difference."""
    calls = {"Torch.exp.0.forward": call(normal(8), out=normal(8, seed=1))}
    other = {"Torch.exp.0.forward": call(normal(8, seed=2), out=normal(8, seed=3))}
    logged = {"Torch.mul.0.forward": call(normal(8, seed=4), 3, out=normal(8, seed=5))}
    separator = {"Torch.tanh.0.forward": call(normal(8, seed=6), out=normal(8, seed=7))}
    report = answered(tmp_path, {**logged, **separator, **calls}, {**separator, **other})
    assert causes(report)[0] == (
        "Torch.exp.0.forward",
        "receives values that differ, and no recorded call returned them",
    )
