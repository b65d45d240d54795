"""One ACL dump: its header, and its sections as arrays."""

from __future__ import annotations

import re
from math import prod
from pathlib import Path
from typing import NamedTuple

from probe_legacy.acl.data_types import RAW_BYTES, load_data_types
from probe_legacy.acl.header import BUFFER, INPUT, OUTPUT, SPACE, Section, read_header
from probe_legacy.acl.layouts import ArrayInLayout, Shapes, format_name, place
from probe_legacy.acl.wire import DamagedDump

MAX_ARRAY_BYTES = 1 << 62
"""Limit on the bytes of an array that numpy can address."""
MAX_NUMPY_DIMENSIONS = 32
"""Limit on the dimensions of an array of any numpy."""
DEBUG_NAME, DEBUG_START = "Node_OpDebug", "Opdebug."
"""The operator that reports overflows, and the beginning of its files' names."""
_NAME = re.compile(
    r"(?P<type>[^.]+)\.(?P<name>[^.]+)\.(?P<task>\d+)(?:\.(?P<stream>\d+))?\.(?P<time>\d+)(?:\.\d+){0,4}"
)


class NameParts(NamedTuple):
    """The parts of a dump's file name: type and name of the operator, task, stream, time in microseconds."""

    type: str
    name: str
    task: str
    stream: str
    time: str


def parse_dump_name(name: str) -> NameParts | None:
    """Return the parts of a file name; None if it is not that of a dump."""
    match = _NAME.fullmatch(name)
    return match and NameParts(match["type"], match["name"], match["task"], match["stream"] or "", match["time"])


class AclDump:
    """A dump of one operator.

    Args:
        path: The file.

    Attributes:
        header: Its header.
        problem: What is wrong with the length of the file, as the end of a sentence; empty if it is right.

    Raises:
        DamagedDump: The file is no ACL dump, or its header is damaged.
        OSError: The file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header = read_header(path)
        extra = self.header.size - self.header.end
        self.problem = ""
        if extra < 0:
            self.problem = f"is cut off: its header promises {self.header.end} bytes and it has {self.header.size}"
        elif extra:
            self.problem = f"has {extra} bytes more than its header promises"
        if not self.header.sections:
            raise DamagedDump("has a header without inputs and outputs")

    @property
    def is_cut(self) -> bool:
        """True if the file is shorter than its header promises."""
        return self.header.size < self.header.end

    @property
    def is_debug(self) -> bool:
        """True for a report of overflows."""
        return self.path.name.startswith(DEBUG_START) or self.header.name == DEBUG_NAME

    def is_whole(self, section: Section) -> bool:
        """Return True if the file holds all bytes of a section."""
        return section.offset + section.size <= self.header.size

    def read_data(self, section: Section) -> memoryview:
        """Return the bytes of a section.

        Raises:
            DamagedDump: The file does not hold all of them.
            OSError: The file cannot be read.
        """
        if not self.is_whole(section):
            subject = f"{section.side} {section.index}"
            raise DamagedDump(f"ends before the {section.size} bytes of {subject} that begin at {section.offset}")
        with self.path.open("rb") as file:
            file.seek(section.offset)
            data = file.read(section.size)
        if len(data) < section.size:
            raise DamagedDump("was cut off while it was read")
        return memoryview(data)

    def read_array(self, section: Section, wanted: str) -> ArrayInLayout:
        """Return an input or output as an array in the wanted layout.

        Bytes that do not fit their type or shape are returned in one dimension, and the note says so.

        Raises:
            DamagedDump: The file does not hold all bytes of the section.
            OSError: The file cannot be read.
        """
        data = self.read_data(section)
        layout = format_name(section.format)
        kind = load_data_types().get(section.data_type)
        if kind is None:
            return ArrayInLayout(
                RAW_BYTES.decode_values(data), layout, f"its data type {section.data_type} is not known"
            )
        if kind.code == "raw":
            return ArrayInLayout(
                RAW_BYTES.decode_values(data), layout, f"values of the type {kind.name} are kept as bytes"
            )
        count = _count(section.shape)
        if count is None or not kind.can_hold(count, section.size):
            values = kind.decode_values(data) if not section.size * 8 % kind.bits else RAW_BYTES.decode_values(data)
            return ArrayInLayout(
                values, layout, f"{section.size} bytes are no {kind.name} of shape {_format_shape(section.shape)}"
            )
        array = kind.decode_values(data, count).reshape(section.shape)
        original = section.host_format
        name = format_name(original) if original is not None and original != section.format else ""
        host = section.host_shape if section.has_host_shape else None
        if host is not None and _count(host) is None:
            host = None
        return place(array, layout, Shapes(host, name, section.sub_format), wanted)


def _count(shape: tuple[int, ...]) -> int | None:
    """Return the number of elements of a shape; None if no array has it."""
    if len(shape) > MAX_NUMPY_DIMENSIONS or prod(size or 1 for size in shape) * 16 > MAX_ARRAY_BYTES:
        return None
    return prod(shape)


def _format_shape(shape: tuple[int, ...]) -> str:
    text = str(list(shape[:8]))
    return text if len(shape) <= 8 else f"{text[:-1]}, …]"


def format_ending(section: Section) -> str:
    """Return the end of the name of a section's file, without its suffix."""
    if section.side in (INPUT, OUTPUT):
        return f"{section.side}.{section.index}"
    if section.side == BUFFER:
        return f"{'l1' if section.kind == 0 else section.kind}buffer.{section.index}"
    assert section.side == SPACE
    return f"space.{section.index}"
