"""Memory that a program allocated without values, such as by ``torch.empty``, and has not written yet.

Its content differs from run to run without meaning anything, so it is recorded as null. Buffers that a call fills
are recorded as null, too. A tensor is uninitialized if its storage was allocated without values and torch has
counted no write since. Views share the count of writes, so a view of uninitialized memory is uninitialized as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from probe_recording.values.leaves import Tree

from probe_pytorch import compat

ALLOCATORS = frozenset(
    function
    for holder, names in (
        (torch, ("empty", "empty_like", "empty_strided", "empty_permuted")),
        (torch.Tensor, ("new_empty", "new_empty_strided")),
    )
    for name in names
    if (function := getattr(holder, name, None)) is not None
)
"""Functions that return memory without values."""

MAX_STORAGES = 1024
"""Number of storages to watch; the oldest is forgotten first, so that its values are recorded."""

METADATA_APIS = frozenset({
    "__len__", "data_ptr", "dim", "element_size", "get_device", "is_complex", "is_conj", "is_contiguous",
    "is_floating_point", "is_inference", "is_neg", "is_pinned", "is_same_size", "is_set_to", "is_shared", "is_signed",
    "ndimension", "nelement", "numel", "size", "storage_offset", "stride",
})  # fmt: skip
"""Functions that return properties of a tensor and read none of its values."""

_PLAIN_TENSOR_TYPES = (torch.Tensor, torch.nn.Parameter)


class UninitializedMemory:
    """The storages that were allocated without values and not written since."""

    def __init__(self) -> None:
        self._storages: dict[int, tuple[Any, int]] = {}

    @property
    def has_storages(self) -> bool:
        """True if there is memory that may be uninitialized."""
        return bool(self._storages)

    def add_storage(self, tensor: Any) -> None:
        """Watch the storage of a new tensor."""
        version = compat.get_version(tensor) if type(tensor) in _PLAIN_TENSOR_TYPES else None
        if version is not None and not tensor.is_meta and compat.get_storage_key(tensor):
            reference = compat.get_storage_reference(tensor)  # keeps the key from being used by another storage
            self._storages[reference.cdata] = reference, version
            if len(self._storages) > MAX_STORAGES:
                del self._storages[next(iter(self._storages))]

    def is_uninitialized(self, tensor: Any) -> bool:
        """Return True for a tensor in memory that was not written since it was allocated."""
        return self._is_watched(tensor) and self._read_version(tensor) == compat.get_version(tensor)

    def find_uninitialized(self, values: Any) -> list[torch.Tensor]:
        """Return the uninitialized tensors among the arguments of a call."""
        if not self._storages:
            return []
        return [tensor for tensor in _iterate_tensors(values) if self.is_uninitialized(tensor)]

    def replace_by_null(self, leaves: Tree, values: Any, uninitialized: list[torch.Tensor]) -> Tree:
        """Return the leaves of a call's arguments with null in place of the tensors in ``uninitialized``."""
        if any(values is tensor for tensor in uninitialized):
            return None
        if isinstance(values, (list, tuple)) and isinstance(leaves, list):
            return [self.replace_by_null(leaf, value, uninitialized) for leaf, value in zip(leaves, values)]
        if isinstance(values, dict) and isinstance(leaves, dict):
            return {key: self.replace_by_null(leaf, values.get(key), uninitialized) for key, leaf in leaves.items()}
        return leaves

    def update_after_call(
        self, api: str, uninitialized: list[torch.Tensor], result: Any
    ) -> tuple[list[torch.Tensor], bool]:
        """Update the watched storages after a call that received uninitialized memory.

        A view returns the same memory, still unwritten. Any other call that computes something from the
        memory shows that the program considers it filled, for example by a kernel of which torch does not
        know, so it is not watched any longer.

        Args:
            api: The name of the function without its scope, such as ``narrow``.
            uninitialized: The uninitialized tensors among its arguments.
            result: Its result.

        Returns:
            The arguments whose content before the call means nothing, and True if the result is a view of
            uninitialized memory.
        """
        returned = list(_iterate_tensors(result))
        if returned and all(map(self.is_uninitialized, returned)):
            return uninitialized, True
        written = [tensor for tensor in uninitialized if not self.is_uninitialized(tensor)]
        if api not in METADATA_APIS:
            for tensor in uninitialized:
                self._storages.pop(compat.get_storage_key(tensor), None)
        return written, False

    def _is_watched(self, tensor: Any) -> bool:
        return type(tensor) in _PLAIN_TENSOR_TYPES and compat.get_storage_key(tensor) in self._storages

    def _read_version(self, tensor: torch.Tensor) -> int:
        return self._storages[compat.get_storage_key(tensor)][1]


def _iterate_tensors(values: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors within nested lists, tuples and dicts."""
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, (list, tuple)):
        for value in values:
            yield from _iterate_tensors(value)
    elif type(values) is dict:
        for value in values.values():
            yield from _iterate_tensors(value)
