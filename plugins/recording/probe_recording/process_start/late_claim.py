"""The claim of a process whose rank may become known only while it records (docs/launchers.md#ranks)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

from probe_core.errors import UserError
from probe_core.files.atomic import make_directory
from probe_recording.messages import note
from probe_recording.process_start.launch import is_first_process
from probe_recording.run_directory.directory import (
    SINGLE,
    Lock,
    RemovalResult,
    StepDirectory,
    clear,
    list_labels,
    remove_run,
)
from probe_recording.run_directory.earlier_run import SettlementLock, settle_earlier_run
from probe_recording.run_directory.process import Process
from probe_recording.run_directory.run_claim import RunClaim
from probe_recording.settings.config import Config
from probe_recording.settings.stage_name import join_label

RESTART_VARIABLE = "TORCHELASTIC_RESTART_COUNT"
"""The environment variable by which a launcher counts how often it restarted its workers."""


class LateClaim(RunClaim):
    """A claim that chooses the directories of a process when its first step ends.

    Until then, its files are in ``proc{pid}``. A process that records nothing leaves no trace.

    Args:
        process: The process.
        launch: A text that is equal in all processes of a launch.
    """

    def __init__(self, process: Process, launch: str) -> None:
        super().__init__(process)
        self._launch = launch
        self._temporary_label = ""
        self._temporary: StepDirectory | None = None
        self._label = ""
        self._rank_label = SINGLE
        self._is_dropped = False

    @property
    def is_made(self) -> bool:
        """True once the directory of a step was opened."""
        return self._temporary is not None or bool(self._locks)

    @property
    def label(self) -> str:
        """The chosen label; empty before the first step with records ends."""
        return self._label

    def may_record(self, config: Config) -> bool:
        """Return True if the rank is selected or not known yet."""
        self.note_rank()
        return self._rank_label == SINGLE or super().may_record(config)

    def note_rank(self) -> None:
        """Note the rank once it is known; it is not any more after the process group is destroyed."""
        if self._rank_label == SINGLE:
            self._rank_label = self._process.label

    def open_step(self, config: Config, step: int) -> StepDirectory:
        """Return the directory of a step; a temporary one for the first."""
        if self._label:
            return StepDirectory(config.dump_path, step, self._label)
        self._temporary_label = join_label(config.stage, f"proc{os.getpid()}")
        self._temporary = _PreparedDirectory(
            config.dump_path, step, self._temporary_label, lambda: self._enter(config)
        )  # fmt: skip
        return self._temporary

    def _enter(self, config: Config) -> None:
        """Move the recording of an earlier launch away, and lock the temporary directory."""
        if self._temporary_label in self._locks:
            return

        def report_move(_: str) -> None:
            note(f"probe: the earlier recording in {config.shown_path} was moved to a name with a number.")

        settle_earlier_run(config.dump_path, replace=False, confirm=None, warn=report_move, launch=self._launch)
        self._locks[self._temporary_label] = Lock(config.dump_path, self._temporary_label)

    def choose_label(self, config: Config) -> str:
        """Choose the label of the process by its rank, and return it."""
        if self._label:
            return self._label
        self.note_rank()
        rank = int(self._rank_label.removeprefix(SINGLE) or 0)
        self._is_dropped = bool(config.ranks) and rank not in config.ranks
        if self._is_dropped:
            return ""
        self._enter(config)
        with SettlementLock(config.dump_path):
            self._label = self._lock_free_label(config)
        return self._label

    def _lock_free_label(self, config: Config) -> str:
        root, is_restarted = config.dump_path, os.environ.get(RESTART_VARIABLE, "0") != "0"
        has_rank = self._rank_label != SINGLE or self._process.rank_variable in os.environ
        has_place = has_rank or is_first_process(self._launch)
        for stage in _list_stages(config.stage, 0 if has_place else 1):
            label = join_label(stage, self._rank_label)
            if not is_restarted and self._is_taken(root, stage, label):
                continue
            try:
                self._locks[label] = Lock(root, label)
            except UserError:
                continue
            remove_run(root, label, 0, RemovalResult())  # of this rank before the launcher restarted it
            return label
        raise AssertionError("there is always another number")

    def _is_taken(self, root: Path, stage: str, label: str) -> bool:
        """Return True if another process of the launch has recorded this rank, or a rank that reads the same."""
        if self._rank_label not in (SINGLE, f"{SINGLE}0"):
            return label in list_labels(root)
        labels = {*list_labels(root), *_list_locked_labels(root)}
        if self._rank_label == SINGLE:  # next to processes with ranks, it is another part of the program
            return any(other.startswith(join_label(stage, SINGLE)) for other in labels)
        return label in labels or join_label(stage, SINGLE) in labels

    def complete_step(self) -> bool:
        """Rename the temporary directory of the first step; remove it if the rank is not selected."""
        directory, self._temporary = self._temporary, None
        if directory is None or not directory.has_begun:
            return not self._is_dropped
        path, step_path = directory.path, directory.step_path
        try:
            if self._is_dropped:
                clear(path)
                path.rmdir()
            elif self._label:
                make_directory((step_path / self._label).parent)
                path.rename(step_path / self._label)
        except OSError as error:
            note(f"probe: {path} keeps its name, because it cannot be renamed: {error.strerror or error}.")
        with suppress(OSError):  # not empty: it holds directories of other processes
            for parent in (path.parent, step_path):
                parent.rmdir()
        self._locks.pop(self._temporary_label).release()
        return not self._is_dropped


class _PreparedDirectory(StepDirectory):
    """The directory of a step, with a function to call before its first file is written."""

    def __init__(self, root: Path, step: int, label: str, prepare: Callable[[], None]) -> None:
        super().__init__(root, step, label)
        self._prepare = prepare

    def _make(self) -> None:
        if not self.has_begun:
            self._prepare()
        super()._make()


def _list_stages(stage: str, start: int) -> Iterator[str]:
    """Yield the stages that a process may record into, in the order in which it tries them.

    Args:
        stage: The stage of the configuration, which has the number 0.
        start: The number of the first one.
    """
    for number in count(start):
        other_stage = f"{stage}-process{number}" if stage else f"process{number}"
        yield other_stage if number else stage


def _list_locked_labels(root: Path) -> set[str]:
    """Return the labels that other processes have locked; lock files of killed processes are removed."""
    labels = set()
    for path in root.glob(".*.lock"):
        label = path.name[1 : -len(".lock")].replace(".", "/")
        if label != "launch":
            try:
                Lock(root, label).release()
            except UserError:
                labels.add(label)
    return labels
