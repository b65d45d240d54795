"""The arguments of a recorded call, rebuilt: tensors from files or statistics, all else as it was."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from probe_precheck import (
    Call,
    Given,
    Unbuildable,
    Walk,
    arguments_of,
    common_value,
    described_leaves,
    limit_size,
    recorded_array,
    rule_for,
    value_of,
)
from probe_recording import Tensors, leaf_of

from probe_mindspore.precheck.fitting import fitted
from probe_mindspore.precheck.random_arrays import generator_for, random_array
from probe_mindspore.precheck.rules import rules
from probe_mindspore.precheck.tensors import STORED, Arguments, DType, Made, Values, dtype_name, leaves

DTYPES = ("mindspore.dtype", "mindspore.type", "torch.dtype")


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
        given = arguments_of(call)
        positional, keywords = self._walk(call, given).arguments(call, given)
        return Arguments(tuple(positional), keywords)

    def gradients(self, call: Call) -> list[Made | None]:
        """The gradients that the call's backward was given, one an output; None where none was recorded."""
        assert call.backward is not None
        walk = self._walk(call, Given([], {}))
        found = walk.value(call.backward.get("input", []), f"{call.name}.backward.input")
        return [item if isinstance(item, Made) else None for item in leaves(found)]

    def gradient_like(self, call: Call, index: int, shape: tuple[int, ...]) -> Made:
        """A gradient of another shape than was recorded, of the recorded range."""
        assert call.backward is not None
        described = described_leaves(call.backward.get("input", []))
        leaf = {**described[index], "shape": list(shape)}
        leaf.pop("data_name", None)
        return self.tensor(leaf, f"{call.name}.backward.input.{index}")

    def tensor(self, leaf: Mapping[str, Any], place: str) -> Made:
        """One tensor: from its file where it has one, else made up.

        Raises:
            Unbuildable: It cannot be.
        """
        value = value_of(leaf, place, leaf_of)
        dtype = dtype_name(str(leaf.get("dtype")))
        if dtype not in STORED or value.shape is None:
            raise Unbuildable(f"Tensors of dtype {leaf.get('dtype')} cannot be rebuilt. SKIP.")
        limit_size(value.shape, np.dtype(STORED[dtype]).itemsize, self._most)
        if value.data_name is None or value.is_empty:
            drawn = random_array(leaf, dtype, value.shape, generator_for(self._seed, place))
            return Made(drawn, dtype, place)
        array = recorded_array(self._tensors, value)
        return Made(_stored(array, dtype, value.data_name), dtype, place)

    def _walk(self, call: Call, given: Given) -> Walk:
        return Walk(partial(self._made, call.api, given), lambda item, _: plain_value(item), tuple)

    def _made(
        self, api: str, given: Given, leaf: Mapping[str, Any], place: str, at: int | str | None
    ) -> Made:
        """A tensor argument as the API takes it."""
        found = self.tensor(leaf, place)
        rule = rule_for(rules, api, at) if leaf.get("data_name") is None else None
        if rule is None:
            return found
        generator = generator_for(self._seed, f"{place}/fitted")
        return Made(fitted(found.values, api, rule, given, generator), found.dtype, place)


def plain_value(item: Mapping[str, Any]) -> Any:
    """The value that a description of something other than a tensor stands for.

    Raises:
        Unbuildable: It is of a kind that cannot be rebuilt.
    """
    kind, value = item["type"], item.get("value")
    if kind in DTYPES:
        name = dtype_name(str(value))
        if name not in STORED:
            raise Unbuildable(f"There is no dtype {value}. SKIP.")
        return DType(name)
    found = common_value(item)
    return found.item() if isinstance(found, np.generic) else found


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
