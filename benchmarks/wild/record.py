"""Recording of a repository's programs in each way."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from wild.cases import BASE, DEBUGGER, Case, Repository

SECONDS = 300
"""Time limit of a program."""
DONE = "done.txt"


class RecordingError(Exception):
    """A program could not be recorded; the text is the end of its output."""


@dataclass(frozen=True)
class Way:
    """Way of recording apart from the task: by ``run`` or the ``debugger``, at a level."""

    recorder: str
    level: str

    def __str__(self) -> str:
        return f"{self.recorder} {self.level}"


USUAL = Way("run", "mix")
WAYS = (USUAL, Way("run", "L1"), Way("debugger", "mix"), Way("debugger", "L1"))


def record(repository: Repository, case: Case, way: Way, task: str, checkouts: Path, output: Path, state: str) -> None:
    """Record a program into ``output`` unless that holds its recording by a recorder of the same ``state``.

    Raises:
        RecordingError: A patch does not apply, or the program failed or took too long.
    """
    names = [BASE, *([DEBUGGER] if way.recorder == "debugger" else [])]
    patches = [repository.patches / name for name in names] + ([case.patch] if case.patch else [])
    content = hashlib.sha256(state.encode() + b"".join(patch.read_bytes() for patch in patches)).hexdigest()
    mark = output.with_name(f"{output.name}-{DONE}")
    if mark.is_file() and mark.read_text() == content:
        return
    mark.unlink(missing_ok=True)
    source = output.with_name(f"{output.name}-source")
    for directory in (source, output):
        shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(checkouts / repository.directory, source, ignore=shutil.ignore_patterns(".git"))
    for patch in patches:
        _apply(patch, source)
    _run(repository, case, way, task, source, output)
    shutil.rmtree(source)
    mark.write_text(content)


def _apply(patch: Path, source: Path) -> None:
    outside = {**os.environ, "GIT_CEILING_DIRECTORIES": str(source.parent)}
    command = ["git", "apply", "--whitespace=nowarn", str(patch)]
    done = subprocess.run(command, cwd=source, env=outside, capture_output=True, text=True)
    if done.returncode:
        raise RecordingError(f"{patch.name}: {done.stderr}")


def _run(repository: Repository, case: Case, way: Way, task: str, source: Path, output: Path) -> None:
    variables = {**os.environ, **repository.environment, **case.environment}
    if way.recorder == "debugger":
        config = output.with_name(f"{output.name}.json")
        settings = {"task": task, "dump_path": str(output), "level": way.level, "rank": [], "step": []}
        config.write_text(json.dumps(settings))
        variables["PROBE_CONFIG"] = str(config)
        command = [sys.executable, *repository.command]
    else:
        options = ["-o", str(output), "--task", task, "--level", way.level]
        command = [sys.executable, "-m", "probe_core.cli", "run", *options, *repository.command]
    try:
        done = subprocess.run(command, cwd=source, env=variables, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise RecordingError(f"took more than {SECONDS} s") from None
    if done.returncode:
        raise RecordingError(done.stderr[-2000:])
