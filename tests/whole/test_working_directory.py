"""No process of a ``probe`` command imports a module from the working directory, which may be a stranger's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.runs.answered import call, normal, record
from support.runs.explained import recorded_program

PAYLOAD = """
import os as _os, sys as _sys
_here = _os.path.dirname(_os.path.abspath(__file__))
with open(_os.path.join(_here, "imported.log"), "a") as _log:
    _log.write(f"{__name__} in {_sys.orig_argv}\\n")
_sys.path[:] = [_path for _path in _sys.path if _os.path.abspath(_path or ".") != _here]
del _sys.modules[__name__]
__import__(__name__)
"""
"""A module that leaves a trace and passes the import on to the real module, so that nothing else changes."""

STANDARD = [
    "json",
    "signal",
    "socket",
    "struct",
    "random",
    "pickle",
    "selectors",
    "tempfile",
    "types",
    "threading",
    "multiprocessing_extra",
]
THIRD_PARTY = [
    "numpy",
    "torch",
    "yaml",
    "click",
    "pluggy",
    "probe_core",
    "probe_pytorch",
    "probe_precheck",
    "ml_dtypes",
    "sitecustomize",
]
METHODS = ("forkserver", "spawn")
SCRIPT = Path(sys.executable).parent / "probe"


@pytest.fixture(scope="module")
def strange_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of two ranks whose directory also holds modules with well-known names."""
    directory = tmp_path_factory.mktemp("stranger")
    x = normal(4, 4)
    calls = {"Functional.relu.0.forward": call(x, out=x)}
    for side in ("target", "golden"):
        for rank in ("rank0", "rank1"):
            record(directory / side / "step0" / rank, calls, task="tensor")
    torch = pytest.importorskip("torch")
    recorded_program(directory / "torch_run", lambda: torch.nn.functional.gelu(torch.ones(4, 4)))
    for name in (*STANDARD, *THIRD_PARTY):
        (directory / f"{name}.py").write_text(PAYLOAD)
    return directory


@pytest.fixture
def probe_in(strange_directory: Path, tmp_path: Path) -> Callable[..., str]:
    """Return a function that runs probe in the strange directory and returns the trace of its modules."""
    trace = strange_directory / "imported.log"
    trace.unlink(missing_ok=True)

    def run(method: str, *arguments: str) -> str:
        long_name = tmp_path / ("t" * 80)  # a temporary directory too long for the socket of a fork server
        long_name.mkdir(exist_ok=True)
        environment = {**os.environ, "TMPDIR": str(long_name if method == "spawn" else "/tmp")}
        environment.pop("PYTHONPATH", None)
        done = subprocess.run(
            [SCRIPT, *arguments], cwd=strange_directory, env=environment, capture_output=True, text=True
        )
        assert done.returncode in (0, 1), done.stdout + done.stderr
        return trace.read_text() if trace.exists() else ""

    return run


@pytest.mark.parametrize("method", METHODS)
def test_compare_of_several_ranks_imports_nothing_from_there(
    method: str, probe_in: Callable[..., str], tmp_path: Path
) -> None:
    arguments = (
        "compare",
        "target",
        "golden",
        "-j",
        "2",
        "--executor",
        "processes",
        "-o",
        str(tmp_path / "out"),
    )
    assert probe_in(method, *arguments) == ""


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("command", [("run-ut", "-d", "cpu", "-i"), ("explain",)], ids=lambda command: command[0])
def test_commands_that_compute_again_import_nothing_from_there(
    command: tuple[str, ...], method: str, probe_in: Callable[..., str], tmp_path: Path
) -> None:
    assert probe_in(method, *command, "torch_run/step0/rank/dump.json", "-o", str(tmp_path / "out")) == ""
