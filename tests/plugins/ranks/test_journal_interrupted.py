"""Comparisons that are killed or interrupted midway, then resumed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.programs.interrupts import let_interrupts_in
from support.programs.preloaded import PreloadedPopen
from support.runs.recorded import forward, tensor, write_run
from support.runs.resumed import (
    GOOD,
    _stamps,  # noqa: F401
    files,
    kept,
    marks,
    record,
)

HELD = 777
"""A value over which the metric of these tests waits while a file is there."""
PLUGIN = f"""
import os, pathlib, time
from probe_core.plugins.hookspecs import hookimpl
from probe_core.model import Measurement
from probe_core.plugins.specs import MetricSpec, Needs, ReaderSpec

class SlowReader:
    framework = "slow"

    def sniff(self, path):
        hold = pathlib.Path(os.environ["PROBE_TEST_HOLD"])
        while hold.exists() and path.with_name("slow").exists():
            hold.with_name("reached").touch()
            time.sleep(0.02)
        return 0

class Held:
    def measure(self, pair):
        if pair.pair.target.value.statistics.max == {HELD}:
            hold = pathlib.Path(os.environ["PROBE_TEST_HOLD"])
            while hold.exists():
                hold.with_name("reached").touch()
                time.sleep(0.02)
        return [Measurement(1.0)]

@hookimpl
def probe_metrics():
    return [MetricSpec("held", "waits", "probe_held:Held", ("Held",), Needs.STATISTICS)]

@hookimpl
def probe_readers():
    return [ReaderSpec("slow", "waits", "probe_held:SlowReader", "slow")]
"""
# -- killed and interrupted ------------------------------------------------------------------------


class Command:
    """``probe compare`` in a process group of its own, with a metric that waits while it is held."""

    def __init__(self, home: Path) -> None:
        self.hold = home / "hold/file"
        self.hold.parent.mkdir()
        self.hold.touch()
        self.out = home / "o"
        self._site = home / "site"
        info = self._site / "probe_held-1.0.dist-info"
        info.mkdir(parents=True)
        (self._site / "probe_held.py").write_text(PLUGIN)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: probe-held\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[probe]\nheld = probe_held\n")
        self._processes: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str | Path) -> subprocess.Popen[str]:
        process = PreloadedPopen(
            [sys.executable, "-m", "probe_core.cli", "compare", *map(str, arguments), "-o", str(self.out),
             "--metric", "held", "--format", "csv,jsonl"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            preexec_fn=let_interrupts_in,
            env={**os.environ, "PYTHONPATH": str(self._site), "PROBE_TEST_HOLD": str(self.hold)},
        )  # fmt: skip
        self._processes.append(process)
        return process

    def wait_until(self, finished: int, *, held: bool = True) -> None:
        """Until so many ranks are finished, and one is held."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            found = [path.read_bytes().count(b"\n") - 1 for path in self.out.glob("compare_progress_*.jsonl")]
            if found and max(found) >= finished and (not held or self.hold.with_name("reached").exists()):
                return
            time.sleep(0.01)
        raise AssertionError("it did not come so far")

    def release(self) -> None:
        self.hold.unlink(missing_ok=True)

    def close(self) -> None:
        self.release()
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate(timeout=20)


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    made = Command(tmp_path)
    yield made
    made.close()


@pytest.fixture
def held(tmp_path: Path) -> tuple[Path, Path]:
    """Two runs of five ranks, of which rank 2 is held by the metric."""
    target, golden = record(tmp_path / "target", range(5), off=[1]), record(tmp_path / "golden", range(5))
    write_run(target / "rank2", {**GOOD, "Torch.exp.2.forward": forward(tensor(value=HELD))})
    return target, golden


def visible(out: Path) -> dict[str, bytes]:
    return {name: data for name, data in files(out).items() if not name.startswith(".")}


@pytest.mark.parametrize(
    "way, finished",
    [(["-j", "1"], 2), (["-j", "2"], 4), (["--executor", "threads", "-j", "2"], 4), (["--executor", "processes", "-j", "6"], 2)],
)  # fmt: skip
def test_killed_midway_and_taken_up(way: list[str], finished: int, command: Command, held: Any) -> None:
    process = command.start(*held, *way)
    command.wait_until(finished)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)
    before = marks(command.out, "*_rank[0134]_*")
    assert len({name for name in before if name.startswith("compare_result")}) == 2 * finished
    command.release()

    again = command.start(*held, *way, "--resume")
    out, err = again.communicate(timeout=60)
    assert again.returncode == 0 and "Traceback" not in err, err
    assert kept(out) == finished
    after = marks(command.out, "*_rank*")
    assert before.items() <= after.items(), "what was finished is not written again"
    taken_up = visible(command.out)
    shutil.rmtree(command.out)
    assert command.start(*held, *way).wait(60) == 0
    assert taken_up == files(command.out)


def test_taken_up_nothing_half_written_is_left(command: Command, held: Any) -> None:
    process = command.start(*held, "-j", "2")
    command.wait_until(4)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)
    command.release()
    assert command.start(*held, "-j", "2", "--resume").wait(60) == 0
    assert not [name for name in files(command.out) if name.startswith(".")]


def test_killed_twice(command: Command, held: Any) -> None:
    for finished, more in ((2, []), (2, ["--resume"])):
        process = command.start(*held, "-j", "1", *more)
        command.hold.with_name("reached").unlink(missing_ok=True)
        command.wait_until(finished)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
    command.release()
    again = command.start(*held, "-j", "1", "--resume")
    out, err = again.communicate(timeout=60)
    assert again.returncode == 0 and kept(out) == 2, err


def alive(group: int) -> list[int]:
    """The processes of a group, by the system's list of them."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == group and fields[0] != "Z":
                found.append(int(entry.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system does not list its processes")
def test_workers_end_when_the_main_process_is_killed(command: Command, held: Any) -> None:
    process = command.start(*held, "-j", "2")
    command.wait_until(4)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(10)
    command.release()
    deadline = time.monotonic() + 1
    while alive(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert alive(process.pid) == []


@pytest.mark.parametrize(
    "way, finished",
    [(["-j", "1"], 2), (["-j", "2"], 4), (["--executor", "processes", "-j", "2"], 4), (["--executor", "processes", "-j", "6"], 2)],
)  # fmt: skip
def test_ctrl_c_keeps_what_is_finished(way: list[str], finished: int, command: Command, held: Any) -> None:
    process = command.start(*held, *way)
    command.wait_until(finished)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "Traceback" not in err and "defect" not in err, err
    assert "error: " not in err, "it was the user who ended it"
    names = visible(command.out)
    for rank in [0, 1, 3, 4][:finished]:
        assert f"compare_result_rank{rank}_T.csv" in names
    assert "compare_summary_T.csv" not in names
    assert not [name for name in files(command.out) if name.startswith(".")]

    command.release()
    again = command.start(*held, *way, "--resume")
    out, err = again.communicate(timeout=60)
    assert again.returncode == 0 and kept(out) == finished, err


def test_ctrl_c_says_how_to_go_on(command: Command, held: Any) -> None:
    process = command.start(*held, "-j", "2")
    command.wait_until(4)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert "4 of 5 comparisons finished" in out
    assert "--resume compares what is left" in err


def test_ctrl_c_while_a_rank_is_read(command: Command, held: Any) -> None:
    (held[0] / "rank2/slow").touch()
    process = command.start(*held, "-j", "2")
    command.wait_until(4)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130 and "Traceback" not in err, err
    assert "error: " not in err, "it was the user who ended it"


def test_ctrl_c_waits_for_threads_to_end_their_rank(command: Command, held: Any) -> None:
    process = command.start(*held, "--executor", "threads", "-j", "2")
    command.wait_until(4)
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(0.2)
    command.release()
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130 and "Traceback" not in err, err
    assert "compare_result_rank2_T.csv" in files(command.out)


def test_what_was_interrupted_is_replaced_when_taken_up(command: Command, held: Any) -> None:
    process = command.start(*held, "-j", "2")
    command.wait_until(4)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=30)
    command.release()
    assert command.start(*held, "-j", "2", "--resume").wait(60) == 0
    assert not [name for name in files(command.out) if "interrupted" in name]


def test_a_single_rank_in_chunks_is_interrupted(command: Command, held: Any) -> None:
    process = command.start(*(side / "rank2" for side in held), "--executor", "processes", "-j", "2")
    command.out.mkdir(exist_ok=True)
    deadline = time.monotonic() + 30
    while not command.hold.with_name("reached").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130 and "Traceback" not in err and "error: " not in err, err
    tables = [name for name in files(command.out) if not name.startswith("answer_")]
    assert all("interrupted" in name for name in tables)
    for path in command.out.glob("answer_*.json"):
        assert json.loads(path.read_text())["verdict"] != "AGREE", "not all rows were compared"
