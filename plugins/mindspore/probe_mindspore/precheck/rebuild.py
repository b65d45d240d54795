"""Rebuild the arguments of a recorded call: tensors from files or statistics, scalars as recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from probe_precheck.api import (
    ArgumentConverter,
    Call,
    Unbuildable,
    get_arguments,
    parse_tensor,
    rebuild_plain_value,
)
from probe_precheck.fitting import RecordedArguments, find_indexed_size, find_input_rule
from probe_precheck.rebuild import check_tensor_memory, list_descriptions, read_recorded_array
from probe_recording.api import leaf_of

from probe_core.model import Value
from probe_mindspore.precheck.random_arrays import create_generator, draw_array
from probe_mindspore.precheck.tensors import (
    STORAGE_DTYPES,
    Arguments,
    DType,
    TensorArgument,
    Values,
    iterate_leaves,
    parse_dtype_name,
    rules,
)

DTYPES = ("mindspore.dtype", "mindspore.type", "torch.dtype")
"""Types of leaves that describe a dtype."""


class Rebuilder:
    """Rebuilder of the inputs and outputs of the calls of one run.

    Args:
        tensors: Function that returns the data of a recorded tensor.
        seed: Seed of random tensors.
        max_bytes: Largest size of a tensor in bytes.
    """

    def __init__(self, tensors: Callable[[Value], np.ndarray[Any, Any]], seed: int, max_bytes: int) -> None:
        self._tensors = tensors
        self._seed = seed
        self._max_bytes = max_bytes

    def rebuild_arguments(self, call: Call) -> Arguments:
        """Return the arguments of the forward pass of a call.

        Raises:
            Unbuildable: An argument cannot be rebuilt; the message says why.
        """
        call_arguments = get_arguments(call)
        positional, keywords = self._walk(call, call_arguments).arguments(call, call_arguments)
        return Arguments(tuple(positional), keywords)

    def rebuild_gradients(self, call: Call) -> list[TensorArgument | None]:
        """Return the gradient of each output that the backward pass of a call received; None if it was not recorded."""
        assert call.backward is not None
        walk = self._walk(call, RecordedArguments([], {}))
        gradients = walk.value(call.backward.get("input", []), f"{call.name}.backward.input")
        return [item if isinstance(item, TensorArgument) else None for item in iterate_leaves(gradients)]

    def draw_gradient(self, call: Call, index: int, shape: tuple[int, ...]) -> TensorArgument:
        """Return a random gradient of the recorded range with another shape.

        Args:
            call: The call.
            index: Index of the recorded gradient.
            shape: The shape to use.
        """
        assert call.backward is not None
        described = list_descriptions(call.backward.get("input", []))
        leaf = {**described[index], "shape": list(shape)}
        leaf.pop("data_name", None)
        return self.rebuild_tensor(leaf, f"{call.name}.backward.input.{index}")

    def rebuild_tensor(self, leaf: Mapping[str, Any], place: str) -> TensorArgument:
        """Return a tensor from its file, or with random values of the recorded range if it has no file.

        Args:
            leaf: The recorded description of the tensor.
            place: Its place in the call, such as ``Mint.add.0.forward.input.1``.

        Raises:
            Unbuildable: The tensor cannot be rebuilt; the message says why.
        """
        value = parse_tensor(leaf, place, leaf_of)
        dtype = parse_dtype_name(str(leaf.get("dtype")))
        if dtype not in STORAGE_DTYPES or value.shape is None:
            raise Unbuildable(f"Tensors of dtype {leaf.get('dtype')} cannot be rebuilt. SKIP.")
        check_tensor_memory(value.shape, np.dtype(STORAGE_DTYPES[dtype]).itemsize, self._max_bytes)
        if value.data_name is None or value.is_empty:
            drawn = draw_array(leaf, dtype, value.shape, create_generator(self._seed, place))
            return TensorArgument(drawn, dtype, place)
        array = read_recorded_array(self._tensors, value)
        return TensorArgument(_convert_recorded(array, dtype, value.data_name), dtype, place)

    def _walk(self, call: Call, call_arguments: RecordedArguments) -> ArgumentConverter:
        """Return the walk that rebuilds the values of a call."""
        return ArgumentConverter(
            partial(self._create_argument, call.api, call_arguments), lambda item, _: decode_plain_value(item), tuple
        )

    def _create_argument(
        self,
        api: str,
        call_arguments: RecordedArguments,
        leaf: Mapping[str, Any],
        place: str,
        position: int | str | None,
    ) -> TensorArgument:
        """Return a tensor argument; random values are adapted to what the API accepts."""
        tensor = self.rebuild_tensor(leaf, place)
        rule = find_input_rule(rules, api, position) if leaf.get("data_name") is None else None
        if rule is None:
            return tensor
        generator = create_generator(self._seed, f"{place}/fitted")
        return TensorArgument(fit_values(tensor.values, api, rule, call_arguments, generator), tensor.dtype, place)


def decode_plain_value(item: Mapping[str, Any]) -> Any:
    """Return the value of a recorded argument that is not a tensor.

    Raises:
        Unbuildable: Values of this type cannot be rebuilt.
    """
    kind, value = item["type"], item.get("value")
    if kind in DTYPES:
        name = parse_dtype_name(str(value))
        if name not in STORAGE_DTYPES:
            raise Unbuildable(f"There is no dtype {value}. SKIP.")
        return DType(name)
    plain = rebuild_plain_value(item)
    return plain.item() if isinstance(plain, np.generic) else plain


def _convert_recorded(array: Values, dtype: str, name: str) -> Values:
    """Return a copy of recorded values in the dtype that numpy stores them in.

    Raises:
        Unbuildable: The file holds another dtype.
    """
    stored = np.dtype(STORAGE_DTYPES[dtype])
    if array.dtype.name == dtype.lower() or array.dtype == stored:
        return np.array(array.astype(stored), order="C")
    if dtype == "BFloat16" and array.dtype.kind == "V" and array.dtype.itemsize == 2:  # by MindSpore
        return (np.array(array).view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    raise Unbuildable(f"{name} holds {array.dtype.name} where {dtype} was recorded. SKIP.")


def fit_values(
    values: Values, api: str, rule: Mapping[str, Any], call_arguments: RecordedArguments, generator: np.random.Generator
) -> Values:
    """Return random values, changed so that an API accepts them.

    Args:
        values: The random values.
        api: The name of the API.
        rule: The rule for the argument.
        call_arguments: All arguments of the call.
        generator: Draws more random numbers.

    Returns:
        The values unchanged if the rule cannot be applied.
    """
    is_index = values.dtype.kind in "iu"
    if "index_of" in rule and is_index:
        size, dim = find_indexed_size(rules, api, rule["index_of"], call_arguments)
        if size is None or size < 1:
            return values
        if rule.get("unique") and dim is not None:
            return _draw_distinct_indices(values, size, dim, generator)
        return np.clip(values, 0, size - 1)
    if "below" in rule and is_index:
        limit = call_arguments.number(rule["below"]["argument"], rule["below"]["name"])
        return np.clip(values, 0, limit - 1) if limit is not None and limit > 0 else np.clip(values, 0, None)
    if "sorted" in rule:
        return np.sort(values, -1) if values.ndim else values
    if "extremes" in rule and values.dtype.kind == "f" and values.size:
        extremes = np.array([values.min(), values.max()])
        chosen: Values = extremes[generator.integers(0, 2, values.shape)]
        return chosen
    if "probabilities" in rule and values.dtype.kind == "f":
        return np.clip(values, 0, 1)
    return values


def _draw_distinct_indices(values: Values, size: int, dim: int, generator: np.random.Generator) -> Values:
    """Return random indices that are distinct along ``dim``.

    If ``size`` is too small for distinct indices, the given indices are clamped to the valid range.
    """
    if values.ndim <= 1:
        dim = 0
    if not values.ndim or values.shape[dim] > size:
        return np.clip(values, 0, size - 1)
    shape = [*values.shape]
    shape[dim] = size
    order = generator.random(shape).argsort(dim)
    return np.take(order, np.arange(values.shape[dim]), dim).astype(values.dtype)
