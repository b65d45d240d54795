"""Reading of the zip archives that ``torch.save`` writes, also within other files."""

from __future__ import annotations

import io
import struct
import zipfile
from typing import Any

from probe_recording.reading.pickle_data import PickleError

from probe_check.checkpoint.byte_source import ByteSource
from probe_check.checkpoint.checkpoint_pickle import StorageReference, interpret_checkpoint
from probe_check.checkpoint.errors import UnreadableCheckpoint

MAX_PICKLE_BYTES = 256 << 20
_LOCAL_HEADER = struct.Struct("<4s22x2H")
ZIP_MARK = b"PK\x03\x04"


class _Window(io.RawIOBase):
    """A range of bytes as a file that can be read and sought."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        base = (0, self._position, self._source.size)[whence]
        if base + offset < 0:
            raise ValueError("negative position")
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._source.size - self._position)
        count = left if size is None or size < 0 else min(size, left)
        data = bytes(self._source.read(self._position, count)) if count else b""
        self._position += count
        return data


class TorchArchive:
    """A zip archive of ``torch.save``, in a file or in a part of it.

    Args:
        source: The bytes.

    Raises:
        UnreadableCheckpoint: The source is not such an archive.
    """

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        try:
            with zipfile.ZipFile(_Window(source)) as archive:
                self._members = {member.filename: member for member in archive.infolist()}
        except (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error, EOFError):
            raise self._create_error("is no valid zip archive: it is cut off or damaged") from None
        roots = [name[:-9] for name in self._members if name.endswith("/data.pkl")]
        if len(roots) != 1:
            kind = "TorchScript" if any(name.endswith("/constants.pkl") for name in self._members) else ""
            raise self._create_error(f"is no archive of torch.save: it has {kind or 'no single data.pkl'}")
        self._root = roots[0]
        if f"{self._root}/constants.pkl" in self._members:
            raise self._create_error("is a TorchScript archive, which is not supported")
        self.is_big_endian = self._is_big_endian()

    def read_content(self) -> Any:
        """Return the data of the archive; tensors are descriptions.

        Raises:
            UnreadableCheckpoint: The pickle is damaged.
        """
        pickled = self._find_member("data.pkl")
        if pickled.size > MAX_PICKLE_BYTES:
            raise self._create_error(f"has a pickle of {pickled.size} bytes, which is larger than supported")
        try:
            return interpret_checkpoint(bytes(pickled.read(0, pickled.size)))[0]
        except PickleError as error:
            raise self._create_error(f"cannot be read: {error}") from None

    def find_storage(self, reference: StorageReference) -> ByteSource:
        """Return the bytes of a storage."""
        return self._find_member(f"data/{reference.key}")

    def _is_big_endian(self) -> bool:
        if f"{self._root}/byteorder" not in self._members:
            return False
        member = self._find_member("byteorder")
        order = bytes(member.read(0, min(member.size, 16)))
        if order not in (b"", b"little", b"big"):
            raise self._create_error("has a byte order that is neither little nor big")
        return order == b"big"

    def _find_member(self, name: str) -> ByteSource:
        member = self._members.get(f"{self._root}/{name}")
        if member is None:
            raise self._create_error(f"lacks {name}")
        if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
            raise self._create_error(f"is not written by torch.save: {name} is compressed or encrypted")
        header = member.header_offset
        if not 0 <= header <= self._source.size - _LOCAL_HEADER.size:
            raise self._create_error(f"is damaged: {name} is outside of the file")
        mark, names, extras = _LOCAL_HEADER.unpack(self._source.read(header, _LOCAL_HEADER.size))
        start = header + _LOCAL_HEADER.size + names + extras
        if mark != ZIP_MARK or member.file_size != member.compress_size:
            raise self._create_error(f"is damaged: {name} does not begin where the directory states")
        if start + member.file_size > self._source.size:
            raise self._create_error(f"is cut off within {name}")
        return self._source.select_range(start, member.file_size)

    def _create_error(self, problem: str) -> UnreadableCheckpoint:
        return UnreadableCheckpoint(self._source.path, problem)
