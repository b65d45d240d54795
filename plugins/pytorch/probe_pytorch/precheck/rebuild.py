"""The arguments of a recorded call, rebuilt: tensors from files or statistics, all else as it was."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from probe_precheck import (
    Call,
    Given,
    Unbuildable,
    Walk,
    arguments_of,
    common_value,
    limit_size,
    recorded_array,
    rule_for,
    value_of,
)
from probe_recording import Tensors, leaf_of, load_npy

from probe_core.model import Value
from probe_pytorch.precheck.fitting import fitted
from probe_pytorch.precheck.random_tensors import generator_for, random_tensor
from probe_pytorch.precheck.rules import rules
from probe_pytorch.ptfile import load_pt

_VIEWED = {"bfloat16": (np.uint16, torch.bfloat16), **{
    name: (np.uint8, getattr(torch, name))
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
    if hasattr(torch, name)
}}  # fmt: skip
"""numpy lacks these: they are read as whole numbers of their size, and seen as what they are."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a call is made with, on the CPU, in the recorded dtypes; tensors say if they need a gradient."""

    positional: list[Any]
    keywords: dict[str, Any]


class Rebuilder:
    """Rebuilds the arguments of calls of one run.

    Args:
        tensors: Where the recorded data are.
        seed: What random tensors are made from.
        most: Bytes that the tensors of one call may take.
    """

    def __init__(self, tensors: Tensors, seed: int, most: int) -> None:
        self._tensors = tensors
        self._seed = seed
        self._most = self._left = most

    def arguments(self, call: Call) -> Arguments:
        """The arguments of the call's forward.

        Raises:
            Unbuildable: One that cannot be rebuilt, and why.
        """
        self._left = self._most
        given = arguments_of(call)
        return Arguments(*self._walk(call, given).arguments(call, given))

    def gradients(self, call: Call) -> list[torch.Tensor | None]:
        """The gradients that the call's backward was given, one an output; None where none was recorded."""
        assert call.backward is not None
        self._left = self._most
        recorded = call.backward.get("input")
        recorded = recorded if isinstance(recorded, list) else []
        walk = self._walk(call, Given([], {}))
        found = [walk.value(item, f"{call.name}.backward.input.{i}") for i, item in enumerate(recorded)]
        flat = _flat(found)
        return [item.detach() if isinstance(item, torch.Tensor) else None for item in flat]

    def gradient_like(self, call: Call, index: int, shape: torch.Size) -> torch.Tensor:
        """A gradient of another shape than was recorded, of the recorded range."""
        assert call.backward is not None
        leaf = {**_flat(call.backward["input"])[index], "shape": list(shape)}
        leaf.pop("data_name", None)
        return self.tensor(leaf, f"{call.name}.backward.input.{index}")

    def tensor(self, leaf: Mapping[str, Any], place: str) -> torch.Tensor:
        """One tensor: from its file where it has one, else made up.

        Raises:
            Unbuildable: It cannot be.
        """
        value = value_of(leaf, place, leaf_of)
        dtype = getattr(torch, value.dtype.removeprefix("torch."), None)
        if not isinstance(dtype, torch.dtype) or value.shape is None:
            raise Unbuildable(f"torch {torch.__version__} has no dtype {value.dtype}. SKIP.")
        if "layout" in leaf:
            raise Unbuildable(f"Tensors of layout {leaf['layout']} cannot be rebuilt. SKIP.")
        limit_size(value.shape, dtype.itemsize, self._left)
        self._left -= math.prod(value.shape) * dtype.itemsize
        name = value.data_name or _old_name(leaf)
        if name is None or value.is_empty:
            return random_tensor(leaf, dtype, value.shape, generator_for(self._seed, place))
        return self._recorded(value._replace(data_name=name), dtype)

    def _recorded(self, value: Value, dtype: torch.dtype) -> torch.Tensor:
        found = as_tensor(recorded_array(self._tensors, value))
        if found.dtype != dtype:
            raise Unbuildable(f"{value.data_name} holds {found.dtype} where {dtype} was recorded. SKIP.")
        return found

    def _walk(self, call: Call, given: Given) -> Walk:
        return Walk(partial(self._made, call.api, given), _plain)

    def _made(
        self, api: str, given: Given, leaf: Mapping[str, Any], place: str, at: int | str | None
    ) -> torch.Tensor | np.ndarray[Any, Any]:
        """A tensor or array argument as the API takes it."""
        if leaf["type"] == "numpy.ndarray":
            return self.tensor({**leaf, "dtype": f"torch.{leaf['dtype']}"}, place).numpy()
        tensor = self.tensor(leaf, place)
        is_made_up = leaf.get("data_name") is None and _old_name(leaf) is None
        rule = rule_for(rules, api, at) if is_made_up else None
        if rule is not None:
            tensor = fitted(tensor, api, rule, given, generator_for(self._seed, f"{place}/fitted"))
        to = rules("dtypes").get(api, {}).get(str(tensor.dtype).removeprefix("torch."))
        if to is not None:
            tensor = tensor.to(getattr(torch, to))
        if api in rules("hf32") and tensor.dtype is torch.float32:
            tensor = hf32(tensor)
        if leaf.get("requires_grad") is True and (tensor.is_floating_point() or tensor.is_complex()):
            tensor.requires_grad_()
        return tensor


def _flat(items: list[Any]) -> list[Any]:
    """The items, those of lists among them in their places."""
    return [part for item in items for part in (item if isinstance(item, (list, tuple)) else [item])]


def _plain(item: Mapping[str, Any], place: str) -> Any:
    try:
        return plain_value(item)
    except (ValueError, TypeError, OverflowError):
        raise Unbuildable(f"{place} holds no {item['type']}. SKIP.") from None


def plain_value(item: Mapping[str, Any]) -> Any:
    """The value that a description of something other than a tensor stands for (guide 4.1).

    Raises:
        Unbuildable: It is of a kind that cannot be rebuilt.
    """
    kind = item["type"]
    value = item.get("value")
    if kind == "torch.Size":
        return torch.Size(value if isinstance(value, list) else [])
    if kind == "torch.memory_format":
        return _of_torch(str(item.get("format", value)), torch.memory_format)
    if kind == "torch.dtype":
        return _of_torch(str(value), torch.dtype)
    if kind == "torch.device":
        return torch.device("cpu")  # the side that runs the call puts its own there
    if kind == "int" and isinstance(value, str):
        return int(value, 16)
    if kind == "torch.ProcessGroup":
        raise Unbuildable(f"An argument of type {kind} cannot be rebuilt. SKIP.")
    return common_value(item)


def _of_torch(text: str, kind: type) -> Any:
    found = getattr(torch, text.removeprefix("torch."), None)
    if not isinstance(found, kind):
        raise Unbuildable(f"torch {torch.__version__} has no {text}. SKIP.")
    return found


def as_tensor(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """A tensor with a copy of the array's values; bfloat16 and float8 of ml_dtypes are torch's own.

    Raises:
        Unbuildable: torch has no such dtype.
    """
    array = np.array(array, order="C")
    if array.dtype.name in _VIEWED:
        stored, dtype = _VIEWED[array.dtype.name]
        return torch.from_numpy(array.view(stored)).view(dtype)
    try:
        return torch.from_numpy(array)
    except TypeError:
        raise Unbuildable(f"torch {torch.__version__} has no dtype {array.dtype.name}. SKIP.") from None


def hf32(tensor: torch.Tensor) -> torch.Tensor:
    """float32 rounded to HF32, 11 bits of significand (guide: x → (((x >> 11) + 1) >> 1) << 12)."""
    bits = tensor.detach().contiguous().view(torch.int32)
    rounded = ((((bits >> 11) + 1) >> 1) << 12).view(torch.float32)
    return torch.where(tensor.isnan(), tensor.detach(), rounded)  # a nan may carry into the sign


def load_any(path: str) -> np.ndarray[Any, Any]:
    """The array in a ``.pt`` or ``.npy`` file."""
    return load_npy(Path(path)) if path.endswith(".npy") else load_pt(path)


def _old_name(leaf: Mapping[str, Any]) -> str | None:
    """The file that the oldest recorders named by its path."""
    path = leaf.get("datapath")
    return path.replace("\\", "/").rpartition("/")[2] or None if isinstance(path, str) else None
