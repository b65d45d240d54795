"""From the arguments of a call to the leaves of its record.

Nothing that is walked over is changed, moved or kept. An object that raises costs its own leaf, and
one that nobody knows is null.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import mindspore
import numpy as np
from mindspore import Parameter, Tensor
from probe_recording import Plain, Save, TensorLeaf, Tree, scalar

from probe_mindspore.arrays import Array, measure, widened

TENSOR = "mindspore.Tensor"
DEPTH = 200
MOST = 10_000
"""How deep containers are followed, and how many of one value; the rest is null."""

_PLAIN = (Tensor, Parameter)
_SCALARS = (bool, int, float, str)
_DTYPE = mindspore.Type


def array_of(tensor: Tensor) -> Array:
    """The values of ``tensor`` in host memory; they may share its memory. bfloat16 comes as its 16 bits."""
    if tensor.dtype != mindspore.bfloat16:
        found: Array = tensor.asnumpy()
        return found
    try:
        raw: Array = np.ascontiguousarray(tensor.asnumpy()).view(np.uint16)
        return raw
    except TypeError:  # MindSpore 2.10 with numpy 2
        bits: Array = np.ascontiguousarray(tensor.float().asnumpy()).view(np.uint32)
        high: Array = (bits >> np.uint32(16)).astype(np.uint16)
        return high


def values_of(tensor: Tensor) -> Array:
    """The values of ``tensor`` in host memory, bfloat16 as float32; they may share its memory."""
    array = array_of(tensor)
    return widened(array) if tensor.dtype == mindspore.bfloat16 else array


class Collector:
    """Turns values into trees of leaves.

    Args:
        checksum: None, or the checksum of an array's bytes.
        measured: False records shapes and types only.
        failed: Told of what a value raised while it was walked over.
    """

    def __init__(
        self,
        checksum: Callable[[Array], str] | None = None,
        measured: bool = True,
        failed: Callable[[str, str, BaseException], None] | None = None,
    ) -> None:
        self._checksum = checksum
        self._measured = measured
        self._failed = failed

    def tree(self, value: Any, name: str, save: Save | None = None) -> Tree:
        """The tree of ``value``; ``name`` is what its tensor file would be called, without suffix."""
        return _Walk(self, save).tree(value, name)

    def arguments(self, values: tuple[Any, ...], prefix: str, save: Save | None) -> list[Tree]:
        """The trees of positional arguments or of several outputs."""
        return [self.tree(value, f"{prefix}.{i}", save) for i, value in enumerate(values)]

    def keywords(self, values: Mapping[str, Any], prefix: str, save: Save | None) -> dict[str, Tree]:
        """The trees of keyword arguments."""
        return {key: self.tree(value, f"{prefix}.{key}", save) for key, value in values.items()}

    def tensor(self, tensor: Tensor, name: str, save: Save | None) -> TensorLeaf:
        """The leaf of a tensor."""
        leaf = TensorLeaf(TENSOR, str(tensor.dtype), [int(size) for size in tensor.shape], None)
        if not self._measured or 0 in leaf.shape or getattr(tensor, "has_init", False):
            return leaf
        array = array_of(tensor)
        values = widened(array) if leaf.dtype == "BFloat16" else array
        leaf.statistics = measure(values)
        if self._checksum is not None:
            leaf.checksum = self._checksum(array)
        if save is not None:
            leaf.data_name = save(name, values)
        return leaf

    def error(self, name: str, error: BaseException) -> None:
        """A value raised while it was walked over."""
        if self._failed is not None:
            self._failed("value", name, error)


class _Walk:
    """Through the containers of one value, no deeper and no further than the bounds, never in circles."""

    def __init__(self, collector: Collector, save: Save | None) -> None:
        self._collector = collector
        self._save = save
        self._around: list[int] = []
        self._left = MOST

    def tree(self, value: Any, name: str) -> Tree:
        """The tree of ``value``; what it raises costs this leaf."""
        kind = type(value)
        if value is None:
            return None
        if kind in _SCALARS:
            return scalar(value)
        try:
            if kind in _PLAIN or isinstance(value, Tensor):
                return self._collector.tensor(value, name, self._save)
            items = _items(value)
            return _other(value) if items is None else self._container(value, items, name)
        except Exception as error:
            self._collector.error(name, error)
            return None

    def _container(self, value: Any, items: list[Any] | Iterator[tuple[Any, Any]], name: str) -> Tree:
        self._left -= 1
        if self._left < 0 or id(value) in self._around or len(self._around) > DEPTH:
            return None
        self._around.append(id(value))
        try:
            if isinstance(items, list):
                return [self.tree(item, f"{name}.{i}") for i, item in enumerate(items)]
            found: dict[str, Tree] = {}
            for key, item in items:
                text = str(key) if type(key) in _SCALARS else repr(key)[:80]
                if text == "type":  # a dict with this key is a leaf to every reader of the format
                    text = "type_"
                while text in found:
                    text += "_"
                found[text] = self.tree(item, f"{name}.{text}")
            return found
        finally:
            self._around.pop()


def _items(value: Any) -> list[Any] | Iterator[tuple[Any, Any]] | None:
    """The items of a sequence as a list, or the members of what has names; None for neither."""
    if isinstance(value, tuple):
        fields = getattr(type(value), "_fields", None)
        if isinstance(fields, tuple) and len(fields) == len(value):
            return iter(zip(fields, tuple.__iter__(value)))
        return [*tuple.__iter__(value)]
    if isinstance(value, (list, set, frozenset)):
        return [*value]
    if isinstance(value, Mapping):
        return iter(list(value.items()))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return ((field.name, getattr(value, field.name, None)) for field in dataclasses.fields(value))
    return None


def _other(value: Any) -> Tree:
    if isinstance(value, _DTYPE):
        return Plain(type="mindspore.dtype", value=str(value))
    if isinstance(value, slice):
        parts = [None if p is None else int(p) for p in (value.start, value.stop, value.step)]
        return Plain(type="slice", value=parts)
    if value is Ellipsis:
        return Plain(type="ellipsis", value="...")
    if isinstance(value, np.generic) and isinstance(value.item(), _SCALARS):
        return Plain(type=value.dtype.name, value=value.item())
    if isinstance(value, np.ndarray):
        found = Plain(type="numpy.ndarray", dtype=str(value.dtype), shape=list(value.shape))
        found.update(zip(("Max", "Min", "Mean", "Norm"), measure(value)))
        return found
    for kind in (int, float, str):
        if isinstance(value, kind):
            return scalar(kind(value))
    return None
