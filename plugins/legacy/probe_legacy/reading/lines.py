"""Rows of the text files that the older tools named ``.pkl``: one JSON value a line, never unpickled.

Blank lines are skipped, and so is a last line that was not written completely. An earlier damaged line is
skipped with a warning, because a tool that was killed and started again appended to its file.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from probe_core.errors import UserError, format_count, make_printable
from probe_core.files.user_files import check_regular
from probe_core.plugins.manager import PluginWarning
from probe_core.progress import report_progress

MAX_LINE_BYTES = 256 << 20
"""Maximum number of bytes of a line; lines of torch_npu.hooks contain all values of a tensor."""
MAX_NAME_LENGTH = 1000
"""Maximum number of characters of the name of a row."""
HEAD = 1 << 16
"""Number of bytes at the beginning of a file from which its format is detected."""
HEAD_LINES = 20
PROGRESS_INTERVAL_BYTES = 4 << 20
"""Bytes read between two reports of progress."""

PTDBG, HOOKS, PICKLE = "ptdbg", "hooks", "pickle"
_ROW = re.compile(rb'\s*\[\s*"([^"]{1,%d})"\s*,\s*(.{0,40})' % MAX_NAME_LENGTH, re.DOTALL)
_FLAG = re.compile(rb"-?\d{1,9}\s*,")
_HOOKS_NAME = re.compile(rb"_(?:forward|backward)_(?:input|output|stack_info)[.\d]*$")
_PICKLE_PREFIXES = (b"\x80", b"(lp", b"(dp", b"]q")
Scan = Callable[[str, int], tuple[Any, int]]
"""A function that returns the JSON value at an index of a text, and the index after this value."""
scan: Scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
scan_unparsed: Scan = json.JSONDecoder(parse_float=str.encode).scan_once  # type: ignore[attr-defined]
"""A scan for rows whose numbers are rarely used: it returns a float as ``bytes``, which ``float`` can convert."""
SHORT = 1024
"""Maximum number of characters of a row of samples; longer lines contain all values of a large tensor."""
CHUNK_BYTES = 1 << 20


class DamagedRow(ValueError):
    """An error for a row that violates the format. Its message is the predicate of a sentence about the row."""


def detect_format(path: Path) -> str | None:
    """Detect the format of a file from its first lines: ``ptdbg``, ``hooks`` or ``pickle``; None if unknown."""
    try:
        check_regular(path)
        with path.open("rb") as file:
            head = file.read(HEAD)
    except OSError:
        return None
    if head.startswith(_PICKLE_PREFIXES):
        return PICKLE
    for line in head.split(b"\n", HEAD_LINES)[:HEAD_LINES]:
        row = _ROW.match(line)
        if row is None:
            continue
        name, rest = row.groups()
        if _FLAG.match(rest) or (name.endswith(b"stack_info") and rest.startswith(b"[")):
            return PTDBG
        if _HOOKS_NAME.search(name):
            return HOOKS
    return None


def read_lines(path: Path, add_row: Callable[[Any, int], None], scan_short: Scan = scan) -> str:
    """Call ``add_row`` with the value of each line, and return the reason why rows may be missing at the end.

    Args:
        path: The file.
        add_row: A function that receives the value of a line and its offset in bytes. It raises ``DamagedRow``
            to skip the line.
        scan_short: The function that parses lines of up to ``SHORT`` characters of ASCII.

    Raises:
        UserError: The file cannot be read, or contains no row.
    """
    damaged: list[tuple[int, str]] = []
    number = rows = reported_offset = 0
    try:
        check_regular(path)
        size = path.stat().st_size
        with path.open("rb") as file:
            for number, (begin, value) in enumerate(_iterate_values(file, scan_short), 1):
                if value is BLANK:
                    continue
                try:
                    if type(value) is DamagedRow:
                        raise value
                    add_row(value, begin)
                    rows += 1
                except DamagedRow as error:
                    damaged.append((number, str(error)))
                    if len(damaged) > max(MAX_DAMAGED_LINES, rows):
                        break
                if begin >= reported_offset + PROGRESS_INTERVAL_BYTES:
                    reported_offset = begin
                    report_progress(f"reading {path.name}", begin, size)
    except OSError as error:
        raise UserError(
            f"{path} cannot be read: {error.strerror or error}.", "Check the path and its permissions."
        ) from None
    return _check_damage(path, damaged, number, rows)


MAX_DAMAGED_LINES = 100
"""Number of damaged lines above which reading stops, unless the file has more valid rows."""


BLANK = object()
"""Stand-in for the value of a blank line."""


def _iterate_values(file: Any, scan_short: Scan) -> Iterator[tuple[int, Any]]:
    """Yield the offset of each line with its value, ``BLANK`` or ``DamagedRow``.

    For speed, ASCII lines are parsed within the text of many lines, without splitting it.
    """
    for begin, data in _iterate_chunks(file):
        text = data.decode() if data.isascii() else ""
        at = 0
        while at < len(data):
            if text:
                stop = text.find("\n", at)
                try:
                    value, end = (scan_short if stop - at <= SHORT else scan)(text, at)
                except (ValueError, StopIteration, RecursionError):
                    end = -1
                if end == stop:
                    yield begin + at, value
                    at = stop + 1
                    continue
            else:
                stop = data.find(b"\n", at)
            line = data[at:stop]
            if not line or line.isspace():
                yield begin + at, BLANK
            else:
                try:
                    yield begin + at, parse_value(line)
                except DamagedRow as error:
                    yield begin + at, error
            at = stop + 1


def _iterate_chunks(file: Any) -> Iterator[tuple[int, bytes]]:
    """Yield chunks of complete lines with their offsets; a line of more than ``MAX_LINE_BYTES`` bytes is split.

    Each chunk ends with a line feed, which is added to the last line of the file if the line has none.
    """
    begin, rest = 0, b""
    while data := file.read(max(CHUNK_BYTES, len(rest))):
        rest += data
        end = rest.rfind(b"\n") + 1
        if end:
            yield begin, rest[:end]
            begin, rest = begin + end, rest[end:]
        if len(rest) > MAX_LINE_BYTES:
            yield begin, rest + b"\n"
            begin, rest = begin + len(rest), b""
    if rest:
        yield begin, rest + b"\n"


def parse_value(data: bytes) -> Any:
    """Return the JSON value of one line.

    Raises:
        DamagedRow: The line is not valid JSON.
    """
    text = data.decode("utf-8", "replace").strip()
    try:
        value, end = scan(text, 0)
    except RecursionError:
        raise DamagedRow("nests values too deeply") from None
    except (ValueError, StopIteration):
        raise DamagedRow("is not valid JSON") from None
    if end < len(text):
        raise DamagedRow("holds more than one JSON value")
    return value


def _check_damage(path: Path, damaged: list[tuple[int, str]], last: int, rows: int) -> str:
    """Warn about damaged lines, and return the reason why rows may be missing at the end of the file."""
    if not rows:
        if not damaged:
            raise UserError(f"{path} is empty.", "Record the run again, or give another file.")
        number, why = damaged[0]
        raise UserError(
            f"{path} holds no row of ptdbg_ascend or torch_npu.hooks: line {number} {make_printable(why)}.",
            "Give the .pkl that one of these tools wrote.",
        )
    is_cut = bool(damaged) and damaged[-1][0] == last
    before = damaged[: len(damaged) - is_cut]
    if before:
        number, why = before[0]
        warnings.warn(
            f"{path}: skipped {format_count(len(before), 'damaged line')}; the first is line {number}, "
            f"which {make_printable(why)}.",
            PluginWarning,
            stacklevel=4,
        )
    return f"line {last} of {path.name} is cut off or damaged" if is_cut else ""


def refuse_pickle(path: Path) -> UserError:
    """Return the error for a file that is a real pickle."""
    return UserError(
        f"{path} is a real pickle, which only the first torch_npu.hooks of July 2022 wrote; a pickle can run "
        "code when it is opened, so probe never opens one.",
        "Record the run again, or write its rows as lines of JSON: [name, values, dtype, shape].",
    )
