"""The recorder of grad_probe: which steps are recorded, and the files of a step."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from probe_recording.api import Config, TaskRecorder
from probe_recording.framework import Lock
from probe_recording.messages import note
from probe_recording.values.arrays import Array

from probe_core.errors import UserError, describe_error, find_nearest_names, format_count, format_list
from probe_core.files.atomic import make_directory, refuse_link, remove_leftovers, replace_file
from probe_watch.grad_probe.measurement import MeasuredGradient
from probe_watch.grad_probe.names import (
    NPY_SUFFIX,
    OLD_SUFFIX,
    PACKED_NAME,
    STEP_NAME,
    SUMMARY_NAME,
    format_direction_file_name,
    get_packed_path,
    get_rank_path,
    get_summary_path,
    parse_number,
    step_directory,
)
from probe_watch.grad_probe.packed import PackedWriter
from probe_watch.grad_probe.settings import GradSettings
from probe_watch.grad_probe.summary_file import format_csv_row, list_columns, write_csv


@dataclass(frozen=True, slots=True)
class Gradient:
    """A gradient that is about to be recorded.

    Attributes:
        parameter: The name of its parameter.
        shape: Its shape, as it is written.
        measure: A function that measures it.
    """

    parameter: str
    shape: tuple[int, ...]
    measure: Callable[[GradSettings], MeasuredGradient]


class GradRecorder(TaskRecorder):
    """A recorder of gradients before each step of an optimizer; subclasses observe a framework.

    Args:
        config: The settings.
    """

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        settings = config.settings
        assert isinstance(settings, GradSettings)
        self.settings = settings
        self._wanted = frozenset(settings.parameters)
        self._first_step = 0
        self._remove_hook: Callable[[], None] | None = None
        self._lock: Lock | None = None
        self._directory: Path | None = None
        self._pid = os.getpid()
        self._reported: set[str] = set()
        self._is_monitored = self._has_recorded = self._has_failed = False

    @abstractmethod
    def observe(self, model: Any) -> Callable[[], None]:
        """Call ``record_step`` before each step of an optimizer; return a function that ends this."""

    # -- the methods of the debugger -------------------------------------------------------

    def monitor(self, model: Any) -> None:
        """Record the gradients of a model before each step of an optimizer from now on.

        Raises:
            UserError: The model is missing, or the files cannot be written.
        """
        if self._remove_hook is not None:
            self._remove_hook()
            self._remove_hook = None
        remove = self.observe(model)
        try:
            make_directory(self.config.dump_path)
        except BaseException:
            remove()
            raise
        self._remove_hook = remove
        self._is_monitored = True

    def step(self) -> None:
        """Do nothing: a step of this task is a step of an optimizer."""

    def set_step(self, step: int) -> None:
        """Set the number of the next step of an optimizer; files of earlier steps are kept."""
        self.current_step = self._first_step = step

    def finish(self) -> None:
        """Remove the hooks, release the directory, and report if nothing was recorded."""
        if self._remove_hook is not None:
            self._remove_hook()
            self._remove_hook = None
        self._release()
        is_expected = self.process.is_selected(self.config.ranks) and os.getpid() == self._pid
        if is_expected and not self._has_recorded and not self._has_failed:
            note(f"probe: no gradients were recorded: {self._find_missing_reason()}.")

    def _find_missing_reason(self) -> str:
        if not self._is_monitored:
            return "monitor() was never called"
        if self.current_step == self._first_step:
            return "no optimizer stepped after monitor()"
        return f"the program ended after step {self.current_step - 1}, without a step that is selected"

    # -- steps -------------------------------------------------------------------------------

    def is_wanted(self, parameter: str) -> bool:
        """Return True if a parameter is selected by ``param_list``."""
        return not self._wanted or parameter in self._wanted

    def warn_unknown(self, names: Sequence[str]) -> None:
        """Report names of ``param_list`` that the model does not have."""
        unknown = [name for name in self.settings.parameters if name not in names]
        if unknown:
            similar = find_nearest_names(unknown[0], names)
            hint = f" Similar names: {', '.join(similar)}." if similar else ""
            self._report(f"param_list names parameters that the model does not have: {format_list(unknown)}.{hint}")

    def record_step(self, gradients: Iterable[Gradient]) -> None:
        """Record a step of an optimizer if its number and the rank are selected.

        A failure never reaches the training: it is reported once and ends the recording.
        """
        if os.getpid() != self._pid:  # a forked child: the files belong to the parent process
            return
        step, self.current_step = self.current_step, self.current_step + 1
        if self._remove_hook is None or not self._is_selected(step):
            return
        try:
            self._prepare()
            self._write(step, gradients)
            self._has_recorded = True
        except UserError as error:
            self._end(step, error.what)
        except Exception as error:  # of the framework or the file system: the training must go on
            self._end(step, f"{describe_error(error)}.")

    def _is_selected(self, step: int) -> bool:
        steps = self.config.steps
        return (not steps or step in steps) and self.process.is_selected(self.config.ranks)

    def _prepare(self) -> None:
        """Lock the rank's directory and remove the files of an earlier run; do nothing if that is done."""
        rank = self.process.rank
        directory = get_rank_path(self.config.dump_path, rank)
        if directory == self._directory:
            return
        self._release()
        self._lock = Lock(self.config.dump_path, f"rank{rank}")
        self._directory = directory
        remove_leftovers(directory)
        if step_count := remove_earlier_steps(directory, self._first_step):
            note(f"probe: replaced {format_count(step_count, 'step')} of an earlier run in {directory}.")

    def _release(self) -> None:
        lock, self._lock, self._directory = self._lock, None, None
        if lock is not None:
            lock.release()

    def _write(self, step: int, gradients: Iterable[Gradient]) -> None:
        assert self._directory is not None
        remove_step(self._directory, step)
        listed = list(gradients)
        writer = StepWriter(self._directory, step, self.settings, {g.parameter: g.shape for g in listed})
        try:
            for gradient in listed:
                self._add(writer, gradient)
            writer.commit()
        except BaseException:
            writer.discard()
            raise

    def _add(self, writer: StepWriter, gradient: Gradient) -> None:
        """Measure and write one gradient; one of a kind that cannot be measured is left out."""
        try:
            measured = gradient.measure(self.settings)
        except Exception as error:  # of a framework's tensor class
            self._report(f"the gradient of {gradient.parameter} is not recorded: {describe_error(error)}")
            return
        writer.add(gradient.parameter, measured)

    def _end(self, step: int, reason: str) -> None:
        self._has_failed = True
        if self._remove_hook is not None:
            self._remove_hook()
            self._remove_hook = None
        with suppress(OSError):
            self._release()
        note(f"probe: the recording of gradients ends in step {step}: {reason} The training goes on.")

    def _report(self, text: str) -> None:
        if text not in self._reported:
            self._reported.add(text)
            note(f"probe: {text}")


# -- removal of the files of an earlier run; other files are never deleted, and no link is followed -


def remove_earlier_steps(directory: Path, first_step: int) -> int:
    """Remove the files of all steps starting at ``first_step`` and return the number of these steps.

    Args:
        directory: The directory of the rank.
        first_step: The first step to remove.
    """
    refuse_link(directory)
    steps: set[int] = set()
    with suppress(FileNotFoundError):
        for path in directory.iterdir():
            for pattern in (SUMMARY_NAME, PACKED_NAME, STEP_NAME):
                step = parse_number(pattern, path.name)
                if step is not None and step >= first_step:
                    steps.add(step)
    return sum(remove_step(directory, step) for step in steps)


def remove_step(directory: Path, step: int) -> bool:
    """Remove the files of a step and return True if there were any."""
    files = [get_summary_path(directory, step), get_packed_path(directory, step)]
    signs = step_directory(directory, step)
    if signs.is_dir() and not signs.is_symlink():
        files += [path for path in signs.iterdir() if path.suffix in (NPY_SUFFIX, OLD_SUFFIX, ".part")]
    removed = False
    for path in files:
        with suppress(FileNotFoundError):
            path.unlink()
            removed = True
    with suppress(OSError):  # there is none, or it holds other files
        signs.rmdir()
    return removed


# -- the files of one step (docs/gradients.md#files) ------------------------------------------------


class StepWriter:
    """A writer of the gradients of one step; the csv is written last, and means that the step is complete.

    Args:
        directory: The directory of the rank; it is created.
        step: The number of the step.
        settings: The data and files to write.
        shapes: The shapes of all gradients that may follow, by the names of their parameters.

    Raises:
        UserError: The directory is not writable.
    """

    def __init__(
        self, directory: Path, step: int, settings: GradSettings, shapes: Mapping[str, tuple[int, ...]]
    ) -> None:
        refuse_link(directory)
        make_directory(directory)
        self._csv = get_summary_path(directory, step)
        self._rows = [list_columns(settings)]
        self._npy_directory = step_directory(directory, step) if settings.writes_npy else None
        if self._npy_directory is not None:
            refuse_link(self._npy_directory)
            make_directory(self._npy_directory)
        self._packed = PackedWriter(directory, step, shapes) if settings.writes_packed else None

    def add(self, parameter: str, gradient: MeasuredGradient) -> None:
        """Write one gradient."""
        if gradient.is_positive is not None:
            if self._npy_directory is not None:
                _write_npy(self._npy_directory / format_direction_file_name(parameter), gradient.is_positive)
            if self._packed is not None:
                self._packed.add(parameter, gradient.is_positive)
        self._rows.append(format_csv_row(parameter, gradient.statistics))

    def commit(self) -> None:
        """Complete the step."""
        if self._packed is not None:
            self._packed.commit()
        write_csv(self._csv, self._rows)

    def discard(self) -> None:
        """Remove the unfinished file of packed signs."""
        if self._packed is not None:
            self._packed.discard()


def _write_npy(path: Path, array: Array) -> None:
    with replace_file(path) as file:
        np.save(file, array, allow_pickle=False)
