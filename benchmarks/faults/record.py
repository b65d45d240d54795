"""Recording of cases by probe: ``python -m faults.record [--reference] DIRECTORY CASE …``, in one process.

A case is recorded into ``DIRECTORY/CASE/TASK/golden`` and ``…/target``, for each task; with ``--reference``
the golden is recorded in float64 as well, into ``…/reference``.
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
from faults.listed import chosen, has_reference_of_target

TASKS = ("tensor", "statistics")
SIDES = {"golden": False, "target": True}
REFERENCE = "reference"


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


def record(case: Case, directory: Path, tasks: Iterable[str] = TASKS, *, with_reference: bool = False) -> None:
    """Record both programs of a case for each task into a directory of its own."""
    shutil.rmtree(directory / case.name, ignore_errors=True)
    for task in tasks:
        for side, differs in SIDES.items():
            run_recorded(case.build(differs), directory / case.name / task / side, task)
        if with_reference:
            record_reference(case, directory / case.name / task / REFERENCE, task)


def record_reference(case: Case, path: Path, task: str) -> None:
    """Record the golden, or a better target, in float64; a program that does not run so has no reference."""
    from probe_pytorch.double import run_in_double_precision

    try:
        with run_in_double_precision():
            run_recorded(case.build(has_reference_of_target(case)), path, task)
    except (RuntimeError, TypeError, ValueError) as error:
        shutil.rmtree(path, ignore_errors=True)
        print(f"{case.name} does not run in float64: {error}", flush=True)


def main() -> None:
    """Record the cases that the command line names."""
    warnings.simplefilter("ignore")
    with_reference = sys.argv[1] == "--reference"
    directory, *names = sys.argv[1 + with_reference :]
    for case in chosen(names):
        record(case, Path(directory), with_reference=with_reference)
        print(case.name, flush=True)


if __name__ == "__main__":
    main()
