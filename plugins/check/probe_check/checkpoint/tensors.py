"""Tensors of checkpoints, of which any range of elements can be read."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from probe_recording.values.arrays import Array

from probe_check.checkpoint.byte_source import ByteSource
from probe_check.checkpoint.elements import ElementType

MAX_DIMENSIONS = 64


class Tensor(ABC):
    """A tensor that is read when it is compared.

    Attributes:
        shape: The sizes.
        element: The type of the elements.
    """

    shape: tuple[int, ...]
    element: ElementType

    @property
    def count(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @abstractmethod
    def read(self, start: int, count: int) -> Array:
        """Return elements ``start`` to ``start + count`` of the flattened tensor.

        Raises:
            UnreadableCheckpoint: The file is damaged.
        """

    def release(self) -> None:  # noqa: B027 - most tensors keep nothing
        """Free what is kept in memory since the tensor was read."""


@dataclass
class StoredTensor(Tensor):
    """A contiguous tensor in a file.

    Attributes:
        source: Its bytes.
    """

    element: ElementType
    shape: tuple[int, ...]
    source: ByteSource

    def read(self, start: int, count: int) -> Array:
        """Return a range of the flattened tensor."""
        size = self.element.size
        return self.element.decode(self.source.read(start * size, count * size))


@dataclass
class StridedTensor(Tensor):
    """A tensor whose elements are not stored in the order of its indices; it is read as a whole.

    Attributes:
        source: The bytes from its first element to the last one.
        strides: The strides, in elements.
    """

    element: ElementType
    shape: tuple[int, ...]
    source: ByteSource
    strides: tuple[int, ...]
    _flat: Array | None = field(default=None, repr=False)

    def read(self, start: int, count: int) -> Array:
        """Return a range of the flattened tensor."""
        if self._flat is None:
            stored = self.element.decode(self.source.read(0, self.source.size))
            strides = [stride * stored.itemsize for stride in self.strides]
            self._flat = np.lib.stride_tricks.as_strided(stored, self.shape, strides).reshape(-1)
        return self._flat[start : start + count]

    def release(self) -> None:
        """Free the elements."""
        self._flat = None


class JoinedTensor(Tensor):
    """Tensors that are joined along a dimension, such as the shards of a parameter.

    Args:
        parts: The tensors; their shapes agree in all other dimensions.
        dimension: The dimension.
    """

    def __init__(self, parts: Sequence[Tensor], dimension: int) -> None:
        self._parts = parts
        self._dimension = dimension
        shape = list(parts[0].shape)
        shape[dimension] = sum(part.shape[dimension] for part in parts)
        self.shape, self.element = tuple(shape), parts[0].element
        self._lengths = [math.prod(part.shape[dimension:]) for part in parts]
        self._row = sum(self._lengths)

    def reshape(self, shape: tuple[int, ...]) -> JoinedTensor:
        """Give the tensor another shape with as many elements, and return it."""
        self.shape = shape
        return self

    def read(self, start: int, count: int) -> Array:
        """Return a range of the flattened tensor."""
        pieces: list[Array] = []
        stop = start + count
        while start < stop:
            row, offset = divmod(start, self._row)
            rows = (stop - start) // self._row
            if offset == 0 and rows:
                pieces.append(self._read_rows(row, rows))
                start += rows * self._row
            else:
                piece = self._read_within_row(row, offset, stop - start)
                pieces.append(piece)
                start += piece.size
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def _read_rows(self, row: int, rows: int) -> Array:
        blocks = [
            part.read(row * length, rows * length).reshape(rows, length)
            for part, length in zip(self._parts, self._lengths)
        ]
        return np.concatenate(blocks, axis=1).reshape(-1)

    def _read_within_row(self, row: int, offset: int, count: int) -> Array:
        for part, length in zip(self._parts, self._lengths):
            if offset < length:
                return part.read(row * length + offset, min(count, length - offset))
            offset -= length
        raise AssertionError("an offset beyond the end of a row")

    def release(self) -> None:
        """Free the elements of all parts."""
        for part in self._parts:
            part.release()


class SlicedTensor(Tensor):
    """A range of a tensor along its first dimension."""

    def __init__(self, whole: Tensor, start: int, stop: int) -> None:
        self._whole = whole
        self.shape, self.element = (stop - start, *whole.shape[1:]), whole.element
        self._offset = start * math.prod(whole.shape[1:])

    def read(self, start: int, count: int) -> Array:
        """Return a range of the flattened tensor."""
        return self._whole.read(self._offset + start, count)

    def release(self) -> None:
        """Free the elements of the whole tensor."""
        self._whole.release()


class ChunkedTensor(Tensor):
    """A tensor in chunks that form a grid; it is read as a whole.

    Args:
        shape: The sizes of the whole tensor.
        chunks: The chunks, with the index of the first element of each.
    """

    def __init__(self, shape: tuple[int, ...], chunks: Sequence[tuple[tuple[int, ...], Tensor]]) -> None:
        self.shape, self.element = shape, chunks[0][1].element
        self._chunks = chunks
        self._flat: Array | None = None

    def read(self, start: int, count: int) -> Array:
        """Return a range of the flattened tensor."""
        if self._flat is None:
            whole: Array | None = None
            for offsets, chunk in self._chunks:
                values = chunk.read(0, chunk.count).reshape(chunk.shape)
                if whole is None:
                    whole = np.zeros(self.shape, values.dtype)
                whole[tuple(slice(o, o + n) for o, n in zip(offsets, chunk.shape))] = values
                chunk.release()
            assert whole is not None
            self._flat = whole.reshape(-1)
        return self._flat[start : start + count]

    def release(self) -> None:
        """Free the elements."""
        self._flat = None
