"""The files of one step (docs/gradients.md#files)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from probe_recording.values.arrays import Array

from probe_core.files.atomic import make_directory, refuse_link, replace_file
from probe_watch.grad_probe.measurement import MeasuredGradient
from probe_watch.grad_probe.names import format_direction_file_name, get_summary_path, step_directory
from probe_watch.grad_probe.packed import PackedWriter
from probe_watch.grad_probe.settings import GradSettings
from probe_watch.grad_probe.summary_file import format_csv_row, list_columns, write_csv


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
