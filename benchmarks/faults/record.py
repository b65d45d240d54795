"""Recording of cases by probe: ``python -m faults.record DIRECTORY CASE …``, all in one process.

A case is recorded into ``DIRECTORY/CASE/TASK/golden`` and ``…/target``, for each task.
"""

from __future__ import annotations

import atexit
import json
import shutil
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path

from torch import nn

from faults.cases import Case, Program
from faults.listed import chosen

TASKS = ("tensor", "statistics")
SIDES = {"golden": False, "target": True}


class Recording:
    """A recorder that writes one run."""

    def __init__(self, path: Path, task: str) -> None:
        from probe_pytorch.debugger import PrecisionDebugger

        path.parent.mkdir(parents=True, exist_ok=True)
        config = path.with_suffix(".json")
        settings = {"task": task, "dump_path": str(path), "level": "mix", "rank": [], "step": []}
        config.write_text(json.dumps(settings))
        self.kind = PrecisionDebugger
        self.kind._instance = None  # a process usually has one debugger; here each run has its own
        self.debugger = PrecisionDebugger(config_path=config)

    def start(self, model: nn.Module) -> None:
        """Start recording."""
        self.debugger.start(model=model)

    def stop(self) -> None:
        """Stop recording and end the step."""
        self.debugger.stop()
        self.debugger.step()

    def finish(self) -> None:
        """Finish writing."""
        recorder = self.debugger._recorder
        recorder.finish()
        atexit.unregister(recorder.finish)  # which would keep the recorder until the process ends
        self.kind._instance = None


def run_recorded(program: Program, path: Path, task: str) -> None:
    """Run a program while probe records it."""
    recording = Recording(path, task)
    try:
        program.run(recording)
    finally:
        recording.finish()


def record(case: Case, directory: Path, tasks: Iterable[str] = TASKS) -> None:
    """Record both programs of a case for each task into a directory of its own."""
    shutil.rmtree(directory / case.name, ignore_errors=True)
    for task in tasks:
        for side, differs in SIDES.items():
            run_recorded(case.build(differs), directory / case.name / task / side, task)


def main() -> None:
    """Record the cases that the command line names."""
    warnings.simplefilter("ignore")
    for case in chosen(sys.argv[2:]):
        record(case, Path(sys.argv[1]))
        print(case.name, flush=True)


if __name__ == "__main__":
    main()
