"""Reading of files of ``torch.save`` without a zip archive: five pickles, then the storages.

Format: ``_legacy_save`` of torch/serialization.py. Each storage is the
number of its elements (8 bytes) and its bytes.
"""

from __future__ import annotations

from typing import Any

from probe_recording.reading.pickle_data import PickleError, TruncatedPickle

from probe_check.checkpoint.byte_source import ByteSource
from probe_check.checkpoint.checkpoint_pickle import StorageReference, interpret_checkpoint, load_pickle_names
from probe_check.checkpoint.elements import get_element_type
from probe_check.checkpoint.errors import TensorProblem, UnreadableCheckpoint
from probe_check.checkpoint.nested import iterate_descriptions
from probe_check.checkpoint.torch_archive import MAX_PICKLE_BYTES

LEGACY_MARK = bytes.fromhex("80028a0a6cfc9c46f9206aa850192e")
"""The pickled magic number at the start of the file."""
_CHUNK_BYTES = 1 << 20


class LegacyFile:
    """A file of ``torch.save`` without an archive.

    Args:
        source: The bytes.

    Raises:
        UnreadableCheckpoint: The file is damaged.
    """

    is_big_endian = False

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._position = 0
        try:
            self._read_pickle()  # the magic number
            protocol, system = self._read_pickle(), self._read_pickle()
            self._content, keys = self._read_pickle(), self._read_pickle()
            if protocol != 1001 or not isinstance(system, dict) or not isinstance(keys, list):
                raise PickleError("it does not begin as torch.save begins a file")
            self.is_big_endian = system.get("little_endian") is False
            self._storages = self._find_storages(keys)
        except PickleError as error:
            raise self._create_error(f"cannot be read: {error}") from None

    def read_content(self) -> Any:
        """Return the data of the file; tensors are descriptions."""
        return self._content

    def find_storage(self, reference: StorageReference) -> ByteSource:
        """Return the bytes of a storage."""
        source = self._storages.get(reference.key)
        if source is None:
            raise self._create_error(f"is cut off: it lacks storage {reference.key:.40}")
        return source

    def _read_pickle(self) -> Any:
        """Return the data of the next pickle; of a long one, more is read until it is complete."""
        size = _CHUNK_BYTES
        while True:
            left = min(size, self._source.size - self._position)
            if left > MAX_PICKLE_BYTES:
                raise PickleError("its pickle is larger than supported")
            program = bytes(self._source.read(self._position, left))
            try:
                value, length = interpret_checkpoint(program)
            except TruncatedPickle:
                if left < size:
                    raise
                size *= 8
                continue
            self._position += length
            return value

    def _find_storages(self, keys: list[Any]) -> dict[str, ByteSource]:
        """Return the bytes of each storage, by its key."""
        kinds = {d.key: d.kind for d in iterate_descriptions(self._content) if isinstance(d, StorageReference)}
        places: dict[str, ByteSource] = {}
        for key in keys:
            kind = kinds.get(str(key))
            if kind is None:
                break
            try:
                size = get_element_type(load_pickle_names()["storages"].get(kind, kind)).size
            except TensorProblem as problem:
                raise self._create_error(f"has a storage that {problem}") from None
            if self._position + 8 > self._source.size:
                raise self._create_error("is cut off before a storage")
            count = int.from_bytes(self._source.read(self._position, 8), "little", signed=True)
            start = self._position + 8
            if count < 0 or start + count * size > self._source.size:
                raise self._create_error("is cut off within a storage")
            places[str(key)] = self._source.select_range(start, count * size)
            self._position = start + count * size
        return places

    def _create_error(self, problem: str) -> UnreadableCheckpoint:
        return UnreadableCheckpoint(self._source.path, problem)
