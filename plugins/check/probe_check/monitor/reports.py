"""Reports that are written once: the structure of a model, call stacks, collective operations."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from probe_recording.messages import note

from probe_check.monitor.csv_file import format_csv
from probe_check.monitor.directories import STRUCTURE_DIRECTORY, get_output_base
from probe_check.monitor.observer import Observer
from probe_core.files.atomic import make_directory, write_text

STRUCTURE_FILE = "module_struct.json"
STACK_FILE = "stack_info.csv"
STACK_HEADER = ("module_name", "stack_info")


class OneTimeReports:
    """The reports of one process."""

    def __init__(self) -> None:
        self._first_step: int | None = None

    def report_and_end(self, observer: Observer, step: int, directory: Path | None) -> None:
        """Write call stacks and the structure of the models, or print collective operations, and end the program.

        Raises:
            SystemExit: The configuration requests nothing but the structure or the collective operations.
            UserError: A file cannot be written.
        """
        if self._first_step is None:
            self._first_step = step
        notes = observer.take_notes()
        if notes.module_stacks and directory is not None:
            _write_stacks(notes.module_stacks, directory)
        if notes.structure is not None:
            path = write_structure(notes.structure, observer.process.rank)
            _end_program(f'the structure of the model is in {path}; "print_struct" ends the training.')
        if notes.communication_stacks is not None and step > self._first_step:
            print_stacks(notes.communication_stacks)
            _end_program('"cc_log_only" ends the training after its first step.')


def _write_stacks(stacks: Mapping[str, str], directory: Path) -> None:
    path = directory / STACK_FILE
    if not path.exists():
        make_directory(directory)
        write_text(path, format_csv([STACK_HEADER, *stacks.items()]))


def write_structure(structure: Mapping[str, Any], rank: int) -> Path:
    """Write the structure of the models, and return the path.

    Raises:
        UserError: The file cannot be written.
    """
    directory = get_output_base() / STRUCTURE_DIRECTORY / f"rank{rank}"
    make_directory(directory)
    path = directory / STRUCTURE_FILE
    write_text(path, json.dumps(structure, indent=2))
    return path


def print_stacks(stacks: Mapping[str, set[str]]) -> None:
    """Print the calls of each collective operation as JSON."""
    note(
        json.dumps({name: [stack.split(";") for stack in sorted(call_stacks)] for name, call_stacks in stacks.items()})
    )


def _end_program(reason: str) -> NoReturn:
    note(f"probe: {reason}")
    sys.exit(0)
