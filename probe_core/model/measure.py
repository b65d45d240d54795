"""A pair of tensors opened to be measured, and the results that metrics share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol, TypeVar, overload

import numpy as np

from probe_core.errors import UnreadableTensor
from probe_core.files.mapped import MappedFile, allow_mapping, find_mapped_file
from probe_core.model import Kind, Mode, Pair, Reason, Slot, Value
from probe_core.model.columns import Array

T = TypeVar("T")
S = TypeVar("S", bound="SharedResults")

BLOCK_ELEMENTS = 8_192
"""Elements per block; both sides in float64 fit into the cache of a processor core."""
PIECE_ELEMENTS = 16 * BLOCK_ELEMENTS
"""Elements of a non-contiguous tensor that are copied at a time."""

NO_MAPPINGS = None, None


class Tensors(Protocol):
    """The run that the tensors of one side are read from."""

    def tensor(self, value: Value) -> Array:
        """Return the array of a tensor value, or raise UnreadableTensor."""


class SharedResults:
    """Results that the metrics and policies of a comparison compute once and share."""

    def __init__(self) -> None:
        self._shared: dict[Any, Any] = {}

    def once(self: S, function: Callable[[S], T]) -> T:
        """Return ``function(self)``, computed on the first call and shared by all callers."""
        if function not in self._shared:
            self._shared[function] = function(self)
        result: T = self._shared[function]
        return result

    def share(self: S, function: Callable[[S], T], result: T) -> None:
        """Store ``result`` as what ``once(function)`` returns."""
        self._shared[function] = result


class OpenPair(SharedResults):
    """A pair of slots with its arrays, as metrics get it.

    Attributes:
        pair: The two slots.
        mode: The kind of data in both runs: tensors, statistics or checksums.
        recorded_obstacle: The reason why the recorded metadata cannot be compared, a missing partner or
            another shape; None if it can.
        obstacle: The reason why the pair cannot be measured; None if it can. In runs without tensors the
            same as ``recorded_obstacle``.
        unreadable: The error of a tensor file, if that is the obstacle.
        mappings: The memory-mapped files behind both arrays, until they are checked for changes.
        metrics: The names of the metrics that will be called, so that a shared pass over the data computes
            only what they need; None if they are not known.
    """

    def __init__(
        self, pair: Pair, mode: Mode, target: Tensors, golden: Tensors, metrics: Collection[str] | None = None
    ) -> None:
        self.pair = pair
        self.mode = mode
        self.metrics = metrics
        self.unreadable: UnreadableTensor | None = None
        super().__init__()
        self._target: Array | None = None
        self._golden: Array | None = None
        self.mappings: tuple[MappedFile | None, MappedFile | None] = NO_MAPPINGS
        self.recorded_obstacle = self._find_recorded_obstacle()
        self.obstacle = self.recorded_obstacle
        if mode is Mode.TENSOR:
            self.obstacle = self._find_tensor_obstacle() or self._open_tensors(target, golden)

    # -- obstacles, in the order of docs/tables.md#preparation --------------------------------

    def _find_recorded_obstacle(self) -> Reason | None:
        target, golden = self.pair.target, self.pair.golden
        if target is None:
            return Reason("no_target")
        if golden is None:
            return Reason("no_golden")
        if self.pair.omission:
            return Reason(self.pair.omission)
        if (target.value.kind is Kind.NULL) != (golden.value.kind is Kind.NULL):
            return Reason("shape")
        return Reason("shape") if target.value.extent != golden.value.extent else None

    def _find_tensor_obstacle(self) -> Reason | None:
        target, golden = self.pair.target, self.pair.golden
        if target is None:
            return Reason("no_target")
        if golden is None:
            lacks_file = target.value.kind is Kind.TENSOR and target.value.data_name is None
            return Reason("no_target_file" if lacks_file else "golden_unmatched")
        if self.recorded_obstacle is not None:
            return self.recorded_obstacle
        if target.value.is_empty:
            return Reason("empty")
        if target.value.kind is not Kind.TENSOR or golden.value.kind is not Kind.TENSOR:
            return Reason("not_a_tensor")
        if target.value.data_name is None:
            return Reason("no_target_file")
        return Reason("no_golden_file") if golden.value.data_name is None else None

    def _open_tensors(self, target: Tensors, golden: Tensors) -> Reason | None:
        arrays: list[Array] = []
        with allow_mapping:
            for slot, run in ((self.pair.target, target), (self.pair.golden, golden)):
                assert slot is not None
                try:
                    arrays.append(run.tensor(slot.value))
                except UnreadableTensor as error:
                    self.unreadable = error
                    return Reason("unreadable", slot.value.data_name or "")
        first, second = arrays
        if first.shape != second.shape:
            return Reason("shape")
        if first.size == 0:
            return Reason("empty")
        if not (is_numeric(first) and is_numeric(second)):
            return Reason("unreadable_data")
        self._target, self._golden = first, second
        self.mappings = find_mapped_file(first), find_mapped_file(second)
        return None

    # -- the data ------------------------------------------------------------------------------

    @property
    def measurable(self) -> bool:
        """Return True if both arrays are open and have the same shape."""
        return self._target is not None

    @property
    def target(self) -> Array:
        """The target's array as stored, with its own dtype and strides."""
        assert self._target is not None, "the pair has no tensors; check `measurable` first"
        return self._target

    @property
    def golden(self) -> Array:
        """The golden's array as stored, with its own dtype and strides."""
        assert self._golden is not None, "the pair has no tensors; check `measurable` first"
        return self._golden

    @property
    def nbytes(self) -> int:
        """The size of both arrays in bytes; 0 if the pair is not measurable."""
        return self.target.nbytes + self.golden.nbytes if self.measurable else 0

    @property
    def slots(self) -> tuple[Slot, Slot]:
        """The target slot and the golden slot of a matched pair."""
        assert self.pair.target is not None and self.pair.golden is not None
        return self.pair.target, self.pair.golden

    def flat(self) -> Iterator[tuple[Array, Array]]:
        """Yield both arrays in equal flat pieces, in their own dtypes; the pieces must not be written to.

        Contiguous arrays come whole and uncopied, others as copies of ``PIECE_ELEMENTS`` elements in C order.
        """
        arrays = self.target, self.golden
        if all(array.flags.c_contiguous and array.dtype.isnative for array in arrays):
            yield self.target.reshape(-1), self.golden.reshape(-1)
            return
        for start in range(0, self.target.size, PIECE_ELEMENTS):
            first, second = (array.flat[start : start + PIECE_ELEMENTS] for array in arrays)
            yield _convert_to_native(first), _convert_to_native(second)

    def blocks(self) -> Iterator[tuple[Array, Array]]:
        """Yield both arrays in equal flat blocks of float64 or complex128 that may be written to."""
        wide = find_wide_dtype(self.target, self.golden)
        for first, second in self.flat():
            for start in range(0, first.size, BLOCK_ELEMENTS):
                part = slice(start, start + BLOCK_ELEMENTS)
                yield first[part].astype(wide), second[part].astype(wide)

    def invalidate(self, problems: Mapping[MappedFile | None, str]) -> bool:
        """Close the pair as unreadable if one of its mapped files is in ``problems``; return True if so.

        Measurements that were made of the pair before are not valid then.
        """
        mappings, self.mappings = self.mappings, NO_MAPPINGS
        if not problems:
            return False
        for slot, memory in zip(self.slots, mappings):
            if memory in problems:
                self.close()
                self.unreadable = UnreadableTensor(problems[memory])
                self.obstacle = Reason("unreadable", slot.value.data_name or "")
                return True
        return False

    def close(self) -> None:
        """Release the arrays."""
        self._target = self._golden = None
        self._shared.clear()


class PairGroup(SharedResults, Sequence[OpenPair]):
    """Pairs that are open at the same time and are measured together.

    Args:
        pairs: The pairs, in the order of the table.
    """

    def __init__(self, pairs: Sequence[OpenPair]) -> None:
        super().__init__()
        self._pairs = pairs

    @overload
    def __getitem__(self, place: int) -> OpenPair: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[OpenPair]: ...
    def __getitem__(self, place: int | slice) -> OpenPair | Sequence[OpenPair]:
        return self._pairs[place]

    def __len__(self) -> int:
        return len(self._pairs)

    @cached_property
    def measurable(self) -> PairGroup:
        """The pairs of which both arrays are open."""
        pairs = [pair for pair in self._pairs if pair.measurable]
        return self if len(pairs) == len(self) else PairGroup(pairs)


def _convert_to_native(array: Array) -> Array:
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def is_numeric(array: Array) -> bool:
    """Return True for arrays of numbers or booleans, including the dtypes of ml_dtypes."""
    if array.dtype.kind == "V":  # bfloat16, float8 and records
        return array.dtype.names is None and np.can_cast(array.dtype, np.float64)
    return array.dtype.kind in "biufc"


def find_wide_dtype(*arrays: Array) -> np.dtype[Any]:
    """Return the dtype in which errors are computed: complex128 for complex data, float64 for all other."""
    return np.dtype(np.complex128 if any(a.dtype.kind == "c" for a in arrays) else np.float64)
