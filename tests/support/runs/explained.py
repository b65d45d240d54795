"""Runs that ``probe explain`` is tried on: small nets, recorded as they are or with a wrong kernel."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from probe_precheck.api import RunnerOptions
from probe_precheck.calls import RecordedCalls, require_arguments
from probe_precheck.replaying import Replay
from probe_precheck.settings import Settings
from probe_pytorch.precheck.runner import PyTorchRunner

from probe_core.flow.opening import open_run
from probe_core.plugins.manager import Manager
from support import TESTS
from support.programs import preloaded
from support.runs.recording import recording

KERNELS = TESTS / "support" / "programs" / "kernels.py"


def recorded_net(path: Path, net: str, dtype: str, fault: str = "") -> Path:
    """Record a training step of a small net in a process of its own; the directory of the step."""
    command = [sys.executable, "-m", "probe_core.cli", "run", "-o", path, "--task", "tensor", "--step", "0"]
    done = preloaded.run(
        [*map(str, command), str(KERNELS), net, dtype, *([fault] if fault else [])],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return path / "step0"


def recorded_program(path: Path, program: Callable[[], object]) -> Path:
    """Record a function with tensors; the path of its ``dump.json``."""
    with recording(path, task="tensor", level="L1", step=[0], store="files") as found:
        found.start()
        program()
        found.stop()
    return found.directory() / "dump.json"


def explanation(directory: Path) -> dict[str, Any]:
    """Read the only file of an explanation in a directory."""
    (file,) = directory.glob("explain_*.json")
    found: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return found


def replayed(dump: Path, name: str, *, moved: bool = False) -> Replay:
    """Compute a call of a run again, in this process."""
    run = open_run(Manager(), dump)
    try:
        calls = RecordedCalls(require_arguments(run))
        runner = PyTorchRunner()
        runner.open(RunnerOptions(dump, device="cpu"))
        return runner.replay(calls.get_call(calls.names.index(name), Settings()), moved=moved)
    finally:
        run.close()
