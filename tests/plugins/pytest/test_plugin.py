"""The fixture ``probe_golden`` in tests that pytest runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from _pytest.pytester import SysModulesSnapshot

pytest_plugins = ["pytester"]

BLOCK = """
import torch
from torch import nn


class Block(nn.Module):
    scale = 1.0

    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return x + self.scale * self.down(torch.relu(self.up(self.norm(x))))
"""
TEST = """
import torch
from block import Block


def test_block(probe_golden):
    model = Block()
    with probe_golden.record(model):
        model(torch.randn(4, 8)).sum().backward()
"""
GOLDEN = Path("goldens/test_it/test_block.json")
OFFLINE = ("-p", "no:cacheprovider", "-p", "no:xdist")


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A directory with a model and a test of it."""
    pytester.makepyfile(block=BLOCK, test_it=TEST)
    monkeypatch.setattr(SysModulesSnapshot, "restore", lambda _: None)  # torch cannot be imported twice
    return pytester


def run(project: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Run pytest in the project, whose modules are imported anew."""
    for name in ("block", "test_it"):
        sys.modules.pop(name, None)
    return project.runpytest_inprocess(*OFFLINE, *arguments)


def test_missing_golden_fails_with_the_command_that_writes_it(project: pytest.Pytester) -> None:
    result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([
        "The golden file goldens/test_it/test_block.json is missing.",
        "Write it, and commit it: pytest test_it.py::test_block --probe-update",
    ])  # fmt: skip


def test_golden_is_written_with_the_option_and_passes_from_then_on(project: pytest.Pytester) -> None:
    written = run(project, "--probe-update")
    written.assert_outcomes(passed=1)
    written.stdout.fnmatch_lines(["probe: 1 test: golden files written"])
    content = (project.path / GOLDEN).read_bytes()
    run(project).assert_outcomes(passed=1)
    run(project, "--probe-update").assert_outcomes(passed=1)
    assert (project.path / GOLDEN).read_bytes() == content


def test_failure_names_verdict_line_and_commands(project: pytest.Pytester) -> None:
    run(project, "--probe-update").assert_outcomes(passed=1)
    project.makepyfile(block=BLOCK.replace("scale = 1.0", "scale = 1.5"))
    result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([
        "The values differ from the golden goldens/test_it/test_block.json (cpu, torch *).",
        "DIVERGED: Tensor.__mul__.0.forward was called with a different argument *1.5 against 1.0*",
        "*block.py, line 13, in forward, return x + self.scale *",
        "Show more: probe compare *",
        "If the change is intended, write the golden anew: pytest test_it.py::test_block --probe-update",
    ])  # fmt: skip
