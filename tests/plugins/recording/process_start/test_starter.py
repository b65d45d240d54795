"""The start of a recorder in a program and in the processes that multiprocessing makes of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, sys
from probe_recording.process_start.starter import ProcessStarter

class Recording:
    def __init__(self, path, launch):
        print("start", path.name, bool(launch), flush=True)

    def end(self):
        print("end", flush=True)

    def withdraw(self):
        print("withdraw", flush=True)

def is_helper(process):
    return process._target is help_others

def fail(path, launch):
    raise KeyError("no\\nrecorder")

starter = ProcessStarter("zipapp", fail if "fail" in sys.argv else Recording, is_helper)
starter.install()
starter.install()  # environments may read their start files twice
import zipapp

def work():
    print("work", flush=True)

def help_others():
    print("help", flush=True)

if __name__ == "__main__" and "fail" not in sys.argv:
    import multiprocessing
    for target in (work, help_others):
        process = multiprocessing.get_context(sys.argv[1]).Process(target=target)
        process.start()
        process.join()
"""


def start(directory: Path, argument: str) -> subprocess.CompletedProcess[str]:
    script = directory / "script.py"
    script.write_text(PROGRAM)
    environment = {**os.environ, "PROBE_RUN": "config.json"}
    return subprocess.run(
        [sys.executable, script, argument], cwd=directory, env=environment, capture_output=True, text=True, timeout=60
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_each_process_of_multiprocessing_is_recorded_but_not_helpers(tmp_path: Path, method: str) -> None:
    ended = start(tmp_path, method)
    leave = ["withdraw"] if method == "fork" else []
    child = [*leave, "start config.json True", "work", "end"]
    assert ended.stdout.splitlines() == ["start config.json True", *child, *leave, "help", "end"]
    assert ended.stderr == ""


def test_an_error_is_one_line(tmp_path: Path) -> None:
    ended = start(tmp_path, "fail")
    assert ended.returncode == 0 and ended.stdout == ""
    assert ended.stderr.startswith("probe: PROBE_RUN: KeyError") and ended.stderr.count("\n") == 1
