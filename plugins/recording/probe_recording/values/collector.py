"""Conversion of the arguments of a call into the leaves of its record, for all frameworks.

The values are not changed, moved or kept. Of objects of unknown classes only the type, the fields and, in
containers, the items are read; an object that raises becomes a null leaf and leaves the others intact.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from probe_recording.settings.slices import DimensionSlice, select_index
from probe_recording.values.arrays import Array, measure
from probe_recording.values.leaves import Four, Json, Plain, Save, TensorLeaf, Tree, scalar

MAX_DEPTH = 200
"""Number of nested containers that are recorded; deeper values are null."""

MAX_CONTAINERS = 10_000
"""Number of containers recorded of one value; further ones are null, as are containers inside themselves."""

SCALARS = (bool, int, float, str)

ARRAY_TYPE = "numpy.ndarray"
"""Type of the leaf of a numpy array."""

NUMERIC_KINDS = "biufc"
"""Kinds of numpy's dtypes whose data can be stored: bool, integers, floats and complex numbers."""


class Collector(ABC):
    """A converter of values into trees of leaves; subclasses add the tensors and types of their framework.

    Args:
        failed: A callback for exceptions of values: stage, name and exception.
        checksum: A function that returns the checksum of a tensor; None for no checksums.
        measured: False to record shapes and types only.

    Attributes:
        tensor_types: The classes of ordinary tensors, which ``tensor`` converts.
        special_types: Further classes of the framework, which ``special`` converts.
        type_keywords: Keys whose items ``keyword`` converts, such as ``dtype``.
        slices: The slices of tensors that are recorded; empty for whole tensors.
    """

    tensor_types: tuple[type, ...] = ()
    special_types: tuple[type, ...] = ()
    type_keywords: frozenset[str] = frozenset()
    slices: tuple[DimensionSlice, ...] = ()

    def __init__(
        self,
        failed: Callable[[str, str, BaseException], None] | None = None,
        checksum: Callable[[Any], str] | None = None,
        measured: bool = True,
    ) -> None:
        self._failed = failed
        self._checksum = checksum
        self._measured = measured

    def tree(self, value: Any, name: str, save: Save | None = None) -> Tree:
        """Return the tree of a value.

        Args:
            value: The value.
            name: The name of its tensor file, if it has one, without suffix.
            save: The function that stores tensors; None to store none.
        """
        kind = type(value)
        if kind in self.tensor_types:
            return self.tensor(value, name, save)
        if value is None:
            return None
        if kind in SCALARS:
            return scalar(value)
        return Walk(self, save).tree(value, name)

    def arguments(self, values: tuple[Any, ...], prefix: str, save: Save | None) -> list[Tree]:
        """Return the trees of positional arguments or of outputs."""
        return [self.tree(value, f"{prefix}.{i}", save) for i, value in enumerate(values)]

    def keywords(self, values: Mapping[str, Any], prefix: str, save: Save | None) -> dict[str, Tree]:
        """Return the trees of keyword arguments."""
        return {key: self.keyword(key, value, f"{prefix}.{key}", save) for key, value in values.items()}

    def inputs(
        self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], save: Save | None, *, may_encode: bool = True
    ) -> dict[str, Tree]:
        """Return the fields of a record for the inputs of a call or module.

        Args:
            name: The name of the record.
            args: The positional arguments.
            kwargs: The keyword arguments.
            save: The function that stores the data of tensors; None to store none.
            may_encode: False if the trees are changed later, so that they must not be JSON.
        """
        texts = self.encode_groups(args, kwargs) if save is None and may_encode else None
        trees = texts or (
            self.arguments(args, f"{name}.input", save), self.keywords(kwargs, f"{name}.kwargs", save)
        )  # fmt: skip
        return {"input_args": trees[0], "input_kwargs": trees[1]}

    def outputs(self, name: str, values: tuple[Any, ...], save: Save | None) -> Tree:
        """Return the field ``output`` of a record, from the outputs of a call or module."""
        texts = self.encode_groups(values) if save is None else None
        return texts[0] if texts else self.arguments(values, f"{name}.output", save)

    def keyword(self, key: str, value: Any, name: str, save: Save | None) -> Tree:
        """Return the tree of the keyword argument ``key``."""
        return self.tree(value, name, save)

    def encode_groups(self, *groups: tuple[Any, ...] | Mapping[str, Any]) -> tuple[str, ...] | None:
        """Return the JSON of groups of values whose data are not stored, if there is a faster way than trees.

        Args:
            groups: Positional values as ``arguments`` receives them, or keyword arguments.

        Returns:
            The JSON of each group, or None if ``arguments`` and ``keywords`` have to make the trees.
        """
        return None

    def _select_index(self, shape: Sequence[int]) -> tuple[slice, ...] | None:
        """Return the index of the recorded part of a tensor; None for the whole tensor."""
        return select_index(shape, self.slices) if self.slices else None

    def error(self, name: str, error: BaseException) -> None:
        """Report an exception of a value to the callback."""
        if self._failed is not None:
            self._failed("value", name, error)

    # -- to be overridden for a framework -------------------------------------------------

    @abstractmethod
    def tensor(self, tensor: Any, name: str, save: Save | None) -> Tree:
        """Return the leaf of a tensor."""

    def special(self, value: Any, name: str, save: Save | None) -> Tree:
        """Return the leaf of an object of one of the ``special_types``; by default as of a tensor."""
        return self.tensor(value, name, save)

    def array(self, value: Array, name: str, save: Save | None) -> TensorLeaf:
        """Return the leaf of a numpy array, whose data are stored like those of a tensor."""
        if (index := self._select_index(value.shape)) is not None:
            value = value[index]
        leaf = TensorLeaf(ARRAY_TYPE, str(value.dtype), list(value.shape), None, self._measure_array(value))
        data = self._convert_to_storable(value) if self._measured and value.size else None
        if data is not None:
            if self._checksum is not None:
                leaf.checksum = self._checksum(data)
            if save is not None:
                leaf.data_name = save(name, data)
        return leaf

    def _measure_array(self, value: Array) -> Four:
        """Return the statistics of a numpy array."""
        return measure(value)

    def _convert_to_storable(self, value: Array) -> Any:
        """Return a numpy array in the form that ``save`` accepts; None if its data cannot be stored."""
        return value if value.dtype.kind in NUMERIC_KINDS else None

    def other(self, value: Any, name: str, walk: Walk) -> Tree:
        """Return the leaf of an object that is neither tensor, container nor Python scalar; None for null."""
        return None


class Walk:
    """A walk through the nested containers of one value, within the limits ``MAX_DEPTH`` and ``MAX_CONTAINERS``."""

    def __init__(self, collector: Collector, save: Save | None) -> None:
        self._collector = collector
        self._save = save
        self._around: list[int] = []
        self._left = MAX_CONTAINERS

    def tree(self, value: Any, name: str) -> Tree:
        """Return the tree of ``value``; it is null if the value raises."""
        kind = type(value)
        collector = self._collector
        if kind in collector.tensor_types:
            return collector.tensor(value, name, self._save)
        if value is None:
            return None
        if kind in SCALARS:
            return scalar(value)
        try:
            if isinstance(value, collector.special_types):
                return collector.special(value, name, self._save)
            items = _list_items(value, kind)
            return self._walk_other(value, name) if items is None else self._walk_container(value, items, name)
        except Exception as error:  # an object of an unknown class may raise anything
            collector.error(name, error)
            return None

    def _walk_container(self, value: Any, items: list[Any] | Iterator[tuple[Any, Any]], name: str) -> Tree:
        self._left -= 1
        if self._left < 0 or id(value) in self._around or len(self._around) > MAX_DEPTH:
            return None
        self._around.append(id(value))
        try:
            if isinstance(items, list):
                return [self.tree(item, f"{name}.{i}") for i, item in enumerate(items)]
            return self._walk_members(items, name)
        finally:
            self._around.pop()

    def _walk_members(self, items: Iterator[tuple[Any, Any]], name: str) -> dict[str, Tree]:
        members: dict[str, Tree] = {}
        for key, item in items:
            text = key if type(key) is str else str(key) if type(key) in SCALARS else repr(key)[:80]
            if text == "type":  # readers take a dict with this key for a leaf
                text = "type_"
            while text in members:
                text += "_"
            if type(key) is str and key in self._collector.type_keywords:
                members[text] = self._collector.keyword(key, item, f"{name}.{text}", self._save)
            else:
                members[text] = self.tree(item, f"{name}.{text}")
        return members

    def _walk_other(self, value: Any, name: str) -> Tree:
        if isinstance(value, slice):
            parts = [_index(part) for part in (value.start, value.stop, value.step)]
            return Plain(type="slice", value=parts)
        if value is Ellipsis:
            return Plain(type="ellipsis", value="...")
        if isinstance(value, np.generic) and isinstance(value.item(), SCALARS):
            return Plain(type=value.dtype.name, value=value.item())
        if isinstance(value, np.ndarray):
            return self._collector.array(value, name, self._save)
        if isinstance(value, int):
            return scalar(int.__int__(value))
        if isinstance(value, float):
            return scalar(float.__float__(value))
        if isinstance(value, str):
            return scalar(str.__str__(value))
        return self._collector.other(value, name, self)


def _list_items(value: Any, kind: type) -> list[Any] | Iterator[tuple[Any, Any]] | None:
    """Return the items of a sequence, or the named members of a mapping or dataclass; None for others."""
    if isinstance(value, tuple):
        fields = getattr(kind, "_fields", None)
        if isinstance(fields, tuple) and len(fields) == tuple.__len__(value):
            return iter(zip(fields, tuple.__iter__(value)))
        return [*tuple.__iter__(value)]
    if isinstance(value, list):
        return [*list.__iter__(value)]
    if isinstance(value, (set, frozenset)):
        return [*(set if isinstance(value, set) else frozenset).__iter__(value)]  # type: ignore[arg-type]
    if isinstance(value, Mapping):
        return iter(list(dict.items(value) if isinstance(value, dict) else value.items()))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return ((field.name, getattr(value, field.name, None)) for field in dataclasses.fields(value))
    return None


def _index(part: Any) -> Json:
    if part is None:
        return None
    try:
        return int(part)
    except Exception:  # an object of an unknown class may raise anything
        return None
