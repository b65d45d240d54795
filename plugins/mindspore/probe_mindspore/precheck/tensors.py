"""Tensors between the frameworks: values as numpy has them, with MindSpore's name of their dtype."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from probe_precheck import Array

Values = np.ndarray[Any, Any]

STORED = {
    "Bool": np.bool_, "Int8": np.int8, "Int16": np.int16, "Int32": np.int32, "Int64": np.int64,
    "UInt8": np.uint8, "UInt16": np.uint16, "UInt32": np.uint32, "UInt64": np.uint64,
    "Float16": np.float16, "Float32": np.float32, "Float64": np.float64, "BFloat16": np.float32,
    "Complex64": np.complex64, "Complex128": np.complex128,
}  # fmt: skip
"""MindSpore's dtypes, and what numpy holds them in: bfloat16, which it lacks, in float32."""

FLOATS = ("Float16", "BFloat16", "Float32", "Float64")
BITS = {"Float16": 16, "BFloat16": 16, "Float32": 32, "Float64": 64}


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """A tensor argument, rebuilt: its values, not to be written, MindSpore's dtype, its place in the call."""

    values: Values
    dtype: str
    place: str = ""

    @property
    def is_float(self) -> bool:
        """Can it have a gradient?"""
        return self.dtype in FLOATS

    @property
    def array(self) -> Array:
        """The same as the core judges it."""
        return Array(self.values, self.dtype)


@dataclass(frozen=True, slots=True)
class DType:
    """A dtype argument, by MindSpore's name."""

    name: str


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a call is made with: ``Made`` for tensors, ``DType`` for dtypes, all else as it is."""

    positional: tuple[Any, ...]
    keywords: dict[str, Any]

    @property
    def tensors(self) -> list[Made]:
        """All tensors: those by position first, lists depth first."""
        return [item for item in leaves((self.positional, self.keywords)) if isinstance(item, Made)]


def leaves(value: Any) -> Iterator[Any]:
    """What tuples, lists and dicts hold, depth first."""
    if isinstance(value, (list, tuple)) and not isinstance(value, Array):
        for item in value:
            yield from leaves(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from leaves(item)
    else:
        yield value


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """``value`` with everything in its tuples, lists and dicts changed."""
    if isinstance(value, (list, tuple)) and not isinstance(value, Array):
        changed = [mapped(item, change) for item in value]
        return changed if isinstance(value, list) else tuple(changed)
    if isinstance(value, dict):
        return {key: mapped(item, change) for key, item in value.items()}
    return change(value)


def dtype_name(text: str) -> str:
    """MindSpore's name of a dtype, however it was written: ``Float32`` of ``mindspore.float32``, too."""
    bare = text.rpartition(".")[2].removesuffix("_").lower()
    return next((name for name in STORED if name.lower() == bare), text)


def widened(value: Any, expected: Sequence[str]) -> tuple[Any, list[str]]:
    """``value`` with its arrays in their expected dtypes where their own are narrower, and what these were.

    By a wider dtype an output is judged that was computed in too narrow a one. Dtypes that are not known are
    left as they are.
    """
    found: list[str] = []
    names = iter(expected if len(list(leaves(value))) == len(expected) else ())

    def change(item: Any) -> Any:
        name = next(names, "")
        if (
            not isinstance(item, Array)
            or item.dtype not in BITS
            or name not in BITS
            or BITS[item.dtype] >= BITS[name]
        ):
            return item
        found.append(f"{item.dtype} → {name}")
        return Array(item.values.astype(STORED[name]), name)

    return mapped(value, change), found
