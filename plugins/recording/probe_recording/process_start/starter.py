"""Start of a recorder when a process imports a framework, for the environment variable PROBE_RUN."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from probe_recording.process_start.import_watch import ImportWatch
from probe_recording.process_start.launch import LAUNCH_VARIABLE, create_launch
from probe_recording.process_start.program import ProgramKind, find_kind

RUN_VARIABLE = "PROBE_RUN"
"""The environment variable with the path of the configuration."""


class Recording(Protocol):
    """The recording of a process."""

    def end(self) -> None:
        """Complete the recording."""

    def withdraw(self) -> None:
        """Leave the recording to the parent process, in a forked child."""


class ProcessStarter:
    """The start of a recorder in this process and in those that multiprocessing makes of it.

    An error is one line on stderr, and the program goes on.

    Args:
        module: The module after whose first import the recorder starts.
        start: A function that starts the recorder, for the path of the configuration and the text of the launch.
        is_helper: A function that returns True for a process of multiprocessing that must not be recorded,
            such as one that loads data.
    """

    def __init__(self, module: str, start: Callable[[Path, str], Recording], is_helper: Callable[[Any], bool]) -> None:
        self._watch = ImportWatch(module, lambda: self._guard(self._handle_import))
        self._start = start
        self._is_helper = is_helper
        self._kind = ProgramKind.USER
        self._recording: Recording | None = None
        self._process_id = 0

    def install(self) -> None:
        """Wait for the import of the module, if the program is one of the user; the variable is set."""
        self._kind = find_kind()
        if self._kind is ProgramKind.OWN:
            del os.environ[RUN_VARIABLE]  # the processes that it starts are part of the command
        elif self._kind is not ProgramKind.HELPER and not self._watch.is_installed:
            os.environ[RUN_VARIABLE] = os.path.abspath(os.environ[RUN_VARIABLE])  # noqa: PTH100 - pathlib is not loaded
            os.environ.setdefault(LAUNCH_VARIABLE, create_launch())
            self._watch.install()

    def _handle_import(self) -> None:
        from multiprocessing import context, parent_process, util

        if "probe_core.cli.main" in sys.modules:  # a command that another program runs
            os.environ.pop(RUN_VARIABLE, None)
            return
        util.register_after_fork(self, ProcessStarter._handle_child)
        if self._kind is not ProgramKind.CHILD or parent_process() is not None:
            self._start_recording()
        else:  # a process that is not forked is told nothing when it receives its task, so this method is empty
            context.SpawnProcess._after_fork = staticmethod(self._handle_child)  # type: ignore[attr-defined]

    def _handle_child(self) -> None:
        """Start a recorder in a new process of multiprocessing, and drop the recorder of its parent."""
        from multiprocessing import current_process

        if self._recording is not None:
            recording, self._recording = self._recording, None
            self._guard(recording.withdraw)
        if not self._is_helper(current_process()):
            self._guard(self._start_recording)

    def _start_recording(self) -> None:
        import atexit
        from multiprocessing import parent_process, util

        if not os.environ.get(RUN_VARIABLE):
            return
        path = Path(os.environ[RUN_VARIABLE])
        self._recording = self._start(path, os.environ.get(LAUNCH_VARIABLE, ""))
        self._process_id = os.getpid()
        atexit.register(self._end)
        if parent_process() is not None:  # its exit handlers need not run
            util.Finalize(None, self._end, exitpriority=0)

    def _end(self) -> None:
        if self._recording is not None and self._process_id == os.getpid():
            recording, self._recording = self._recording, None
            self._guard(recording.end)

    def _guard(self, action: Callable[[], None]) -> None:
        """Do something, and print an error as one line."""
        try:
            action()
        except Exception as error:
            from probe_core.errors import UserError, make_printable
            from probe_recording.messages import note

            text = f"{type(error).__name__}: {error}."
            if isinstance(error, UserError):
                choices = f" {', '.join(error.choices)}." if error.choices else ""
                text = f"{error.what} {error.fix}{choices}"
            note(f"probe: {RUN_VARIABLE}: {make_printable(text)} The program goes on unrecorded.")
