"""The recording kit: what it loads, and what it offers to authors of recorders."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from probe_pytorch.debugger import PrecisionDebugger
from probe_pytorch.reader import PyTorchReader
from probe_pytorch.values import TorchCollector
from probe_recording.testing import RecorderConformance

COMMAND_LINE = ("click", "pluggy", "probe_core.cli", "probe_core.plugins.manager")

IMPORTING = "from probe_pytorch import PrecisionDebugger, seed_all"
RECORDING = """
from probe_pytorch import PrecisionDebugger
import torch
model = torch.nn.Sequential(torch.nn.Linear(2, 2))
debugger = PrecisionDebugger(dump_path={path!r}, task="tensor", level="mix", step=[0])
for step in range(2):
    debugger.start(model=model)
    model(torch.ones(2, 2)).sum().backward()
    debugger.stop()
    debugger.step()
"""


@pytest.mark.parametrize("program", ["import probe_pytorch", "import probe_recording", IMPORTING + RECORDING])
def test_recording_loads_no_command_line(program: str, tmp_path: Path) -> None:
    """A training pays neither for click nor for the plugins, and its messages need neither."""
    code = f"{program.format(path=str(tmp_path))}\nimport sys\nassert not {COMMAND_LINE} & sys.modules.keys()"
    code = code.replace(str(COMMAND_LINE), str(set(COMMAND_LINE)))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    if RECORDING in program:
        assert (tmp_path / "step0/rank/dump.json").is_file()
        assert done.stderr == "probe: step 0 was the last step to record; later steps are not recorded.\n"


# -- the conformance of recorders --------------------------------------------------------------------


X, WEIGHT = np.linspace(-3, 3, 12).reshape(3, 4), np.linspace(-1, 1, 8).reshape(2, 4)
ONES = torch.ones(3, 2, dtype=torch.float64)


class TestPyTorch(RecorderConformance):
    debugger = PrecisionDebugger
    reader = PyTorchReader
    names = (
        "Functional.linear.0.forward",
        "Torch.tanh.0.forward",
        "Torch.tanh.0.backward",
        "Functional.linear.0.backward",
        "Tensor.numpy.0.forward",
        "Tensor.numpy.1.forward",
    )

    def program(self) -> list[np.ndarray[Any, Any]]:
        x, weight = torch.from_numpy(X.copy()), torch.from_numpy(WEIGHT.copy())
        x.requires_grad = True
        y = torch.tanh(torch.nn.functional.linear(x, weight))
        (gradient,) = torch.autograd.grad(y, x, ONES)
        return [y.detach().numpy(), gradient.numpy()]


class Changing(TorchCollector):
    """Writes into what it is given."""

    def tensor(self, tensor: Any, name: str, save: Any) -> Any:
        leaf = super().tensor(tensor, name, save)
        tensor.data.add_(1)
        return leaf


class Wrong(TorchCollector):
    """Notes a wrong maximum."""

    def tensor(self, tensor: Any, name: str, save: Any) -> Any:
        leaf = self.leaf(tensor, name, save)
        leaf.statistics = (9.0, *leaf.statistics[1:])
        return leaf


class Unlike(TorchCollector):
    """Notes no statistics where there are no data."""

    def encode_groups(self, *groups: Any) -> None:
        return None

    def tensor(self, tensor: Any, name: str, save: Any) -> Any:
        leaf = self.leaf(tensor, name, save)
        leaf.statistics = leaf.statistics if save else (None,) * 4
        return leaf


COUNTS = itertools.count(1)
BROKEN: dict[str, tuple[str, str, Any]] = {
    "test_results_are_unchanged": ("probe_pytorch.session.TorchCollector", "results differ", Changing),
    "test_data_are_what_the_record_says": ("probe_pytorch.session.TorchCollector", "Max of its data", Wrong),
    "test_statistics_without_data": ("probe_pytorch.session.TorchCollector", "other statistics", Unlike),
    "test_the_steps_that_are_asked_for": (
        "probe_recording.recorder.recorder.Recorder._is_step_selected", "steps 0, 2 and 3", lambda self: True),
    "test_the_ranks_that_are_asked_for": (
        "probe_recording.recorder.recorder.Recorder.is_selected", "rank 1", lambda self, ranks: True),
    "test_the_names_of_records": ("probe_recording.sessions.session.Session.number", "step 0", lambda self, prefix: next(COUNTS)),
    "test_the_filter_of_names": ("probe_recording.settings.filters.Filter.is_api_selected", "was selected", lambda self, name: True),
    "test_the_run_opens": ("probe_recording.sites.StackTable.text", "call stack", lambda self: "{}"),
}  # fmt: skip


def test_each_check_has_a_broken_recorder() -> None:
    checks = {name for name in dir(RecorderConformance) if name.startswith("test_")}
    assert checks == BROKEN.keys()


@pytest.mark.parametrize("check", BROKEN)
def test_a_broken_recorder_fails(check: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each check refuses a recorder that breaks what it is about, in words that say what is wrong."""
    place, words, broken = BROKEN[check]
    monkeypatch.setattr(place, broken)
    run: Callable[[Path], None] = getattr(TestPyTorch(), check)
    with pytest.raises(AssertionError, match=words):
        run(tmp_path)
