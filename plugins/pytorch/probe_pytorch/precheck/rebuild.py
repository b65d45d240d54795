"""Rebuilding of a recorded call's arguments: tensors from files or statistics, other values as recorded."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from probe_precheck.api import (
    ArgumentConverter,
    Call,
    Unbuildable,
    get_arguments,
    parse_tensor,
    rebuild_plain_value,
)
from probe_precheck.fitting import RecordedArguments, find_indexed_size, find_input_rule
from probe_precheck.rebuild import check_tensor_memory, read_recorded_array
from probe_recording.api import leaf_of, load_npy

from probe_core.model import Value
from probe_pytorch.precheck.random_tensors import create_generator, draw_tensor
from probe_pytorch.precheck.rules import rules
from probe_pytorch.ptfile import load_pt

_DTYPE_VIEWS = {"bfloat16": (np.int16, torch.bfloat16), **{
    name: (np.uint8, getattr(torch, name))
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
    if hasattr(torch, name)
}}  # fmt: skip
"""Dtypes that numpy lacks: the integer dtype they are passed through, and the dtype of torch.

Torch before 2.3 has no uint16."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a call, on the CPU, in the recorded dtypes, with ``requires_grad`` set."""

    positional: list[Any]
    keywords: dict[str, Any]


class Rebuilder:
    """A builder of the arguments of calls in one run.

    Args:
        tensors: Returns the data of a recorded tensor.
        seed: The random seed of tensors whose data were not recorded.
        most: Largest number of bytes for the tensors of one call.
    """

    exact = False
    """True to leave inputs as they are: not rounded for convolutions, as the pre-check does, and not copied,
    so that nothing may write to them."""

    def __init__(self, tensors: Callable[[Value], np.ndarray[Any, Any]], seed: int, most: int) -> None:
        self._tensors = tensors
        self._seed = seed
        self._most = self._left = most

    def rebuild_arguments(self, call: Call) -> Arguments:
        """Return the arguments of the call's forward.

        Raises:
            Unbuildable: An argument cannot be rebuilt; the text says why.
        """
        self._left = self._most
        call_arguments = get_arguments(call)
        return Arguments(*self._walk(call, call_arguments).arguments(call, call_arguments))

    def rebuild_gradients(self, call: Call) -> list[torch.Tensor | None]:
        """Return the recorded gradients of the call's outputs; None for an output without one."""
        assert call.backward is not None
        self._left = self._most
        recorded = call.backward.get("input")
        recorded = recorded if isinstance(recorded, list) else []
        walk = self._walk(call, RecordedArguments([], {}))
        flat = _flatten([walk.value(item, f"{call.name}.backward.input.{i}") for i, item in enumerate(recorded)])
        return [item.detach() if isinstance(item, torch.Tensor) else None for item in flat]

    def draw_gradient(self, call: Call, index: int, shape: torch.Size) -> torch.Tensor:
        """Return a random gradient of the recorded range in another shape than the recorded one."""
        assert call.backward is not None
        leaf = {**_flatten(call.backward["input"])[index], "shape": list(shape)}
        leaf.pop("data_name", None)
        return self.rebuild_tensor(leaf, f"{call.name}.backward.input.{index}")

    def rebuild_tensor(self, leaf: Mapping[str, Any], place: str) -> torch.Tensor:
        """Return a tensor with its recorded data, or a random one if the data were not recorded.

        Args:
            leaf: The recorded leaf.
            place: The name of the value, such as ``Functional.linear.0.forward.input.1``.

        Raises:
            Unbuildable: It cannot be rebuilt; the text says why.
        """
        value = parse_tensor(leaf, place, leaf_of)
        dtype = getattr(torch, value.dtype.removeprefix("torch."), None)
        if not isinstance(dtype, torch.dtype) or value.shape is None:
            raise Unbuildable(f"torch {torch.__version__} has no dtype {value.dtype}. SKIP.")
        if "layout" in leaf:
            raise Unbuildable(f"Tensors of layout {leaf['layout']} cannot be rebuilt. SKIP.")
        check_tensor_memory(value.shape, dtype.itemsize, self._left)
        self._left -= math.prod(value.shape) * dtype.itemsize
        name = value.data_name or _find_old_name(leaf)
        if name is None or value.is_empty:
            return draw_tensor(leaf, dtype, value.shape, create_generator(self._seed, place))
        return self._load_recorded(value._replace(data_name=name), dtype)

    def _load_recorded(self, value: Value, dtype: torch.dtype) -> torch.Tensor:
        tensor = convert_to_tensor(read_recorded_array(self._tensors, value), copy=not self.exact)
        if tensor.dtype != dtype:
            raise Unbuildable(f"{value.data_name} holds {tensor.dtype} where {dtype} was recorded. SKIP.")
        return tensor

    def _walk(self, call: Call, call_arguments: RecordedArguments) -> ArgumentConverter:
        return ArgumentConverter(partial(self._create_argument, call.api, call_arguments), _decode_plain)

    def _create_argument(
        self, api: str, call_arguments: RecordedArguments, leaf: Mapping[str, Any], place: str, at: int | str | None
    ) -> torch.Tensor | np.ndarray[Any, Any]:
        """Return a tensor or array argument in the form that the API accepts."""
        if leaf["type"] == "numpy.ndarray":
            return self.rebuild_tensor({**leaf, "dtype": f"torch.{leaf['dtype']}"}, place).clone().numpy()
        tensor = self.rebuild_tensor(leaf, place)
        is_made_up = leaf.get("data_name") is None and _find_old_name(leaf) is None
        rule = find_input_rule(rules, api, at) if is_made_up else None
        if rule is not None:
            tensor = fit_tensor(tensor, api, rule, call_arguments, create_generator(self._seed, f"{place}/fitted"))
        to = rules("dtypes").get(api, {}).get(str(tensor.dtype).removeprefix("torch."))
        if to is not None:
            tensor = tensor.to(getattr(torch, to))
        if not self.exact and api in rules("hf32") and tensor.dtype is torch.float32:
            tensor = round_to_hf32(tensor)
        if leaf.get("requires_grad") is True and (tensor.is_floating_point() or tensor.is_complex()):
            tensor.requires_grad_()
        return tensor


def _flatten(items: list[Any]) -> list[Any]:
    """Return the items with nested lists and tuples replaced by their items."""
    return [part for item in items for part in (item if isinstance(item, (list, tuple)) else [item])]


def _decode_plain(item: Mapping[str, Any], place: str) -> Any:
    try:
        return decode_plain_value(item)
    except (ValueError, TypeError, OverflowError):
        raise Unbuildable(f"{place} holds no {item['type']}. SKIP.") from None


def decode_plain_value(item: Mapping[str, Any]) -> Any:
    """Return the value of a leaf that is not a tensor (docs/standards.md#inputs).

    Raises:
        Unbuildable: Values of its kind cannot be rebuilt.
    """
    kind = item["type"]
    value = item.get("value")
    if kind == "torch.Size":
        return torch.Size(value if isinstance(value, list) else [])
    if kind == "torch.memory_format":
        return _parse_torch_constant(str(item.get("format", value)), torch.memory_format)
    if kind == "torch.dtype":
        return _parse_torch_constant(str(value), torch.dtype)
    if kind == "torch.device":
        return torch.device("cpu")  # replaced by the device that runs the call
    if kind == "int" and isinstance(value, str):
        return int(value, 16)
    if kind == "torch.ProcessGroup":
        raise Unbuildable(f"An argument of type {kind} cannot be rebuilt. SKIP.")
    return rebuild_plain_value(item)


def _parse_torch_constant(text: str, kind: type) -> Any:
    value = getattr(torch, text.removeprefix("torch."), None)
    if not isinstance(value, kind):
        raise Unbuildable(f"torch {torch.__version__} has no {text}. SKIP.")
    return value


def convert_to_tensor(array: np.ndarray[Any, Any], *, copy: bool = True) -> torch.Tensor:
    """Return an array as a tensor; bfloat16 and float8 of ml_dtypes become torch's own.

    Args:
        array: The array.
        copy: False for a tensor that shares the array's memory, which may be read-only.

    Raises:
        Unbuildable: torch has no such dtype.
    """
    array = np.array(array, order="C") if copy else np.asarray(array, order="C")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return _share_array(array)


def _share_array(array: np.ndarray[Any, Any]) -> torch.Tensor:
    if array.dtype.name in _DTYPE_VIEWS:
        stored, dtype = _DTYPE_VIEWS[array.dtype.name]
        return torch.from_numpy(array.view(stored)).view(dtype)
    try:
        return torch.from_numpy(array)
    except TypeError:
        raise Unbuildable(f"torch {torch.__version__} has no dtype {array.dtype.name}. SKIP.") from None


def round_to_hf32(tensor: torch.Tensor) -> torch.Tensor:
    """Return a float32 tensor rounded to HF32, which has 11 bits of significand.

    The bits x become (((x >> 11) + 1) >> 1) << 12; see docs/standards.md#raised-precision.
    """
    bits = tensor.detach().contiguous().view(torch.int32)
    rounded = ((((bits >> 11) + 1) >> 1) << 12).view(torch.float32)
    return torch.where(tensor.isnan(), tensor.detach(), rounded)  # rounding a nan may change its sign bit


def load_any(path: str) -> np.ndarray[Any, Any]:
    """Return the array in a ``.pt`` or ``.npy`` file."""
    return load_npy(Path(path)) if path.endswith(".npy") else load_pt(path)


def _find_old_name(leaf: Mapping[str, Any]) -> str | None:
    """Return the file name in ``datapath``, the field of runs that old recorders wrote; None without one."""
    path = leaf.get("datapath")
    return path.replace("\\", "/").rpartition("/")[2] or None if isinstance(path, str) else None


def fit_tensor(
    tensor: torch.Tensor,
    api: str,
    rule: Mapping[str, Any],
    call_arguments: RecordedArguments,
    generator: torch.Generator,
) -> torch.Tensor:
    """Return a random tensor changed so that the API accepts it.

    Args:
        tensor: The tensor, which may be overwritten.
        api: The name of the API.
        rule: The rule of the argument in ``rules.yaml``.
        call_arguments: The recorded arguments of the call.
        generator: The source of random numbers.
    """
    is_index = not tensor.is_floating_point() and tensor.dtype is not torch.bool
    if "index_of" in rule and is_index:
        size, dim = find_indexed_size(rules, api, rule["index_of"], call_arguments)
        if size:
            if rule.get("unique") and dim is not None:
                return _draw_distinct_indices(tensor, size, dim, generator)
            return tensor.clamp_(0, size - 1)
    elif "below" in rule and is_index:
        limit = call_arguments.number(rule["below"]["argument"], rule["below"]["name"])
        return tensor.clamp_(0, limit - 1) if limit is not None and limit > 0 else tensor.clamp_(min=0)
    elif "sorted" in rule:
        return tensor.sort(-1).values if tensor.ndim else tensor
    elif "offsets_of" in rule and is_index and tensor.numel():
        shape = call_arguments.shape(rule["offsets_of"]["argument"], rule["offsets_of"]["name"])
        tensor = tensor.clamp_(0, math.prod(shape) if shape else 0).sort().values
        tensor[0] = 0
    elif "positive_definite" in rule and tensor.ndim >= 2 and tensor.is_floating_point():
        matrix = tensor.double()
        size = matrix.shape[-1]
        return (matrix @ matrix.mT + size * torch.eye(size, dtype=matrix.dtype)).to(tensor.dtype)
    elif "extremes" in rule and tensor.is_floating_point() and tensor.numel():
        low, high = tensor.min(), tensor.max()
        return torch.where(torch.rand(tensor.shape, generator=generator) < 0.5, low, high)
    elif "probabilities" in rule and tensor.is_floating_point():
        return tensor.clamp_(0, 1)
    return tensor


def _draw_distinct_indices(tensor: torch.Tensor, size: int, dim: int, generator: torch.Generator) -> torch.Tensor:
    """Return random indices that are distinct along ``dim``.

    If ``size`` is too small for distinct indices, the given indices are clamped to the valid range.
    """
    if tensor.ndim <= 1:
        dim = 0
    if not tensor.ndim or tensor.shape[dim] > size:
        return tensor.clamp_(0, size - 1)
    shape = [*tensor.shape]
    shape[dim] = size
    order = torch.rand(shape, generator=generator).argsort(dim)
    return order.narrow(dim, 0, tensor.shape[dim]).contiguous().to(tensor.dtype)
