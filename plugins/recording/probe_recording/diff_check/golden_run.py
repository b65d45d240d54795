"""The golden that calls are compared with: its header, and the record files of its steps and ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probe_ranks.api import find_ranks

from probe_core.errors import UserError
from probe_core.store.files import CONSTRUCT_FILE
from probe_core.store.names import canonicalize
from probe_recording.diff_check.call_stream import CallStream, GoldenCall
from probe_recording.diff_check.recorded_call import drop_data_names, get_form
from probe_recording.file_names import PROBE_FIELD, SLICES_FIELD
from probe_recording.reading.construct import read_construct
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


# -- the records of the golden in one step and rank, as calls are compared with them ----------------


class GoldenStep:
    """The records of one step and rank of the golden; their JSON stays in the file until it is compared.

    Args:
        path: The record file.

    Raises:
        UserError: The file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._spans = _find_records(path)
        self._file = path.open("rb")
        self._construct = read_construct(path.parent / CONSTRUCT_FILE)
        self._has_modules = bool(self._construct.modules())
        by_parent: dict[str | None, list[GoldenCall]] = defaultdict(list)
        for key in self._spans:
            form = get_form(key)
            if form.is_forward:
                by_parent[self._find_parent(key)].append(GoldenCall(key, form.kind))
        self._streams = {parent: CallStream(calls) for parent, calls in by_parent.items()}
        self._gradients = {canonicalize(key): key for key in self._spans if canonicalize(key) != key}

    def _find_parent(self, key: str) -> str | None:
        return next(iter(self._construct.ancestors(key)), None)

    def find_stream(self, parent: str | None) -> CallStream:
        """Return the stream of the calls of a module; without names of modules all calls are in one stream."""
        return self._streams.setdefault(parent if self._has_modules else None, CallStream(()))

    def find_key(self, key: str) -> str | None:
        """Return the golden's name of a record that has the same name in both runs; None if it has no such record."""
        return key if key in self._spans else self._gradients.get(canonicalize(key))

    def read_text(self, key: str) -> str:
        """Return the JSON of a record without the names of tensor files."""
        start, end = self._spans[key]
        self._file.seek(start)
        return drop_data_names(self._file.read(end - start).decode("utf-8", "replace"))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _find_records(path: Path) -> dict[str, tuple[int, int]]:
    """Return the offsets of the first byte of each record and of the byte after it, by the names of the records."""
    spans: dict[str, tuple[int, int]] = {}
    try:
        with path.open("rb") as file:
            cursor = JsonCursor(file)
            for key in cursor.iterate_members() if cursor.peek() == "{" else ():
                if key != "data" or cursor.peek() != "{":
                    cursor.skip()
                    continue
                for name in cursor.iterate_members():
                    start, end, _ = cursor.skip()
                    spans[name] = start, end
    except (OSError, JsonError) as error:
        problem = error.strerror or error if isinstance(error, OSError) else error
        raise UserError(f"{path} cannot be read: {problem}.", "Give another golden, or record it again.") from None
    return spans
