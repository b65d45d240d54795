"""The header of an ACL dump: what the file holds, and where (docs/legacy.md#acl-dumps).

A file begins with the length of the header as 8 bytes, little endian; the header, a protobuf message
``DumpData``; then the bytes of all inputs, outputs, buffers and workspaces, one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from probe_core.files.user_files import check_regular
from probe_legacy.acl.wire import Budget, DamagedDump, Field, iterate_fields, iterate_numbers

MAX_HEADER_BYTES = 16 << 20
"""Limit on the bytes of a header; that of an operator with 100 inputs has about 10,000."""
MAX_SECTIONS = 2_000
"""Limit on the inputs, outputs, buffers and workspaces of a file."""
MAX_DIMENSIONS = 64
MAX_NAME_LENGTH = 1000
LENGTH = 8
"""Number of bytes of the header's length."""
SMALL_DEVICE_MAGIC = b"ZZZZ"
"""The beginning of another format, which has no header of this kind."""

INPUT, OUTPUT, BUFFER, SPACE = "input", "output", "buffer", "space"
SIDES = (INPUT, OUTPUT, BUFFER, SPACE)
"""The kinds of sections, in the order of the file."""
_SIDE_BY_FIELD = {3: OUTPUT, 4: INPUT, 5: BUFFER, 8: SPACE}
_FIELDS: Mapping[str, Mapping[str, int]] = {
    OUTPUT: {"data_type": 1, "format": 2, "shape": 3, "original_op": 4, "size": 6, "host_shape": 7,
             "sub_format": 8},
    INPUT: {"data_type": 1, "format": 2, "shape": 3, "size": 5, "host_shape": 6, "sub_format": 7},
    BUFFER: {"kind": 1, "size": 3},
    SPACE: {"kind": 1, "size": 3},
}  # fmt: skip
"""The numbers of the fields of each kind of section; inputs and outputs differ."""
_ORIGINAL_FORMAT = 4
_VERSION, _TIME, _NAME = 1, 2, 6


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a dump: an input, an output, a buffer or a workspace.

    Attributes:
        side: One of ``SIDES``.
        index: Its number among those of its side.
        size: Its length in bytes, as the header has it.
        offset: Its place in the file.
        data_type: The number of its data type.
        format: The number of the layout in which the device held it.
        shape: Its shape in that layout.
        host_shape: Its shape in the program; empty if not recorded, and for numbers.
        has_host_shape: True if the header has a host shape, be it that of a number.
        host_format: The number of the layout in the program; None if not recorded.
        sub_format: The number of groups of a convolution's weights.
        kind: The number of the kind of a buffer or workspace.
    """

    side: str
    index: int
    size: int
    offset: int
    data_type: int = 0
    format: int = 0
    shape: tuple[int, ...] = ()
    host_shape: tuple[int, ...] = ()
    has_host_shape: bool = False
    host_format: int | None = None
    sub_format: int = 0
    kind: int = 0


class AclHeader(NamedTuple):
    """The content of a header.

    Attributes:
        version: The version of the format.
        time: The time of the dump in microseconds since 1970; 0 if not recorded.
        name: The name of the operator.
        sections: All sections, in the order of the file.
        end: The length that the file should have.
        size: The length that it has.
    """

    version: str
    time: int
    name: str
    sections: tuple[Section, ...]
    end: int
    size: int


def read_header(path: Path) -> AclHeader:
    """Read the header of a file.

    Raises:
        DamagedDump: The file is no ACL dump, or its header is damaged.
        OSError: The file cannot be read.
    """
    check_regular(path)
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        start = file.read(LENGTH)
        length = int.from_bytes(start, "little")
        if start.startswith(SMALL_DEVICE_MAGIC):
            raise DamagedDump("begins with 0x5a5a5a5a, as dumps of small devices do, which are not read")
        if len(start) < LENGTH or not length:
            raise DamagedDump("has no header")
        if length > size - LENGTH:
            raise DamagedDump(f"promises a header of {length} bytes and holds {size - LENGTH} after its length")
        if length > MAX_HEADER_BYTES:
            raise DamagedDump(f"has a header of {length} bytes, more than any dump has")
        data = file.read(length)
    if len(data) < length:
        raise DamagedDump("was cut off while it was read")
    return parse_header(data, size)


def parse_header(data: bytes, size: int) -> AclHeader:
    """Return the content of a header.

    Args:
        data: The bytes of the header, without its length.
        size: The length of the file.

    Raises:
        DamagedDump: The header is damaged.
    """
    budget = Budget()
    texts: dict[int, str] = {}
    time = 0
    parts: dict[str, list[memoryview]] = {side: [] for side in SIDES}
    for number, value in iterate_fields(memoryview(data), budget):
        if number in (_VERSION, _NAME):
            texts[number] = _decode_text(value)
        elif number == _TIME:
            time = _check_integer(value, "dump_time")
        elif side := _SIDE_BY_FIELD.get(number):
            parts[side].append(_check_bytes(value, side))
    if sum(map(len, parts.values())) > MAX_SECTIONS:
        raise DamagedDump(f"has a header with more than {MAX_SECTIONS} inputs and outputs")
    sections: list[Section] = []
    offset = LENGTH + len(data)
    for side in SIDES:
        for index, part in enumerate(parts[side]):
            sections.append(_parse_section(side, index, offset, part, budget))
            offset += sections[-1].size
    return AclHeader(texts.get(_VERSION, ""), time, texts.get(_NAME, ""), tuple(sections), offset, size)


def _parse_section(side: str, index: int, offset: int, part: memoryview, budget: Budget) -> Section:
    names = {number: name for name, number in _FIELDS[side].items()}
    field_values: dict[str, int] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    original: int | None = None
    for number, value in iterate_fields(part, budget):
        name = names.get(number)
        if name in ("shape", "host_shape"):
            shapes[name] = _parse_shape(_check_bytes(value, name), budget)
        elif name == "original_op":
            original = _parse_original_format(_check_bytes(value, name), budget)
        elif name is not None:
            field_values[name] = _check_integer(value, name)
    return Section(
        side=side,
        index=index,
        offset=offset,
        size=field_values.pop("size", 0),
        shape=shapes.get("shape", ()),
        host_shape=shapes.get("host_shape", ()),
        has_host_shape="host_shape" in shapes,
        host_format=original,
        **field_values,
    )


def _parse_shape(part: memoryview, budget: Budget) -> tuple[int, ...]:
    sizes: list[int] = []
    for number, value in iterate_fields(part, budget):
        if number == 1:
            for size in iterate_numbers(value, budget):
                sizes.append(size)
                if len(sizes) > MAX_DIMENSIONS:
                    raise DamagedDump(f"has a header with a shape of more than {MAX_DIMENSIONS} dimensions")
    return tuple(sizes)


def _parse_original_format(part: memoryview, budget: Budget) -> int:
    original_format = 0
    for number, value in iterate_fields(part, budget):
        if number == _ORIGINAL_FORMAT:
            original_format = _check_integer(value, "format")
    return original_format


def _check_integer(value: Field, name: str) -> int:
    if not isinstance(value, int):
        raise DamagedDump(f"has a header whose {name} is no number")
    return value


def _check_bytes(value: Field, name: str) -> memoryview:
    if isinstance(value, int):
        raise DamagedDump(f"has a header whose {name} is a number")
    return value


def _decode_text(value: Field) -> str:
    return bytes(_check_bytes(value, "text")[: 4 * MAX_NAME_LENGTH]).decode("utf-8", "replace")[:MAX_NAME_LENGTH]
