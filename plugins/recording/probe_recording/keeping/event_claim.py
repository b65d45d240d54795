"""The claim of a process that writes its last steps at an event (docs/watch.md#the-moment-before)."""

from __future__ import annotations

import os
from dataclasses import replace

from probe_core.errors import UserError
from probe_recording.keeping.step_memory import MemoryDirectory
from probe_recording.messages import Notices
from probe_recording.run_directory.directory import Lock, StepDirectory
from probe_recording.run_directory.earlier_run import is_one_of_several, settle_earlier_run
from probe_recording.run_directory.process import Process
from probe_recording.run_directory.run_claim import RunClaim
from probe_recording.settings.config import Config
from probe_recording.settings.stage_name import join_label


class EventClaim(RunClaim):
    """A claim that settles with an earlier recording when the first event is written.

    Args:
        process: The process.
        notices: The messages of the recorder.
        replaces: True if an earlier recording in the directory may be replaced.

    Attributes:
        memory_directory: The directory of the current step in memory; None between steps.
    """

    def __init__(self, process: Process, notices: Notices, *, replaces: bool) -> None:
        super().__init__(process)
        self._notices = notices
        self._replaces = replaces
        self._has_settled = False
        self._avoids_directory = False
        self.memory_directory: MemoryDirectory | None = None

    def open_step(self, config: Config, step: int) -> MemoryDirectory:
        """Return a directory in memory for a step, which nothing is locked for."""
        self.memory_directory = MemoryDirectory(config.dump_path, step, self._process.label)
        return self.memory_directory

    def open_event_step(self, config: Config, step: int, label: str) -> tuple[Config, StepDirectory]:
        """Return the directory to write a step into, and the settings, which may name another run directory.

        Args:
            config: The settings of the recording.
            step: The number of the step.
            label: The name of the rank's directories.

        Raises:
            UserError: No directory can be written.
        """
        label = join_label(config.stage, label)
        if label not in self._locks:
            config = self._settle(self._avoid_directory(config) if self._avoids_directory else config)
            try:
                self._claim(config, label)
            except UserError:
                config = self._avoid_directory(config)
                self._claim(config, label)
        return config, StepDirectory(config.dump_path, step, label)

    def _claim(self, config: Config, label: str) -> None:
        """Lock the directory; earlier steps are removed only if they were not moved away."""
        if self._replaces or self._is_spawned:
            super()._claim(config, label)
        else:
            self._locks[label] = Lock(config.dump_path, label)

    def _settle(self, config: Config) -> Config:
        """Move an earlier recording away, once; write next to a directory that another process writes."""
        if self._has_settled or self._is_spawned:
            return config
        self._has_settled = True

        def report_move(_: str) -> None:
            self._notices.print_once(
                f"probe: the earlier recording in {config.shown_path} was moved to a name with a number."
            )

        try:
            settle_earlier_run(config.dump_path, replace=self._replaces, confirm=None, warn=report_move)
        except UserError:
            return self._avoid_directory(config)
        return config

    @property
    def _is_spawned(self) -> bool:
        """True for one of several processes that no launcher started, which cannot settle together."""
        return self._process.process_count > 1 and not is_one_of_several(os.environ)

    def _avoid_directory(self, config: Config) -> Config:
        """Return settings with a directory of this process, because another one writes into the configured one."""
        self._avoids_directory = True
        suffix = f"-{os.getpid()}"
        if config.shown_path.endswith(suffix):
            return config
        path = config.dump_path
        shown = config.shown_path.rstrip("/") + suffix
        self._notices.print_once(f"probe: {path} is in use or cannot be written, so the steps are written to {shown}.")
        return replace(config, dump_path=path.with_name(path.name + suffix), shown_path=shown)
