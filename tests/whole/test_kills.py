"""Commands killed (SIGKILL) at many moments: what is there can be read, and the next run leaves nothing over."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.programs.preloaded import PreloadedPopen
from support.runs.precheck_runs import Started, standin_run, written
from support.runs.recorded import forward, tensor, write_run
from support.standins.standin_precheck import install

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and process groups")

LONG = 120.0
KILLS = [2, pytest.param(60, marks=pytest.mark.slow)]


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A directory for temporary files, short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="p") as home:
        yield Path(home)


def names(directory: Path) -> list[str]:
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())


def leftovers(directory: Path) -> list[str]:
    return [name for name in names(directory) if name.endswith((".part", ".lock"))]


# -- recording -------------------------------------------------------------------------------------

RECORD = """
    import os, sys, json, signal
    import torch
    from torch import nn
    from probe_pytorch.debugger import PrecisionDebugger

    for line in sys.stdin:
        path, store, task, steps = line.split()
        child = os.fork()
        if child:
            print(child, flush=True)
            print(os.waitpid(child, 0)[1], flush=True)
            continue
        torch.set_num_threads(1)
        with open(path + ".json", "w") as file:
            json.dump({"dump_path": path, "store": store, "task": task, "level": "mix"}, file)
        model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 4))
        debugger = PrecisionDebugger(path + ".json")
        for _ in range(int(steps)):
            for _ in range(2):
                debugger.start(model)
                model(torch.randn(4, 16)).square().sum().backward()
                debugger.stop()
            debugger.step()
        debugger._recorder.finish()
        os._exit(0)
"""


@pytest.fixture(scope="module")
def recorder() -> Iterator[subprocess.Popen[str]]:
    """A process that has imported torch, and forks one that records for each line it is told."""
    process = PreloadedPopen(
        [sys.executable, "-c", textwrap.dedent(RECORD)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    yield process
    process.communicate(timeout=LONG)


def record(process: subprocess.Popen[str], path: Path, kind: tuple[str, str], steps: int) -> int:
    assert process.stdin is not None and process.stdout is not None
    print(path, *kind, steps, file=process.stdin, flush=True)
    return int(process.stdout.readline())


def status(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


@pytest.mark.parametrize("kills", KILLS)
@pytest.mark.parametrize("kind", [("packed", "statistics"), ("packed", "tensor"), ("files", "tensor")])
def test_a_recording(
    kind: tuple[str, str], kills: int, recorder: subprocess.Popen[str], tmp_path: Path, probe: Any
) -> None:
    run, moments = tmp_path / "run", random.Random(kills)
    for _ in range(kills):
        child = record(recorder, run, kind, 1_000_000)
        until = time.monotonic() + 10
        while not (run / ".rank.lock").exists() and time.monotonic() < until:
            time.sleep(0.001)
        time.sleep(moments.uniform(0, 0.4))
        os.kill(child, signal.SIGKILL)
        assert os.WTERMSIG(status(recorder)) == signal.SIGKILL
        steps = [path for path in run.glob("step*") if any(path.rglob("dump.json"))]
        code = probe("compare", run, run, "-o", tmp_path / "out", "--format", "csv")
        assert "Traceback" not in probe.err and "could not be read" not in probe.err + probe.out
        if steps:
            assert code == 0 or "There is no dump.json" in probe.err, probe.err
        else:
            assert code == 2 and len(re.findall("^error", probe.err, re.M)) == 1, probe.err
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
    record(recorder, run, kind, 2)
    assert status(recorder) == 0
    assert sorted(path.name for path in run.iterdir()) == ["step0", "step1"] and not leftovers(run)
    fresh = tmp_path / "fresh"
    record(recorder, fresh, kind, 2)
    assert status(recorder) == 0 and names(fresh) == names(run)


# -- comparing -------------------------------------------------------------------------------------


class Command:
    """``probe compare`` with its workers in a process group of their own."""

    def __init__(self, home: Path, temporary: Path, *arguments: str) -> None:
        for side in ("t", "g"):
            for rank in range(3):
                calls = {
                    f"Torch.exp.{n}.forward": forward(tensor(), output=[tensor(value=float(n))]) for n in range(300)
                }
                write_run(home / side / f"rank{rank}", calls)
        self.home, self.out, self._temporary, self._arguments = home, home / "out", temporary, arguments

    def start(self, *more: str, out: Path | None = None) -> subprocess.Popen[str]:
        return PreloadedPopen(
            [sys.executable, "-m", "probe_core.cli", "compare", *self._arguments, *more, "-o", out or self.out,
             "--format", "csv,jsonl"], cwd=self.home, start_new_session=True, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "TMPDIR": str(self._temporary)},
        )  # fmt: skip

    def finish(self, *more: str, out: Path | None = None) -> float:
        """Let it end; how long that took."""
        begun = time.monotonic()
        process = self.start(*more, out=out)
        _, err = process.communicate(timeout=LONG)
        assert process.returncode == 0 and "Traceback" not in err, err
        return time.monotonic() - begun

    def kill(self, after: float, *more: str) -> None:
        process = self.start(*more)
        time.sleep(after)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=LONG)


def contents(out: Path) -> dict[str, set[bytes]]:
    """Return the contents of finished files by their names without the time; a file may be there several times."""
    found: dict[str, set[bytes]] = {}
    for path in out.iterdir() if out.is_dir() else ():
        if not path.name.startswith((".", "compare_progress_")):
            found.setdefault(re.sub(r"\d{14}", "T", path.name), set()).add(path.read_bytes())
    return found


@pytest.mark.parametrize("kills", KILLS)
@pytest.mark.parametrize("way", ["one rank", "many ranks"])
def test_a_comparison(way: str, kills: int, tmp_path: Path, temporary: Path) -> None:
    several = way == "many ranks"
    command = Command(tmp_path, temporary, *(("t", "g", "-j", "2") if several else ("t/rank0", "g/rank0")))
    whole, moments = tmp_path / "whole", random.Random(kills)
    took = command.finish(out=whole)
    more = ("--resume",) if several else ()
    for _ in range(kills):
        command.kill(moments.uniform(0.3, 1.05) * took, *more)
        found = contents(command.out)
        assert all(found[name] == contents(whole)[name] for name in found if "summary" not in name), way
    while claims := [name for name in names(command.out) if name.endswith(".claim")]:
        if max(claims)[1:15] < time.strftime("%Y%m%d%H%M%S"):
            break
        time.sleep(0.1)  # what runs in the same second leaves the claim alone, which may be another's
    command.finish(*more)
    assert contents(command.out).keys() == contents(whole).keys()
    assert all(data == contents(whole)[name] for name, data in contents(command.out).items())
    assert not [name for name in names(command.out) if name.startswith((".", "compare_progress_"))]
    assert list(temporary.iterdir()) == []


# -- the pre-check ---------------------------------------------------------------------------------

CALLS = [f"Functional.{deed}.{i}" for i in range(6) for deed in ("slow", "far")]


@pytest.mark.parametrize("kills", KILLS)
@pytest.mark.parametrize("command", ["run_ut", "multi_run_ut"])
def test_a_precheck(command: str, kills: int, tmp_path: Path, temporary: Path) -> None:
    """Each kill is followed by a run that goes on with the file, where one was begun."""
    site, dump = install(tmp_path / "site"), standin_run(tmp_path / "run", *CALLS, with_backward=True)
    base = (command, *(("-n", "2") if command == "multi_run_ut" else ()), "-api_info", dump)
    variables = {"TMPDIR": str(temporary)}
    begun = time.monotonic()
    code, _, err = Started(site, *base, "-o", tmp_path / "whole", **variables).wait()
    assert code == 0, err
    took, moments, out = time.monotonic() - begun, random.Random(kills), tmp_path / "out"
    for _ in range(kills):
        started = Started(site, *base, *goes_on(out), **variables)
        time.sleep(moments.uniform(0.3, 1.0) * took)
        if moments.random() < 0.5:
            os.killpg(started.process.pid, signal.SIGKILL)
        started.kill()
        time.sleep(0.1)  # workers end by themselves when their parent does
    code, _, err = Started(site, *base, *goes_on(out), **variables).wait()
    assert code == 0 and "Traceback" not in err, err
    assert written(out).data == written(tmp_path / "whole").data
    end = time.monotonic() + 10
    while any(temporary.iterdir()) and time.monotonic() < end:
        time.sleep(0.05)
    assert list(temporary.iterdir()) == []


def goes_on(out: Path) -> tuple[str, ...]:
    """Go on with the result that was begun in ``out``; one without its header is begun anew."""
    results = sorted(out.glob("accuracy_checking_result_*.csv")) if out.is_dir() else []
    for path in results:
        details = path.with_name(path.name.replace("result", "details"))
        if details.exists() and path.stat().st_size and details.stat().st_size:
            return ("-csv_path", str(path))
        path.unlink()
        details.unlink(missing_ok=True)
    return ("-o", str(out))
