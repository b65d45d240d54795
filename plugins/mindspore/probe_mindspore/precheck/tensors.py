"""Tensors exchanged between both frameworks: numpy arrays, with MindSpore's name of their dtype."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from probe_precheck.api import Array
from probe_precheck.rules import Rules

Values = np.ndarray[Any, Any]

STORAGE_DTYPES = {
    "Bool": np.bool_, "Int8": np.int8, "Int16": np.int16, "Int32": np.int32, "Int64": np.int64,
    "UInt8": np.uint8, "UInt16": np.uint16, "UInt32": np.uint32, "UInt64": np.uint64,
    "Float16": np.float16, "Float32": np.float32, "Float64": np.float64, "BFloat16": np.float32,
    "Complex64": np.complex64, "Complex128": np.complex128,
}  # fmt: skip
"""Numpy dtypes that hold MindSpore's dtypes; numpy lacks bfloat16, which is held in float32."""

FLOAT_DTYPES = ("Float16", "BFloat16", "Float32", "Float64")
"""Dtypes of tensors that can have a gradient."""

DTYPE_BITS = {"Float16": 16, "BFloat16": 16, "Float32": 32, "Float64": 64}
"""Sizes of floating-point dtypes in bits."""


@dataclass(frozen=True, slots=True, eq=False)
class TensorArgument:
    """A rebuilt tensor argument.

    Attributes:
        values: Its values, which must not be written to.
        dtype: MindSpore's name of its dtype.
        place: Its place in the call, such as ``Mint.add.0.forward.input.1``.
    """

    values: Values
    dtype: str
    place: str = ""

    @property
    def is_float(self) -> bool:
        """True if it can have a gradient."""
        return self.dtype in FLOAT_DTYPES

    @property
    def array(self) -> Array:
        """The tensor in the form that the standards of the pre-check judge."""
        return Array(self.values, self.dtype)


@dataclass(frozen=True, slots=True)
class DType:
    """A dtype argument, given by MindSpore's name."""

    name: str


@dataclass(frozen=True, slots=True)
class Arguments:
    """Arguments of a call: ``TensorArgument`` for tensors, ``DType`` for dtypes, other values unchanged."""

    positional: tuple[Any, ...]
    keywords: dict[str, Any]

    @property
    def tensors(self) -> list[TensorArgument]:
        """All tensors, those by position first; lists are walked depth first."""
        return [item for item in iterate_leaves((self.positional, self.keywords)) if isinstance(item, TensorArgument)]


def iterate_leaves(value: Any) -> Iterator[Any]:
    """Yield the values in tuples, lists and dicts, depth first."""
    if isinstance(value, (list, tuple)) and not isinstance(value, Array):
        for item in value:
            yield from iterate_leaves(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from iterate_leaves(item)
    else:
        yield value


def map_leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return ``value`` with ``change`` applied to each value in its tuples, lists and dicts."""
    if isinstance(value, (list, tuple)) and not isinstance(value, Array):
        changed = [map_leaves(item, change) for item in value]
        return changed if isinstance(value, list) else tuple(changed)
    if isinstance(value, dict):
        return {key: map_leaves(item, change) for key, item in value.items()}
    return change(value)


def parse_dtype_name(text: str) -> str:
    """Return MindSpore's name of a dtype in any spelling, such as ``Float32`` for ``mindspore.float32``."""
    bare = text.rpartition(".")[2].removesuffix("_").lower()
    return next((name for name in STORAGE_DTYPES if name.lower() == bare), text)


def widen_outputs(value: Any, expected: Sequence[str]) -> tuple[Any, list[str]]:
    """Return ``value`` with arrays in their expected dtypes if their own are narrower.

    An output that was computed in too narrow a dtype is judged by the thresholds of the expected one.

    Args:
        value: The output of a call.
        expected: MindSpore's names of the expected dtypes; empty for an unknown one.

    Returns:
        The new output, and one text for each change, such as ``Float16 → Float32``.
    """
    changes: list[str] = []
    names = iter(expected if len(list(iterate_leaves(value))) == len(expected) else ())

    def widen_leaf(item: Any) -> Any:
        name = next(names, "")
        if (
            not isinstance(item, Array)
            or item.dtype not in DTYPE_BITS
            or name not in DTYPE_BITS
            or DTYPE_BITS[item.dtype] >= DTYPE_BITS[name]
        ):
            return item
        changes.append(f"{item.dtype} → {name}")
        return Array(item.values.astype(STORAGE_DTYPES[name]), name)

    return map_leaves(value, widen_leaf), changes


# -- rules of the pre-check for single APIs, by the sections of ``rules.yaml`` ----------------------


rules = Rules(__package__)
"""Sections of ``rules.yaml``, loaded when first needed."""
