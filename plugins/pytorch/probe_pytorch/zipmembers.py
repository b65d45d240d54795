"""The places of the members in a zip file.

The fast way reads the directory of the simple form that ``torch.save`` writes: no comment, no extra fields,
no member beyond 4 GiB, names in ASCII. Any other file, also a damaged one, is read by ``zipfile``.
"""

from __future__ import annotations

import io
import mmap
import struct
import zipfile
from typing import Union

Memory = Union[bytes, mmap.mmap]

_END = struct.Struct("<4s4H2IH")
_LARGE_END = struct.Struct("<4xQ4x2I4Q4sIQI")
"""The end record of zip64 and its locator, which torch writes before the usual end record."""
_LARGE_END_SIZE = 44
"""Size field of the end record of zip64: the number of bytes that follow this field."""
_ENTRY = struct.Struct("<4s2xB1x2H8x2I3H8xI")
_END_MARK, _ENTRY_MARK = b"PK\x05\x06", b"PK\x01\x02"
_LARGE_END_MARK, _LOCATOR_MARK = b"PK\x06\x06", b"PK\x06\x07"
_MAX_VERSION = 63
"""The newest version of the zip format that zipfile reads, times ten: 6.3."""
_ZIP64_MARK = 0xFFFFFFFF
"""The mark for a size or an offset that only zip64 can hold."""


Member = tuple[int, int, int, int, int]
"""A member of the directory: flags, method, compressed size, size, offset of its header."""


def read_members(memory: Memory) -> dict[str, Member]:
    """Return the members of a zip file by name.

    Raises:
        zipfile.BadZipFile: The data is not a zip file.
        NotImplementedError: The zip file has a feature that zipfile cannot read.
    """
    plain = _read_plain_members(memory)
    if plain is not None:
        return plain
    file = io.BytesIO(memory) if isinstance(memory, bytes) else memory
    with zipfile.ZipFile(file) as directory:  # type: ignore[arg-type]  # a map reads and seeks
        return {
            member.filename: (
                member.flag_bits,
                member.compress_type,
                member.compress_size,
                member.file_size,
                member.header_offset,
            )
            for member in directory.infolist()
        }


def _read_plain_members(memory: Memory) -> dict[str, Member] | None:
    at = len(memory) - _END.size
    if at < 0:
        return None
    mark, disk, first_disk, disk_entry_count, count, length, start, comment = _END.unpack_from(memory, at)
    if mark != _END_MARK or comment:
        return None
    wide = at - _LARGE_END.size
    if wide >= 0 and memory[wide : wide + 4] == _LARGE_END_MARK:
        at = wide
        size, disk, first_disk, disk_entry_count, count, length, start, locator, its_disk, found_at, disks = (
            _LARGE_END.unpack_from(memory, at)
        )
        if size != _LARGE_END_SIZE or locator != _LOCATOR_MARK or its_disk or found_at != at or disks > 1:
            return None
    elif memory[max(0, at - 20) : max(0, at - 16)] == _LOCATOR_MARK:
        return None
    if disk or first_disk or disk_entry_count != count or start + length != at:
        return None
    directory = memory[start:at]
    plain: dict[str, Member] = {}
    at = 0
    for _ in range(count):
        if at + _ENTRY.size > length:
            return None
        mark, version, flags, method, packed, size, name, extra, note, offset = _ENTRY.unpack_from(directory, at)
        at += _ENTRY.size
        text = directory[at : at + name]
        at += name + note
        if mark != _ENTRY_MARK or packed == _ZIP64_MARK or size == _ZIP64_MARK or offset == _ZIP64_MARK:
            return None
        if at > length or extra or version > _MAX_VERSION or not text.isascii() or b"\0" in text:
            return None
        plain[text.decode()] = flags, method, packed, size, offset
    return plain if at == length else None
