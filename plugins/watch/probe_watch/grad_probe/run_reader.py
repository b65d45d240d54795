"""Reading of a run that grad_probe wrote, by probe or by msprobe; nothing is unpickled."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
from probe_recording.api import load_npy
from probe_recording.values.arrays import Array

from probe_core.errors import UnreadableTensor, UserError
from probe_watch.grad_probe.names import (
    OLD_SUFFIX,
    RANK_NAME,
    SUMMARY_NAME,
    format_direction_file_name,
    get_packed_path,
    get_summary_path,
    parse_number,
    step_directory,
)
from probe_watch.grad_probe.packed import PackedSigns
from probe_watch.grad_probe.summary_file import SummaryRow, read_summary


@dataclass(frozen=True, slots=True)
class Signs:
    """The signs of a gradient.

    Attributes:
        shape: The shape of the gradient.
        bits: A bit for each element, the first in the lowest bit of the first byte; 1 if it is above 0.
    """

    shape: tuple[int, ...]
    bits: Array

    @property
    def count(self) -> int:
        """The number of elements."""
        return prod(self.shape)


class StepSigns:
    """The signs of the gradients of a step.

    Args:
        directory: The directory of the rank.
        step: The number of the step.
    """

    def __init__(self, directory: Path, step: int) -> None:
        self._directory = step_directory(directory, step)
        self._packed: PackedSigns | None = None
        self._problem: UnreadableTensor | None = None
        try:
            self._packed = PackedSigns(get_packed_path(directory, step))
        except FileNotFoundError:
            pass
        except UnreadableTensor as error:
            self._problem = error
        except (OSError, ValueError) as error:
            self._problem = UnreadableTensor(f"{get_packed_path(directory, step).name}: {error}")

    def load(self, parameter: str) -> Signs | None:
        """Return the signs of a parameter; None if there is no file of them.

        The ``.npy`` file is tried first: a recorder that knows no packed file may have replaced it.

        Raises:
            UnreadableTensor: The file is damaged, or is one of msprobe 1.0.4 that only unpickling could read.
        """
        for name in dict.fromkeys((format_direction_file_name(parameter), f"{parameter}.npy")):
            if Path(name).name == name:
                with suppress(FileNotFoundError):
                    return _read_npy(self._directory / name)
        if self._packed is not None and parameter in self._packed:
            return self._read_packed(self._packed, parameter)
        old = self._directory / format_direction_file_name(parameter, OLD_SUFFIX)
        if old.exists():
            raise UnreadableTensor(
                f"{old.name} is a file of msprobe 1.0.4, which probe does not load; save its tensor as .npy"
            )
        if self._problem is not None:
            raise self._problem
        return None

    @staticmethod
    def _read_packed(packed: PackedSigns, parameter: str) -> Signs:
        try:
            return Signs(*packed.load(parameter))
        except OSError as error:
            raise UnreadableTensor(f"{parameter}: {error.strerror or error}") from None


def _read_npy(path: Path) -> Signs:
    try:
        array = load_npy(path)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise UnreadableTensor(f"{path.name}: {getattr(error, 'strerror', None) or error}") from None
    if array.dtype != np.bool_:
        raise UnreadableTensor(f"{path.name} holds {array.dtype} instead of signs, which are bool")
    values = np.ascontiguousarray(array).reshape(-1)
    return Signs(array.shape, np.packbits(values, bitorder="little"))


@dataclass(frozen=True, slots=True)
class RankRun:
    """The recorded steps of one rank.

    Attributes:
        rank: The number of the rank.
        directory: Its directory.
        steps: The steps that were written completely, ascending.
    """

    rank: int
    directory: Path
    steps: tuple[int, ...]

    def read_step_summary(self, step: int) -> list[SummaryRow]:
        """Return the rows of the csv of a step."""
        return read_summary(get_summary_path(self.directory, step))

    def open_signs(self, step: int) -> StepSigns:
        """Return the signs of a step."""
        return StepSigns(self.directory, step)

    def has_signs(self, step: int) -> bool:
        """Return True if a step has files of signs."""
        return step_directory(self.directory, step).is_dir() or get_packed_path(self.directory, step).is_file()


def open_run(root: Path) -> dict[int, RankRun]:
    """Return the ranks of a run, by their numbers; ``root`` may also be the directory of one rank.

    Raises:
        UserError: There is no such directory, or it holds no file of grad_probe.
    """
    try:
        entries = sorted(root.iterdir())
    except OSError as error:
        raise UserError(
            f'"{root}" cannot be read: {error.strerror or error}.',
            "Give the dump_path of a run that the task grad_probe recorded.",
        ) from None
    directories = {
        rank: path for path in entries if (rank := parse_number(RANK_NAME, path.name)) is not None and path.is_dir()
    }
    if any(parse_number(SUMMARY_NAME, path.name) is not None for path in entries):
        directories = {parse_number(RANK_NAME, root.name) or 0: root}
    runs = {rank: _open_rank_run(rank, path) for rank, path in sorted(directories.items())}
    runs = {rank: run for rank, run in runs.items() if run.steps}
    if not runs:
        raise UserError(
            f'"{root}" holds no gradients: there is no rank*/grad_summary_*.csv.',
            'Give the dump_path of a run that was recorded with "task": "grad_probe".',
        )
    return runs


def _open_rank_run(rank: int, directory: Path) -> RankRun:
    try:
        steps = [step for path in directory.iterdir() if (step := parse_number(SUMMARY_NAME, path.name)) is not None]
    except OSError as error:
        raise UserError(
            f'"{directory}" cannot be read: {error.strerror or error}.', "Change its permissions."
        ) from None
    return RankRun(rank, directory, tuple(sorted(steps)))
