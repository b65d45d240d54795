"""Work for msprobe, under its own interpreter: ``python -m faults.msprobe_worker``, jobs on standard input.

A job is a line of JSON. It records a program by msprobe's PrecisionDebugger, or runs a command of msprobe, in
a process of its own, forked from this one, which has imported torch, transformers and msprobe once: importing
them for each of some hundred jobs would take most of the time. A line ``{"error": …}`` answers each job, with
the last line of what it printed if it failed; the first such line says that the worker is ready.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

from torch import nn

from faults.cases import Case
from faults.listed import chosen

SIDES = {"golden": False, "target": True}


class Recording:
    """A recorder of msprobe that writes one run, with all calls that it can record."""

    def __init__(self, path: Path, task: str) -> None:
        from msprobe.pytorch import PrecisionDebugger

        path.mkdir(parents=True)
        config = path.with_suffix(".json")
        settings = {"task": task, "dump_path": str(path), "level": "mix", "rank": [], "step": []}
        choice = {"scope": [], "list": [], "data_mode": ["all"]}
        config.write_text(json.dumps({**settings, task: choice, "risk_level": "ALL"}))
        self.debugger = PrecisionDebugger(config_path=str(config))

    def start(self, model: nn.Module) -> None:
        """Start recording."""
        self.debugger.start(model=model)

    def stop(self) -> None:
        """Stop recording and end the step."""
        self.debugger.stop()
        self.debugger.step()


def record(case: Case, path: Path, task: str, side: str) -> None:
    """Record one program of a case, as a run of rank 0: only such a run is read by ``-da``."""
    case.build(SIDES[side]).run(Recording(path, task))
    for process in path.glob("step*/proc*"):
        process.rename(process.with_name("rank0"))


def command(arguments: list[str]) -> None:
    """Run a command line of msprobe."""
    from msprobe.msprobe import main as msprobe

    sys.argv = ["msprobe", *arguments]
    msprobe()


def work(job: dict[str, Any]) -> int:
    """Do a job in this process, which prints into a file of its own; return its exit status."""
    printed = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    os.setsid()
    status = 0
    try:
        if "command" in job:
            command(job["command"])
        else:
            (case,) = chosen([job["case"]])
            record(case, Path(job["path"]), job["task"], job["side"])
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def last_line(log: Path, status: int) -> str:
    """Return the last line of an error."""
    lines = [line.strip() for line in re.split(r"[\r\n]+", log.read_text(errors="replace")) if line.strip()]
    return lines[-1] if lines else f"ended with status {status}"


def done(job: dict[str, Any]) -> str:
    """Do a job in a process of its own; return the last line of its error, empty if there is none."""
    child = os.fork()
    if child == 0:
        os._exit(work(job))
    end = time.monotonic() + job["limit"]
    while True:
        finished, status = os.waitpid(child, os.WNOHANG)
        if finished:
            break
        if time.monotonic() > end:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return f"took more than {job['limit']:.0f} seconds"
        time.sleep(0.02)
    return last_line(Path(job["log"]), status) if status else ""


def main() -> None:
    """Do the jobs of standard input, one after another."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # msprobe prints when it is imported
    import msprobe.msprobe
    import msprobe.pytorch  # noqa: F401
    import transformers

    for family in ("Bert", "Gemma2", "Gemma3", "GPT2", "Llama", "Qwen2"):
        getattr(transformers, f"{family}Model")  # which imports it
    warnings.simplefilter("ignore")
    print(json.dumps({"error": ""}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps({"error": done(json.loads(line))}), file=answers, flush=True)


if __name__ == "__main__":
    main()
