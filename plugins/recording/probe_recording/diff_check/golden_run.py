"""The golden that calls are compared with: its header, and the record files of its steps and ranks."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probe_ranks.api import find_ranks

from probe_core.errors import UserError
from probe_recording.file_names import PROBE_FIELD, SLICES_FIELD
from probe_recording.reading.jsonstream import JsonCursor, JsonError
from probe_recording.settings.recorded_settings import RecordedSettings, read_settings

COMPARED_TASKS = ("statistics", "tensor")
CHECKSUM_NAMES = {8: "md5", 16: "xxh3"}
"""The values of ``summary_mode`` by the length of a checksum."""


@dataclass(frozen=True, slots=True)
class GoldenRun:
    """A golden on disk.

    Attributes:
        path: Its directory.
        shown_path: The directory as the user wrote it.
        task: The kind of data that it holds.
        level: The level of its records.
        framework: Its framework; empty if its recorder did not name it.
        summary: The value of ``summary_mode`` that records the same data.
        settings: The settings that it states; None if it was not recorded by probe.
        files: The record file of each rank, by the number of the step and of the rank.
        slices: The parts of tensors that it holds, as text; empty for whole tensors.
    """

    path: Path
    shown_path: str
    task: str
    level: str
    framework: str
    summary: str
    settings: RecordedSettings | None
    files: Mapping[int, Mapping[int, Path]]
    slices: str = ""

    @property
    def steps(self) -> list[int]:
        """The numbers of its steps."""
        return sorted(self.files)

    def find_file(self, step: int, rank: int) -> Path | None:
        """Return the record file of a step and rank; None if the golden does not have it."""
        return self.files.get(step, {}).get(rank)


def read_golden_run(path: Path, shown_path: str = "") -> GoldenRun:
    """Return the golden in a directory.

    Args:
        path: The directory.
        shown_path: The directory as the user wrote it, if that differs.

    Raises:
        UserError: The directory cannot be read, or does not hold the steps of a recording that can be compared.
    """
    shown = shown_path or str(path)
    files = {
        int(name.removeprefix("step")): ranks
        for name, ranks in find_ranks(path).items()
        if name.startswith("step") and ranks
    }
    if not files:
        raise UserError(
            f'The golden "{shown}" does not hold the steps of a recording.',
            "Give the directory that a recorder wrote, which holds step0 or other steps.",
        )
    first_file = next(iter(files[min(files)].values()))
    head, checksum = _read_head(first_file)
    task = str(head.get("task", ""))
    if task not in COMPARED_TASKS:
        raise UserError(
            f'The golden "{shown}" was recorded with task "{task}", which holds nothing to compare.',
            "Record the golden with one of these tasks:",
            COMPARED_TASKS,
        )
    settings = None
    with suppress(UserError):
        settings = read_settings(first_file)
    summary = CHECKSUM_NAMES.get(len(checksum), "statistics")
    level, framework = (str(head.get(name, "")) for name in ("level", "framework"))
    notes = head.get(PROBE_FIELD)
    slices = str(notes.get(SLICES_FIELD, "")) if isinstance(notes, dict) else ""
    return GoldenRun(path, shown, task, level, framework, summary, settings, files, slices)


def _read_head(file: Path) -> tuple[dict[str, Any], str]:
    """Return the fields of a record file before its records, and the first checksum; empty for none."""
    head: dict[str, Any] = {}
    try:
        with file.open("rb") as stream:
            cursor = JsonCursor(stream)
            if cursor.peek() != "{":
                raise JsonError("no object", cursor.offset)
            for key in cursor.iterate_members():
                if key != "data":
                    head[key] = cursor.skip()[2]
                elif cursor.peek() == "{":
                    records = (cursor.skip()[2] for _ in cursor.iterate_members())
                    return head, next(filter(None, map(_find_checksum, records)), "")
    except (OSError, JsonError) as error:
        problem = error.strerror or error if isinstance(error, OSError) else error
        raise UserError(f"{file} cannot be read: {problem}.", "Give another golden, or record it again.") from None
    raise UserError(f'{file} has no "data" object.', "Give the directory of a run that a recorder wrote.")


def _find_checksum(value: Any) -> str:
    """Return the first checksum inside the JSON of a record; empty for none."""
    if isinstance(value, dict):
        checksum = value.get("md5")
        return checksum if isinstance(checksum, str) else next(filter(None, map(_find_checksum, value.values())), "")
    return next(filter(None, map(_find_checksum, value)), "") if isinstance(value, list) else ""
