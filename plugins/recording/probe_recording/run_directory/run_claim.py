"""The claim of a process on its part of a run directory (docs/recording.md#the-run-directory)."""

from __future__ import annotations

from collections.abc import Mapping

from probe_recording.messages import note
from probe_recording.run_directory.directory import DEBUG_FILE, DUMP_FILE, Lock, StepDirectory, remove_earlier_steps
from probe_recording.run_directory.process import Process
from probe_recording.settings.config import Config
from probe_recording.settings.stage_name import join_label

ERROR_DIRECTORY = "online"
"""The directory in ``dump_path`` for error logs of calls that are sent."""


class RunClaim:
    """The locks of a process on a run directory, and the directories of its steps there.

    A process has one lock for each label of its rank; its label changes once its process group is initialized.

    Args:
        process: The process.

    Attributes:
        first_step: The number of the first step; those before it are left of a training that was resumed.
    """

    def __init__(self, process: Process) -> None:
        self._process = process
        self._locks: dict[str, Lock] = {}
        self.first_step = 0

    @property
    def label(self) -> str:
        """The label of the process whose directories were locked last; empty if none is locked."""
        return next(reversed(self._locks), "")

    @property
    def is_made(self) -> bool:
        """True once a directory is locked."""
        return bool(self._locks)

    def open_step(self, config: Config, step: int) -> StepDirectory:
        """Return the directory of a step, after the first one has claimed the run for the rank.

        Raises:
            UserError: The directory cannot be written, or another process records this rank there.
        """
        label = join_label(config.stage, self._process.label)
        if label not in self._locks:
            self._claim(config, label)
        root = config.dump_path / ("" if config.online is None else ERROR_DIRECTORY)
        return StepDirectory(root, step, label)

    def may_record(self, config: Config) -> bool:
        """Return True if the rank of the process is selected, as far as it is known."""
        return self._process.is_selected(config.ranks)

    def note_rank(self) -> None:
        """Note the rank of the process if it is known by now; called with each record."""

    def choose_label(self, config: Config) -> str:
        """Return the name for the directories of the process if it is chosen only now, else an empty text.

        Raises:
            UserError: The directory cannot be written.
        """
        return ""

    def complete_step(self) -> bool:
        """Put the complete directory of a step in its place; return False if it is removed instead."""
        return True

    def _claim(self, config: Config, label: str) -> None:
        """Lock the run directory for a rank, and remove the rank's steps of an earlier run."""
        self._locks[label] = Lock(config.dump_path, label)
        if config.online is None:
            is_rank_passed = self._process.passed_rank is not None
            count = 0 if is_rank_passed else self._process.process_count  # 0 keeps the other ranks
            for sentence in remove_earlier_steps(config.dump_path, label, self.first_step, count):
                note(sentence)

    def let_go(self) -> None:
        """Close the inherited files in a forked child, so that only the parent holds the locks."""
        for lock in self._locks.values():
            lock.let_go()

    def release(self) -> None:
        """Release all locks; in a forked child do nothing."""
        for lock in self._locks.values():
            lock.release()


def list_complete_steps(config: Config, record_counts: Mapping[int, int]) -> list[int]:
    """Return the steps that were written completely, have records and are still on disk.

    Args:
        config: The settings of the recording.
        record_counts: The number of records of each step that was written completely.
    """
    file = DEBUG_FILE if config.level == "debug" else DUMP_FILE
    try:
        root = config.dump_path
        paths = (path for pattern in ("*", "*/*") for path in root.glob(f"step*/{pattern}/{file}"))
        present_steps = {path.relative_to(root).parts[0] for path in paths}
    except OSError:  # a failing disk cannot be read either
        present_steps = set()
    return [step for step, count in record_counts.items() if count and f"step{step}" in present_steps]
