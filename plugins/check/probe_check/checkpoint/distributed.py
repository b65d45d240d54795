"""Checkpoints of ``torch.distributed.checkpoint``: an index ``.metadata``, and files with chunks of tensors.

Format: torch/distributed/checkpoint/metadata.py and filesystem.py. The index is a pickle. Each
chunk is a file of ``torch.save`` within a file ``*.distcp``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probe_recording.reading.pickle_data import PickledCall, PickledName, PickleError

from probe_check.checkpoint.byte_source import ByteSource, is_file_name
from probe_check.checkpoint.checkpoint_pickle import OpaqueObject, interpret_checkpoint
from probe_check.checkpoint.elements import get_element_type
from probe_check.checkpoint.errors import TensorProblem, UnreadableCheckpoint
from probe_check.checkpoint.model import Checkpoint
from probe_check.checkpoint.nested import convert_to_setting, iterate_leaves
from probe_check.checkpoint.optimizer import replace_parameter_numbers
from probe_check.checkpoint.tensors import MAX_DIMENSIONS, ChunkedTensor, JoinedTensor, Tensor
from probe_check.checkpoint.torch_archive import MAX_PICKLE_BYTES, TorchArchive
from probe_check.checkpoint.torch_checkpoint import OPTIMIZER_KEYS, WRAPPER_KEYS
from probe_check.checkpoint.torch_tensor import build_tensor

METADATA_FILE = ".metadata"
MAX_CHUNKS = 1_000_000


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A part of a tensor: the index of its first element, its sizes, and its bytes."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    source: ByteSource


class LazyChunk(Tensor):
    """A chunk whose archive is opened when it is read first."""

    def __init__(self, chunk: _Chunk, type_name: str) -> None:
        self.shape, self.element = chunk.sizes, get_element_type(type_name)
        self._chunk = chunk
        self._opened: Tensor | None = None

    def read(self, start: int, count: int) -> Any:
        """Return a range of the flattened chunk."""
        if self._opened is None:
            self._opened = self._open()
        return self._opened.read(start, count)

    def _open(self) -> Tensor:
        archive = TorchArchive(self._chunk.source)
        try:
            tensor = build_tensor(archive.read_content(), archive.find_storage, is_big_endian=archive.is_big_endian)
        except TensorProblem as problem:
            raise UnreadableCheckpoint(self._chunk.source.path, f"is damaged: a chunk {problem}") from None
        if tensor.shape != self.shape or tensor.element.name != self.element.name:
            raise UnreadableCheckpoint(
                self._chunk.source.path,
                f"is damaged: a chunk is no {self.element.name} of {list(self.shape)}",
            )
        return tensor

    def release(self) -> None:
        """Close the chunk."""
        self._opened = None


def read_distributed(path: Path) -> Checkpoint:
    """Return the tensors of a directory of ``torch.distributed.checkpoint``.

    Raises:
        UnreadableCheckpoint: The index or a file is damaged.
    """
    index = path / METADATA_FILE
    source = ByteSource.from_path(index)
    if source.size > MAX_PICKLE_BYTES:
        raise UnreadableCheckpoint(index, "is larger than supported")
    try:
        metadata, _ = interpret_checkpoint(bytes(source.read(0, source.size)))
        state = _get_state(metadata)
        entries, places = state["state_dict_metadata"], _find_chunk_sources(path, state["storage_data"])
        return _read_checkpoint(path, entries, places)
    except (PickleError, LookupError, TypeError, AttributeError, ValueError) as error:
        problem = str(error) if isinstance(error, PickleError) else "it is no index of a distributed checkpoint"
        raise UnreadableCheckpoint(index, f"cannot be read: {problem}") from None


ChunkSources = dict[tuple[str, tuple[int, ...] | None], ByteSource]
"""The bytes of each chunk, by the name of the tensor and the offsets."""


def _find_chunk_sources(path: Path, storage: Any) -> ChunkSources:
    places: ChunkSources = {}
    sources: dict[str, ByteSource] = {}
    for key, value in storage.items():
        index, info = _get_state(key), _get_state(value)
        name, offset, length = info["relative_path"], info["offset"], info["length"]
        if not is_file_name(name):
            raise UnreadableCheckpoint(path, f"names a file outside of its directory, {str(name)!r:.80}")
        if info.get("transform_descriptors"):
            raise UnreadableCheckpoint(path, "holds compressed chunks, which is not supported")
        if name not in sources:
            sources[name] = ByteSource.from_path(path / name)
        if (
            type(offset) is not int
            or type(length) is not int
            or not 0 <= offset <= offset + length <= sources[name].size
        ):
            raise UnreadableCheckpoint(path / name, "is cut off: the index refers to bytes beyond its end")
        offsets = index.get("offset")
        places[index["fqn"], None if offsets is None else _parse_numbers(offsets)] = sources[name].select_range(
            offset, length
        )
    return places


def _read_checkpoint(path: Path, entries: Any, places: ChunkSources) -> Checkpoint:
    tensors: dict[str, Tensor] = {}
    settings: dict[str, Any] = {}
    unreadable: dict[str, str] = {}
    for name, entry in entries.items():
        if not isinstance(name, str):
            raise PickleError("it has a name that is no text")
        if not isinstance(entry, OpaqueObject) or entry.kind.name != "TensorStorageMetadata":
            settings.update(_read_settings(name, places))
            continue
        try:
            tensors[name] = _create_tensor(path, name, entry.state, places)
        except TensorProblem as problem:
            unreadable[name] = str(problem)
    names = _drop_wrapper(tensors)
    tensors = {names[name]: tensor for name, tensor in tensors.items()}
    return Checkpoint(path, *replace_parameter_numbers(tensors, settings), unreadable)


def _drop_wrapper(tensors: dict[str, Tensor]) -> dict[str, str]:
    """Return the names without a first component that only wraps the parameters."""
    heads = {name.partition(".")[0] for name in tensors}
    wrappers = [head for head in WRAPPER_KEYS if head in heads]
    is_wrapped = len(wrappers) == 1 and heads <= {*wrappers, *OPTIMIZER_KEYS}
    names: dict[str, str] = {}
    for name in tensors:
        head, _, rest = name.partition(".")
        names[name] = name
        if is_wrapped and head in wrappers and rest and any(optimizer in heads for optimizer in OPTIMIZER_KEYS):
            names[name] = rest
        elif head in OPTIMIZER_KEYS:
            names[name] = f"optimizer.{rest}"
    return names


def _read_settings(name: str, places: ChunkSources) -> Iterator[tuple[str, Any]]:
    """Yield the settings in an object that is not a tensor."""
    source = places.get((name, None))
    if source is None:
        return
    for parts, leaf in iterate_leaves(TorchArchive(source).read_content()):
        if not isinstance(leaf, PickledCall):
            yield ".".join((name, *parts)), convert_to_setting(leaf)


def _create_tensor(path: Path, name: str, state: dict[Any, Any], places: ChunkSources) -> Tensor:
    shape = _parse_numbers(state["size"])
    kind = _find_type_name(state["properties"])
    chunks: list[tuple[tuple[int, ...], Tensor]] = []
    for item in state["chunks"][:MAX_CHUNKS]:
        fields = _get_state(item)
        offsets, sizes = _parse_numbers(fields["offsets"]), _parse_numbers(fields["sizes"])
        is_inside = len(offsets) == len(sizes) == len(shape) and all(
            offset + size <= whole for offset, size, whole in zip(offsets, sizes, shape)
        )
        source = places.get((name, offsets))
        if not is_inside or source is None:
            raise UnreadableCheckpoint(path, f"is damaged: a chunk of {name} is missing or outside of its tensor")
        chunks.append((offsets, LazyChunk(_Chunk(offsets, sizes, source), kind)))
    return _join_chunks(path, name, shape, chunks)


def _join_chunks(
    path: Path, name: str, shape: tuple[int, ...], chunks: Sequence[tuple[tuple[int, ...], Tensor]]
) -> Tensor:
    """Return the tensor of all chunks; rows of chunks are read in blocks, other grids as a whole."""
    if not chunks or sum(chunk.count for _, chunk in chunks) != math.prod(shape):
        raise UnreadableCheckpoint(path, f"is damaged: the chunks of {name} do not fill it")
    if len(chunks) == 1:
        return chunks[0][1]
    ordered = sorted(chunks, key=lambda item: item[0])
    position = 0
    for offsets, chunk in ordered:
        if not shape or chunk.shape[1:] != shape[1:] or offsets[0] != position:
            return ChunkedTensor(shape, ordered)
        position += chunk.shape[0]
    return JoinedTensor([chunk for _, chunk in ordered], 0)


def _find_type_name(properties: Any) -> str:
    """Return the element type in the properties of a tensor, which are pickled by ``__getstate__``."""
    values = [properties] if isinstance(properties, PickledName) else []
    if isinstance(properties, OpaqueObject):
        state = properties.state.get("state", ())
        values = [
            *properties.state.values(),
            *(state if isinstance(state, tuple) else ()),
            *properties.arguments,
        ]
    for value in values:
        if isinstance(value, PickledName) and value.module == "torch":
            return value.name
    raise TensorProblem("has no element type")


def _get_state(value: Any) -> dict[Any, Any]:
    if not isinstance(value, OpaqueObject):
        raise PickleError("it is no index of a distributed checkpoint")
    return value.state


def _parse_numbers(value: Any) -> tuple[int, ...]:
    numbers = tuple(value)
    if len(numbers) > MAX_DIMENSIONS or any(type(number) is not int or number < 0 for number in numbers):
        raise PickleError("it has an invalid shape or offset")
    return numbers
