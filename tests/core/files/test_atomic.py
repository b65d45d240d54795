"""Leftovers of killed processes: temporary files and directories, removed by the next process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from probe_recording.run_directory.directory import StepDirectory
from support.runs.recorded import forward, tensor, write_run

from probe_core.files import atomic

CODE = """
import sys, time
from pathlib import Path
from probe_core.files.atomic import AtomicFile
AtomicFile(Path(sys.argv[1]) / "compare_result_20260101000000.csv").temporary.write_text("half")
if sys.argv[2] == "socket":
    import multiprocessing
    from probe_ranks import executors
    pool = executors.ProcessExecutor().open(1, None)
    pool.executor.submit(int).result()
print("ready", flush=True)
sys.stdin.read()
"""


class Writer:
    """A process in the middle of writing."""

    def __init__(self, directory: Path, how: str = "", **variables: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CODE, str(directory), how],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            start_new_session=True, env={**os.environ, **variables},
        )  # fmt: skip
        assert self.process.stdout is not None and self.process.stdout.readline() == "ready\n"

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A directory in which a process was killed as it wrote."""
    directory = tmp_path / "out"
    directory.mkdir()
    Writer(directory).kill()
    assert parts(directory)
    return directory


def parts(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir() if path.name.endswith(".part")]


def test_those_of_a_process_that_lives_stay(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    try:
        atomic.remove_leftovers(tmp_path)
        assert len(parts(tmp_path)) == 1
    finally:
        writer.kill()
    atomic.remove_leftovers(tmp_path)
    assert parts(tmp_path) == []


def test_those_of_another_machine_stay_for_a_day(killed: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(atomic, "_hash_machine", lambda: "0other")
    atomic.remove_leftovers(killed)
    (name,) = parts(killed)
    yesterday = time.time() - atomic.MAX_LEFTOVER_AGE_SECONDS - 60
    os.utime(killed / name, (yesterday, yesterday))
    atomic.remove_leftovers(killed)
    assert parts(killed) == []


def test_files_that_are_no_leftovers_stay(killed: Path) -> None:
    (name,) = parts(killed)
    for other in (name[1:], f"{name}.csv", ".a.b.part", name.replace("compare", "x").rpartition(".")[0]):
        (killed / other).write_text("mine")
    link = killed / name.replace("compare", "link")
    (killed / "mine").write_text("mine")
    link.symlink_to(killed / "mine")
    atomic.remove_leftovers(killed)
    assert len(list(killed.iterdir())) == 6 and link.is_symlink() and not (killed / name).exists()


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    atomic.remove_leftovers(tmp_path / "absent")


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_next_comparison_removes_them(ranks: int, killed: Path, tmp_path: Path, probe: Any) -> None:
    for rank in range(ranks):
        write_run(tmp_path / f"t/rank{rank}", {"Torch.exp.0.forward": forward(tensor(), output=[tensor()])})
    assert probe("compare", tmp_path / "t", tmp_path / "t", "-o", killed, "-j", "1") == 0, probe.err
    assert parts(killed) == []


def test_the_next_recording_removes_them(tmp_path: Path) -> None:
    rank = tmp_path / "step0/rank"
    rank.mkdir(parents=True)
    Writer(rank).kill()
    StepDirectory(tmp_path, 0, "rank")
    assert parts(rank) == []


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory for temporary files, short enough for sockets."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="p") as home:
        monkeypatch.setattr(tempfile, "tempdir", home)
        yield Path(home)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_the_directory_of_a_pools_socket_goes_with_the_next(temporary: Path, tmp_path: Path) -> None:
    first = Writer(tmp_path, "socket", TMPDIR=str(temporary))
    (home,) = temporary.iterdir()
    assert home.name.startswith("probe-")
    second = Writer(tmp_path, "socket", TMPDIR=str(temporary))
    assert home.exists(), "its process lives"
    second.kill()
    first.kill()
    (temporary / "probe-notes").mkdir()
    (temporary / "pymp-x").mkdir()
    mine = atomic.create_private_directory()
    assert {path.name for path in temporary.iterdir()} == {mine.name, "probe-notes", "pymp-x"}


def test_a_pool_that_ends_leaves_nothing(temporary: Path, tmp_path: Path) -> None:
    writer = Writer(tmp_path, "socket", TMPDIR=str(temporary))
    writer.process.communicate("", timeout=60)
    assert list(temporary.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_comparison_that_needs_no_pool_removes_that_of_a_killed_one(
    temporary: Path, tmp_path: Path, probe: Any
) -> None:
    """A run that was killed behind its last rank is resumed."""
    Writer(tmp_path, "socket", TMPDIR=str(temporary)).kill()
    assert len(list(temporary.iterdir())) == 1
    for rank in range(2):
        write_run(tmp_path / f"t/rank{rank}", {"Torch.exp.0.forward": forward(tensor(), output=[tensor()])})
    assert probe("compare", tmp_path / "t", tmp_path / "t", "-o", tmp_path / "out", "-j", "1") == 0, probe.err
    assert list(temporary.iterdir()) == []
