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
from probe_reporters.api import neutralise

from probe_core.errors import UnreadableTensor, UserError, make_printable
from probe_core.files.atomic import make_directory, write_atomically
from probe_core.progress import report_progress
from probe_core.safe_text import format_safe_json
from probe_legacy.acl.data_types import load_data_types
from probe_legacy.acl.debug import describe_overflows, parse_report
from probe_legacy.acl.dump import AclDump, NameParts, format_ending, parse_dump_name
from probe_legacy.acl.header import INPUT, OUTPUT, Section
from probe_legacy.acl.layouts import HOST_LAYOUT, format_name
from probe_legacy.acl.tree import DumpCandidate
from probe_legacy.acl.wire import DamagedDump

COLUMNS = (
    "Source", "File", "Op type", "Op name", "Task", "Stream", "Time", "Section", "Data type", "Device layout",
    "Device shape", "Program shape", "Written dtype", "Written layout", "Written shape", "Message",
)  # fmt: skip
_WRITTEN_NAME = re.compile(r"(.+)\.(?:(?:input|output|space)\.\d+|\w{1,20}buffer\.\d+)\.(?:npy|json|bin)", re.DOTALL)
"""The name of a file that a conversion writes; the group is the name of the dump."""
MAX_NAME_LENGTH = 255

Place = Callable[[DumpCandidate], Path]
"""A function that returns the directory, below the output, for the files of a dump."""


@dataclass
class ConversionResult:
    """The result of a conversion.

    Attributes:
        dumps: The number of dumps that were read.
        files: The number of files that were written, without the table.
        unconverted_count: The number of arrays that are not in the wanted shape, for a reason in the table.
        problems: A sentence on each dump that could not be converted as a whole.
        notes: A sentence on each dump that was converted as a whole and has more bytes than it should.
        explained: Sentences on overflows, each with the name of its dump.
        table: The table.
    """

    dumps: int = 0
    files: int = 0
    unconverted_count: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    explained: list[str] = field(default_factory=list)
    table: Path | None = None


def place_beside(candidate: DumpCandidate) -> Path:
    """Return the directory of a dump, relative to the one that was given."""
    return candidate.folder


def place_by_operator(candidate: DumpCandidate) -> Path:
    """Return a directory for each operator, and in it one for each time."""
    if candidate.parts is None:
        return Path("unnamed")
    return Path(candidate.parts.name, candidate.parts.time)


def check_nothing_is_replaced(dumps: Sequence[DumpCandidate], out: Path, place: Place) -> None:
    """Check that no file that the conversion may write exists.

    Raises:
        UserError: One exists.
    """
    names: dict[Path, set[str]] = {}
    for candidate in dumps:
        names.setdefault(out / place(candidate), set()).add(candidate.path.name)
    for directory, wanted in names.items():
        with suppress(OSError):
            for path in sorted(directory.iterdir()):
                match = _WRITTEN_NAME.fullmatch(path.name)
                if match and match[1] in wanted:
                    raise UserError(
                        f"{path} exists, and nothing is replaced without being asked to.",
                        "Give another directory with -o, or add --overwrite.",
                    )


def convert(
    dumps: Sequence[DumpCandidate], out: Path, stamp: str, layout: str = HOST_LAYOUT, place: Place = place_beside
) -> ConversionResult:
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
    result = ConversionResult()
    make_directory(out)
    table = out / f"convert_{stamp}.csv"
    with (
        write_atomically(table, f"The table {table.name}") as temporary,
        temporary.open("w", encoding="utf-8", newline="") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for number, candidate in enumerate(dumps):
            report_progress("converting", number, len(dumps))
            for cells in _convert_dump(candidate, out / place(candidate), layout, result):
                writer.writerow([neutralise(cell) for cell in cells])
        if not result.dumps:
            raise UserError(
                f"No dump could be read; the first problem: {result.problems[0]}",
                "Give files or directories that the ACL dump of an NPU wrote.",
            )
    result.table = table
    return result


def _convert_dump(
    candidate: DumpCandidate, directory: Path, layout: str, result: ConversionResult
) -> Iterator[Sequence[str]]:
    """Write the arrays of a dump, and yield a row for each; note its problems in the result."""
    try:
        dump = AclDump(candidate.path)
    except (DamagedDump, OSError) as error:
        result.problems.append(describe_problem(candidate.path, error))
        return
    result.dumps += 1
    yield from _write_sections(dump, candidate, directory, layout, result)
    if dump.problem:
        messages = result.problems if dump.is_cut else result.notes
        messages.append(f"{candidate.path} {dump.problem}.")


def describe_problem(path: Path, error: Exception) -> str:
    """Return the sentence on a file that cannot be read."""
    if isinstance(error, OSError):
        return f"{path} cannot be read: {error.strerror or error}."
    return f"{path} {make_printable(str(error))}."


def _write_sections(
    dump: AclDump, candidate: DumpCandidate, directory: Path, layout: str, result: ConversionResult
) -> Iterator[Sequence[str]]:
    parts = candidate.parts or NameParts("", dump.header.name, "", "", "")
    make_directory(directory)
    for section in dump.header.sections:
        is_tensor = section.side in (INPUT, OUTPUT)
        name, message, array = f"{candidate.path.name}.{format_ending(section)}", "", ("", "", "")
        try:
            if len(name) + len(".json") > MAX_NAME_LENGTH:
                raise DamagedDump("has a name that is too long for the files of its arrays")
            if not is_tensor:
                path = directory / f"{name}.bin"
                with write_atomically(path, f"The file {path.name}") as temporary:
                    temporary.write_bytes(dump.read_data(section))
            elif dump.is_debug and section.side == OUTPUT:
                path = directory / f"{name}.json"
                message = _write_report(dump, section, path, result)
            else:
                placed = dump.read_array(section, layout)
                path = directory / f"{name}.npy"
                save(path, placed.array)
                message = placed.note
                result.unconverted_count += bool(message)
                array = placed.array.dtype.name, placed.layout, str(list(placed.array.shape))
            result.files += 1
            written = path.name
        except (DamagedDump, UnreadableTensor) as error:
            message, written = str(error), ""
            result.problems.append(f"{candidate.path} {make_printable(message)}.")
        yield (
            str(candidate.path), written, parts.type, parts.name, parts.task, parts.stream, parts.time,
            f"{section.side}.{section.index}", *(_format_section(section) if is_tensor else ("", "", "", "")), *array,
            message,
        )  # fmt: skip


def _format_section(section: Section) -> tuple[str, ...]:
    """Return the cells on the recorded type, layout and shapes of an input or output."""
    kind = load_data_types().get(section.data_type)
    host = str(list(section.host_shape)) if section.has_host_shape else ""
    name = kind.name if kind else str(section.data_type)
    return name, format_name(section.format), str(list(section.shape)), host


def save(path: Path, array: np.ndarray[Any, Any]) -> None:
    """Write an array to a file, which appears when it is complete.

    Raises:
        UserError: It cannot be written.
    """
    with write_atomically(path, f"The file {path.name}") as temporary, temporary.open("wb") as file:
        np.lib.format.write_array(file, np.ascontiguousarray(array).reshape(array.shape), allow_pickle=False)


def _write_report(dump: AclDump, section: Section, path: Path, result: ConversionResult) -> str:
    """Write the fields of a report of overflows, and return the sentences on it."""
    report = parse_report(dump.read_data(section))
    with write_atomically(path, f"The file {path.name}") as temporary:
        temporary.write_text(format_safe_json(json.loads(json.dumps(report)), indent=1) + "\n", "utf-8")
    report_sentences = list(describe_overflows(report, _group_dumps_by_task(dump.path)))
    result.explained += [f"{dump.path.name}: {sentence}" for sentence in report_sentences]
    return " ".join(report_sentences)


def _group_dumps_by_task(path: Path) -> dict[str, list[str]]:
    """Return the names of the other dumps in the directory of a report, by their task."""
    names_by_task: dict[str, list[str]] = {}
    for sibling in sorted(path.parent.iterdir()):
        parts = parse_dump_name(sibling.name)
        if parts and sibling != path and parts.type != "Opdebug" and sibling.is_file():
            names_by_task.setdefault(parts.task, []).append(sibling.name)
    return names_by_task
