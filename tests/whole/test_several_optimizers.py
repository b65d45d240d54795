"""Faults and changes without effect in a script with several models and optimizers, from recording to verdict."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

SCRIPT = """
import torch
from torch import nn
from torch.nn import functional

torch.manual_seed(0)


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.leave = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.leave(torch.tanh(self.enter(x)))


actor, critic, target_actor = Actor(), nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1)), Actor()
target_actor.load_state_dict(actor.state_dict())
actor_optimizer = torch.optim.Adam(actor.parameters(), lr=1e-2)
critic_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-2)
for step in range(3):
    states, rewards, dones = torch.randn(16, 4), torch.randn(16, 1), torch.rand(16, 1).round()
    with torch.no_grad():
        following = critic(torch.cat([states, target_actor(states)], 1)).view(-1)
        goal = rewards.flatten() + (1 - dones.flatten()) * 0.9 * following
    scores = critic(torch.cat([states, actor(states).detach()], 1)).view(-1)
    loss = functional.mse_loss(scores, goal)
    total = loss + 0.01 * critic[0].weight.pow(2).sum()
    critic_optimizer.zero_grad()
    total.backward()
    critic_optimizer.step()
    actor_loss = -critic(torch.cat([states, actor(states)], 1)).mean()
    actor_optimizer.zero_grad()
    actor_loss.backward()
    actor_optimizer.step()
    for ours, theirs in zip(actor.parameters(), target_actor.parameters()):
        theirs.data.copy_(0.1 * ours.data + 0.9 * theirs.data)
"""

UPDATE = SCRIPT[SCRIPT.index("    for ours, theirs") :]


def record(directory: Path, name: str, script: str) -> Path:
    """Run a script with the recorder, and return the directory of the run."""
    path = directory / f"{name}.py"
    path.write_text(script)
    command = [sys.executable, "-m", "probe_core.cli", "run", "-o", name, path.name]
    subprocess.run(command, cwd=directory, check=True, capture_output=True)
    return directory / name


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of the script without a change."""
    return record(tmp_path_factory.mktemp("golden"), "golden", SCRIPT)


@pytest.fixture
def compare(golden: Path, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """A function that runs the script with changes, and returns the answer of a comparison with the golden."""

    def run(*changes: tuple[str, str]) -> dict[str, Any]:
        script = SCRIPT
        for old, new in changes:
            assert script.count(old) == 1 or old == "self.leave"
            script = script.replace(old, new)
        target = record(tmp_path, "target", script)
        command = [sys.executable, "-m", "probe_core.cli", "compare", target, golden, "-o", "out", "--format", "csv"]
        subprocess.run(command, cwd=tmp_path, check=False, capture_output=True)
        (file,) = (tmp_path / "out").glob("answer_*.json")
        answer: dict[str, Any] = json.loads(file.read_text())
        return answer

    return run


def test_gradients_that_the_wrong_optimizer_clears(compare: Callable[..., dict[str, Any]]) -> None:
    answer = compare(("    actor_optimizer.zero_grad()\n", "    critic_optimizer.zero_grad()\n"))
    cause = answer["causes"][0]
    assert answer["verdict"] == "DIVERGED" and cause["op"].startswith("phase.accumulated")
    assert "adds the gradients of this backward pass to earlier ones" in answer["sentence"]


def test_an_update_before_the_optimizer_instead_of_after_it(compare: Callable[..., dict[str, Any]]) -> None:
    answer = compare((UPDATE, ""), ("    actor_optimizer.zero_grad()\n", f"{UPDATE}    actor_optimizer.zero_grad()\n"))
    cause = answer["causes"][0]
    assert answer["verdict"] == "DIVERGED" and "theirs.data.copy_" in cause["where"]


def test_a_shape_that_a_removed_call_changed(compare: Callable[..., dict[str, Any]]) -> None:
    answer = compare(("dones.flatten()", "dones"))
    cause = answer["causes"][0]
    assert answer["verdict"] == "DIVERGED" and "goal =" in cause["where"]
    assert "Tensor.flatten" in answer["sentence"] and "golden only" in answer["sentence"]


def test_a_backward_pass_from_another_loss(compare: Callable[..., dict[str, Any]]) -> None:
    answer = compare(("total.backward()", "loss.backward()"))
    assert answer["verdict"] == "DIVERGED" and answer["causes"][0]["op"] == "phase.loss.0"
    assert "the backward pass starts from another value" in answer["sentence"]


def test_other_names_of_parameters_are_no_difference(compare: Callable[..., dict[str, Any]]) -> None:
    assert compare(("self.leave", "self.head"))["verdict"] == "AGREE"


def test_an_exchange_without_effect_is_no_difference(compare: Callable[..., dict[str, Any]]) -> None:
    """The product is scaled by a constant first."""
    factor = "(1 - dones.flatten()) * 0.9 * following"
    assert compare((factor, "0.9 * (1 - dones.flatten()) * following"))["verdict"] == "AGREE"
