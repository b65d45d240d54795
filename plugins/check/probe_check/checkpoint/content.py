"""Tensors with equal contents under different names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile

import numpy as np
from probe_recording.values.arrays import Array

from probe_check.checkpoint.measurement import BLOCK_ELEMENTS
from probe_check.checkpoint.result import Match, Relation
from probe_check.checkpoint.tensors import Tensor

SAMPLE_ELEMENTS = 1024
MAX_CANDIDATES = 8
Key = tuple[tuple[int, ...], bytes]


class ContentIndex:
    """The tensors of a checkpoint by shape and first elements.

    Args:
        tensors: The tensors by name. Those whose first elements are all equal are left out, such as weights
            of a normalization that was not trained: nothing follows if two of them are equal.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors
        self._names: dict[Key, list[str]] = {}
        for name, tensor in tensors.items():
            if (key := compute_content_key(tensor)) is not None:
                self._names.setdefault(key, []).append(name)

    def find_matches(self, tensor: Tensor, name: str) -> Iterator[str]:
        """Yield the names of tensors that equal ``tensor``, those most like ``name`` first."""
        key = compute_content_key(tensor)
        names = self._names.get(key, []) if key is not None else []
        candidates = sorted(names, key=lambda candidate: -_count_shared_components(candidate, name))
        for candidate in candidates[:MAX_CANDIDATES]:
            if are_equal(tensor, self._tensors[candidate]):
                yield candidate


def _count_shared_components(first: str, second: str) -> int:
    """Return the number of components that two names share at their beginnings."""
    pairs = zip(first.split("."), second.split("."))
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def compute_content_key(tensor: Tensor) -> Key | None:
    """Return the shape and the first elements of a tensor; None if all of these are equal."""
    values = tensor.read(0, min(SAMPLE_ELEMENTS, tensor.count))
    tensor.release()
    if values.size < 2 or bool((values == values[0]).all()):
        return None
    wide = values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)
    return tensor.shape, (wide + 0.0).tobytes()


def are_equal(first: Tensor, second: Tensor) -> bool:
    """Return True if two tensors have the same shape and elements."""
    if first.shape != second.shape:
        return False
    blocks = ((first.read(start, count), second.read(start, count)) for start, count in _split_blocks(first.count))
    is_equal = all(np.array_equal(a, b) for a, b in blocks)
    first.release()
    second.release()
    return is_equal


def has_equal_content(first: Tensor, second: Tensor) -> bool:
    """Return True if two tensors are equal and their first elements are not all the same."""
    key = compute_content_key(first)
    return key is not None and key == compute_content_key(second) and are_equal(first, second)


def is_transposed(first: Tensor, second: Tensor) -> bool:
    """Return True if a matrix is the transpose of another one, and is not equal to it."""
    if len(first.shape) != 2 or first.shape != second.shape[::-1] or 0 in first.shape:
        return False
    rows, columns = first.shape
    for row, column in ((0, 0), (rows - 1, 0), (0, columns - 1), (rows // 2, columns // 2)):
        if _read_element(first, row, column) != _read_element(second, column, row):
            return False
    whole: Array = first.read(0, first.count).reshape(first.shape)
    step = max(1, BLOCK_ELEMENTS // rows)
    is_equal = all(
        np.array_equal(
            second.read(start * rows, min(step, columns - start) * rows).reshape(-1, rows),
            whole[:, start : start + step].T,
        )
        for start in range(0, columns, step)
    )
    first.release()
    second.release()
    return is_equal


def _read_element(tensor: Tensor, row: int, column: int) -> object:
    return tensor.read(row * tensor.shape[1] + column, 1)[0]


def _split_blocks(count: int) -> Iterable[tuple[int, int]]:
    return ((start, min(BLOCK_ELEMENTS, count - start)) for start in range(0, count, BLOCK_ELEMENTS))


class ContentSearch:
    """A search for the contents of differing tensors in the other checkpoint.

    Args:
        target: The tensors of the target.
        golden: Those of the golden checkpoint.
    """

    def __init__(self, target: Mapping[str, Tensor], golden: Mapping[str, Tensor]) -> None:
        self._target, self._golden = target, golden
        self._in_target, self._in_golden = ContentIndex(target), ContentIndex(golden)

    def find_match(self, name: str, golden_name: str) -> Match | None:
        """Return the tensor that a differing one was exchanged with; None if there is none."""
        target, golden = self._target[name], self._golden[golden_name]
        equal_in_golden = [
            candidate for candidate in self._in_golden.find_matches(target, golden_name) if candidate != golden_name
        ]
        equal_in_target = [candidate for candidate in self._in_target.find_matches(golden, name) if candidate != name]
        for candidate in equal_in_golden:
            if candidate in equal_in_target:
                return Match(Relation.SWAPPED, candidate)
        if equal_in_golden:
            return Match(Relation.EQUALS_OTHER, equal_in_golden[0])
        if equal_in_target:
            return Match(Relation.OTHER_EQUALS, equal_in_target[0])
        if is_transposed(target, golden):
            return Match(Relation.TRANSPOSED, golden_name)
        return None

    def find_renamed(self, target: Sequence[str], golden: Iterable[str]) -> dict[str, str]:
        """Return the golden name for tensors of the target that equal a tensor among the given ones."""
        remaining_names = set(golden)
        renamed: dict[str, str] = {}
        for name in target:
            matches = self._in_golden.find_matches(self._target[name], name) if remaining_names else iter(())
            golden_name = next((golden_name for golden_name in matches if golden_name in remaining_names), None)
            if golden_name is not None:
                remaining_names.remove(golden_name)
                renamed[name] = golden_name
        return renamed
