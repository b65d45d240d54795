"""The arguments of a recorded call, rebuilt: tensors from files or statistics, all else as it was."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from probe_core.errors import UnreadableTensor
from probe_core.precheck.model import Call
from probe_core.store.leaves import FieldError, leaf_of
from probe_core.store.tensors import Tensors
from probe_mindspore.precheck.fitting import Given, fitted, rule_for
from probe_mindspore.precheck.random_arrays import Unbuildable, generator_for, random_array
from probe_mindspore.precheck.tensors import STORED, Arguments, DType, Made, Values, dtype_name, leaves

DEPTH = 100
DTYPES = ("mindspore.dtype", "mindspore.type", "torch.dtype")
PLAIN = ("int", "float", "bool", "str")


class Rebuilder:
    """Rebuilds what calls of one run were given, and what they gave out.

    Args:
        tensors: Where the recorded data are.
        seed: What random tensors are made from.
        most: Bytes that one tensor may take.
    """

    def __init__(self, tensors: Tensors, seed: int, most: int) -> None:
        self._tensors = tensors
        self._seed = seed
        self._most = most

    def arguments(self, call: Call) -> Arguments:
        """The arguments of the call's forward.

        Raises:
            Unbuildable: One that cannot be rebuilt, and why.
        """
        positional = call.forward.get("input_args", call.forward.get("input", []))
        keywords = call.forward.get("input_kwargs") or {}
        if not isinstance(positional, list) or not isinstance(keywords, dict):
            raise Unbuildable("Its arguments are not recorded as lists and objects. SKIP.")
        walk = _Walk(self, call.api, Given(positional, keywords))
        name = f"{call.name}.forward"
        return Arguments(
            tuple(walk.value(item, f"{name}.input.{i}", i, 0) for i, item in enumerate(positional)),
            {key: walk.value(item, f"{name}.kwargs.{key}", key, 0) for key, item in keywords.items()},
        )

    def gradients(self, call: Call) -> list[Made | None]:
        """The gradients that the call's backward was given, one an output; None where none was recorded."""
        assert call.backward is not None
        name = f"{call.name}.backward.input"
        recorded = call.backward.get("input", [])
        walk = _Walk(self, call.api, None)
        found = walk.value(recorded, name, "", 0)
        return [item if isinstance(item, Made) else None for item in leaves(found)]

    def gradient_like(self, call: Call, index: int, shape: tuple[int, ...]) -> Made:
        """A gradient of another shape than was recorded, of the recorded range."""
        assert call.backward is not None
        described = [item for item in described_leaves(call.backward.get("input", []))]
        leaf = {**described[index], "shape": list(shape)}
        leaf.pop("data_name", None)
        return self.tensor(leaf, f"{call.name}.backward.input.{index}")

    def tensor(self, leaf: Mapping[str, Any], place: str) -> Made:
        """One tensor: from its file where it has one, else made up.

        Raises:
            Unbuildable: It cannot be.
        """
        try:
            value = leaf_of(dict(leaf), "")
        except FieldError as error:
            raise Unbuildable(f"{place}{error}. SKIP.") from None
        dtype = dtype_name(str(leaf.get("dtype")))
        if dtype not in STORED or value.shape is None:
            raise Unbuildable(f"Tensors of dtype {leaf.get('dtype')} cannot be rebuilt. SKIP.")
        if math.prod(value.shape) * np.dtype(STORED[dtype]).itemsize > self._most:
            raise Unbuildable(f"A tensor of shape {list(value.shape)} takes more memory than there is. SKIP.")
        if value.data_name is None or value.is_empty:
            drawn = random_array(leaf, dtype, value.shape, generator_for(self._seed, place))
            return Made(drawn, dtype, place)
        try:
            array = self._tensors(value)
        except UnreadableTensor as error:
            raise Unbuildable(f"{error}. SKIP.") from None
        if array.shape != value.shape:
            raise Unbuildable(
                f"{value.data_name} holds shape {list(array.shape)} where {value.extent} was recorded. SKIP."
            )
        return Made(_stored(array, dtype, value.data_name), dtype, place)

    def made(self, leaf: Mapping[str, Any], api: str, place: str, at: int | str, given: Given | None) -> Made:
        """A tensor argument as the API takes it."""
        found = self.tensor(leaf, place)
        if given is None or leaf.get("data_name") is not None:
            return found
        rule = rule_for(api, at)
        if rule is None:
            return found
        generator = generator_for(self._seed, f"{place}/fitted")
        return Made(fitted(found.values, api, rule, given, generator), found.dtype, place)


class _Walk:
    """Through the descriptions of one call."""

    def __init__(self, rebuilder: Rebuilder, api: str, given: Given | None) -> None:
        self._rebuilder = rebuilder
        self._api = api
        self._given = given

    def value(self, item: Any, place: str, at: int | str, depth: int) -> Any:
        """What one description stands for; ``at`` is the position or keyword that it is below."""
        if depth > DEPTH:
            raise Unbuildable("Its arguments are nested too deeply. SKIP.")
        if isinstance(item, list):
            return tuple(self.value(part, f"{place}.{i}", "", depth + 1) for i, part in enumerate(item))
        if not isinstance(item, dict):
            return item
        if "dtype" in item and isinstance(item.get("type"), str):
            return self._rebuilder.made(item, self._api, place, at, self._given)
        if not isinstance(item.get("type"), str):
            return {key: self.value(part, f"{place}.{key}", "", depth + 1) for key, part in item.items()}
        return plain_value(item)


def plain_value(item: Mapping[str, Any]) -> Any:
    """The value that a description of something other than a tensor stands for.

    Raises:
        Unbuildable: It is of a kind that cannot be rebuilt.
    """
    kind, value = item["type"], item.get("value")
    if kind == "slice":
        return slice(*value) if isinstance(value, list) and 1 <= len(value) <= 3 else slice(None)
    if kind in ("ellipsis", "Ellipsis"):
        return ...
    if kind in DTYPES:
        name = dtype_name(str(value))
        if name not in STORED:
            raise Unbuildable(f"There is no dtype {value}. SKIP.")
        return DType(name)
    name = kind.removeprefix("numpy.")
    if kind not in PLAIN and isinstance(value, (int, float, bool, str)):
        scalar = getattr(np, name, None)
        if isinstance(scalar, type) and issubclass(scalar, np.generic):
            return scalar(value).item()
    if "value" not in item:
        raise Unbuildable(f"An argument of type {kind} cannot be rebuilt. SKIP.")
    return value


def described_leaves(value: Any) -> list[Any]:
    """The descriptions in nested lists and objects, depth first; None where nothing was recorded."""
    if isinstance(value, list):
        return [leaf for item in value for leaf in described_leaves(item)]
    if isinstance(value, dict) and not isinstance(value.get("type"), str):
        return [leaf for item in value.values() for leaf in described_leaves(item)]
    return [value]


def is_recorded(leaf: Any) -> bool:
    """Is the description one of a tensor whose data were kept?"""
    return isinstance(leaf, Mapping) and leaf.get("data_name") is not None


def _stored(array: Values, dtype: str, name: str) -> Values:
    """A copy of recorded values as numpy holds the dtype.

    Raises:
        Unbuildable: The file holds another dtype.
    """
    stored = np.dtype(STORED[dtype])
    if array.dtype.name == dtype.lower() or array.dtype == stored:
        return np.array(array.astype(stored), order="C")
    if dtype == "BFloat16" and array.dtype.kind == "V" and array.dtype.itemsize == 2:  # MindSpore's own
        return (np.array(array).view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    raise Unbuildable(f"{name} holds {array.dtype.name} where {dtype} was recorded. SKIP.")
