"""Conversion of ACL dumps to ``.npy`` files, and a table of what was written."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from probe_core.errors import UnreadableTensor, UserError, printable
from probe_core.files.atomic import make_directory, writing
from probe_core.progress import tell
from probe_core.safe_text import safe_json
from probe_core.spreadsheet_text import neutralise
from probe_legacy.acl.data_types import data_types
from probe_legacy.acl.debug import report_of, sentences
from probe_legacy.acl.dump import Dump, NameParts, ending_of, parts_of
from probe_legacy.acl.header import INPUT, OUTPUT, Section
from probe_legacy.acl.layouts import HOST, format_name
from probe_legacy.acl.tree import Found
from probe_legacy.acl.wire import DamagedDump

COLUMNS = (
    "Source", "File", "Op type", "Op name", "Task", "Stream", "Time", "Section", "Data type", "Device layout",
    "Device shape", "Program shape", "Written dtype", "Written layout", "Written shape", "Message",
)  # fmt: skip
_WRITTEN = re.compile(
    r"(.+)\.(?:(?:input|output|space)\.\d+|\w{1,20}buffer\.\d+)\.(?:npy|json|bin)", re.DOTALL
)
"""The name of a file that a conversion writes; the group is the name of the dump."""
LONGEST_NAME = 255

Place = Callable[[Found], Path]
"""A function that returns the directory, below the output, for the files of a dump."""


@dataclass
class Result:
    """The result of a conversion.

    Attributes:
        dumps: The number of dumps that were read.
        files: The number of files that were written, without the table.
        kept: The number of arrays that are not in the wanted shape, for a reason in the table.
        problems: A sentence on each dump that could not be converted as a whole.
        notes: A sentence on each dump that was converted as a whole and has more bytes than it should.
        explained: Sentences on overflows, each with the name of its dump.
        table: The table.
    """

    dumps: int = 0
    files: int = 0
    kept: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    explained: list[str] = field(default_factory=list)
    table: Path | None = None


def beside(found: Found) -> Path:
    """Return the directory of a dump, relative to the one that was given."""
    return found.folder


def by_operator(found: Found) -> Path:
    """Return a directory for each operator, and in it one for each time."""
    if found.parts is None:
        return Path("unnamed")
    return Path(found.parts.name, found.parts.time)


def check_nothing_is_replaced(dumps: Sequence[Found], out: Path, place: Place) -> None:
    """Check that no file that the conversion may write exists.

    Raises:
        UserError: One exists.
    """
    names: dict[Path, set[str]] = {}
    for found in dumps:
        names.setdefault(out / place(found), set()).add(found.path.name)
    for directory, wanted in names.items():
        with suppress(OSError):
            for path in sorted(directory.iterdir()):
                match = _WRITTEN.fullmatch(path.name)
                if match and match[1] in wanted:
                    raise UserError(
                        f"{path} exists, and nothing is replaced without being asked to.",
                        "Give another directory with -o, or add --overwrite.",
                    )


def convert(
    dumps: Sequence[Found], out: Path, stamp: str, layout: str = HOST, place: Place = beside
) -> Result:
    """Write the arrays of all dumps, and a table of them.

    Args:
        dumps: The dumps.
        out: The directory to write to.
        stamp: The time stamp in the name of the table.
        layout: The layout to write; see ``layouts.place``.
        place: The function that says where the files of a dump go.

    Raises:
        UserError: A file cannot be written, or no dump could be read.
    """
    result = Result()
    make_directory(out)
    table = out / f"convert_{stamp}.csv"
    with (
        writing(table, f"The table {table.name}") as temporary,
        temporary.open("w", encoding="utf-8", newline="") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for number, found in enumerate(dumps):
            tell("converting", number, len(dumps))
            try:
                dump = Dump(found.path)
            except (DamagedDump, OSError) as error:
                result.problems.append(problem_of(found.path, error))
                continue
            result.dumps += 1
            for cells in _write_sections(dump, found, out / place(found), layout, result):
                writer.writerow([neutralise(cell) for cell in cells])
            if dump.problem:
                told = result.problems if dump.is_cut else result.notes
                told.append(f"{found.path} {dump.problem}.")
        if not result.dumps:
            raise UserError(
                f"No dump could be read; the first problem: {result.problems[0]}",
                "Give files or directories that the ACL dump of an NPU wrote.",
            )
    result.table = table
    return result


def problem_of(path: Path, error: Exception) -> str:
    """Return the sentence on a file that cannot be read."""
    if isinstance(error, OSError):
        return f"{path} cannot be read: {error.strerror or error}."
    return f"{path} {printable(str(error))}."


def _write_sections(
    dump: Dump, found: Found, directory: Path, layout: str, result: Result
) -> Iterator[Sequence[str]]:
    parts = found.parts or NameParts("", dump.header.name, "", "", "")
    make_directory(directory)
    for section in dump.header.sections:
        is_tensor = section.side in (INPUT, OUTPUT)
        name, message, array = f"{found.path.name}.{ending_of(section)}", "", ("", "", "")
        try:
            if len(name) + len(".json") > LONGEST_NAME:
                raise DamagedDump("has a name that is too long for the files of its arrays")
            if not is_tensor:
                path = directory / f"{name}.bin"
                with writing(path, f"The file {path.name}") as temporary:
                    temporary.write_bytes(dump.data(section))
            elif dump.is_debug and section.side == OUTPUT:
                path = directory / f"{name}.json"
                message = _write_report(dump, section, path, result)
            else:
                placed = dump.array(section, layout)
                path = directory / f"{name}.npy"
                save(path, placed.array)
                message = placed.note
                result.kept += bool(message)
                array = placed.array.dtype.name, placed.layout, str(list(placed.array.shape))
            result.files += 1
            written = path.name
        except (DamagedDump, UnreadableTensor) as error:
            message, written = str(error), ""
            result.problems.append(f"{found.path} {printable(message)}.")
        yield (
            str(found.path), written, parts.type, parts.name, parts.task, parts.stream, parts.time,
            f"{section.side}.{section.index}", *(_told(section) if is_tensor else ("", "", "", "")), *array,
            message,
        )  # fmt: skip


def _told(section: Section) -> tuple[str, ...]:
    """Return the cells on the recorded type, layout and shapes of an input or output."""
    kind = data_types().get(section.data_type)
    host = str(list(section.host_shape)) if section.has_host_shape else ""
    name = kind.name if kind else str(section.data_type)
    return name, format_name(section.format), str(list(section.shape)), host


def save(path: Path, array: np.ndarray[Any, Any]) -> None:
    """Write an array to a file, which appears when it is complete.

    Raises:
        UserError: It cannot be written.
    """
    with writing(path, f"The file {path.name}") as temporary, temporary.open("wb") as file:
        np.lib.format.write_array(file, np.ascontiguousarray(array).reshape(array.shape), allow_pickle=False)


def _write_report(dump: Dump, section: Section, path: Path, result: Result) -> str:
    """Write the fields of a report of overflows, and return the sentences on it."""
    report = report_of(dump.data(section))
    with writing(path, f"The file {path.name}") as temporary:
        temporary.write_text(safe_json(json.loads(json.dumps(report)), indent=1) + "\n", "utf-8")
    told = list(sentences(report, _dumps_by_task(dump.path)))
    result.explained += [f"{dump.path.name}: {sentence}" for sentence in told]
    return " ".join(told)


def _dumps_by_task(path: Path) -> dict[str, list[str]]:
    """Return the names of the other dumps in the directory of a report, by their task."""
    found: dict[str, list[str]] = {}
    for other in sorted(path.parent.iterdir()):
        parts = parts_of(other.name)
        if parts and other != path and parts.type != "Opdebug" and other.is_file():
            found.setdefault(parts.task, []).append(other.name)
    return found
