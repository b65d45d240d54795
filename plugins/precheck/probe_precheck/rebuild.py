"""From the description of a recorded call to its arguments, as far as no framework is needed for it."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from probe_core.errors import UnreadableTensor
from probe_core.model import Value
from probe_precheck.fitting import Given
from probe_precheck.model import Call

DEPTH = 100
SHARE_OF_MEMORY = 4
"""No tensor may take more than this part of the machine's memory: both sides need copies of it."""
PLAIN = ("int", "float", "bool", "str", "complex")


class Unbuildable(Exception):
    """An argument that cannot be rebuilt from what was recorded; the text says why."""


def seed_at(seed: int, place: str, size: int) -> int:
    """The seed, of ``size`` bytes, of the tensor at ``place``, such as ``Mint.add.0.forward.input.1``."""
    digest = hashlib.blake2b(f"{seed}/{place}".encode("utf-8", "surrogatepass"), digest_size=size).digest()
    return int.from_bytes(digest, "little")


# -- the descriptions of a call --------------------------------------------------------------------


def arguments_of(call: Call) -> Given:
    """The descriptions of the call's arguments.

    Raises:
        Unbuildable: They are not recorded as such.
    """
    positional = call.forward.get("input_args", call.forward.get("input", []))
    keywords = call.forward.get("input_kwargs") or {}
    if not isinstance(positional, list) or not isinstance(keywords, dict):
        raise Unbuildable("Its arguments are not recorded as lists and objects. SKIP.")
    return Given(positional, keywords)


@dataclass(frozen=True, slots=True)
class Walk:
    """From descriptions to what they stand for, in the same lists and dicts.

    Attributes:
        tensor: Makes a tensor from its description, its place in the run, and the position or keyword of the
            argument that it is; the last is None for one that lies within an argument.
        plain: Makes everything else that is described, from its description and its place in the run.
        sequence: What recorded lists become.
    """

    tensor: Callable[[Mapping[str, Any], str, int | str | None], Any]
    plain: Callable[[Mapping[str, Any], str], Any]
    sequence: Callable[[Iterable[Any]], Any] = list

    def arguments(self, call: Call, given: Given) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of the call's forward, by position and by keyword."""
        name = f"{call.name}.forward"
        return (
            [self.value(item, f"{name}.input.{i}", i) for i, item in enumerate(given.positional)],
            {key: self.value(item, f"{name}.kwargs.{key}", key) for key, item in given.keywords.items()},
        )

    def value(self, item: Any, place: str, at: int | str | None = None, depth: int = 0) -> Any:
        """What one description stands for; ``at`` is the position or keyword of an argument.

        Raises:
            Unbuildable: It is nested too deeply.
        """
        if depth > DEPTH:
            raise Unbuildable("Its arguments are nested too deeply. SKIP.")
        if isinstance(item, list):
            parts = (self.value(part, f"{place}.{i}", None, depth + 1) for i, part in enumerate(item))
            return self.sequence(parts)
        if not isinstance(item, dict):
            return item
        if not isinstance(item.get("type"), str):
            return {key: self.value(part, f"{place}.{key}", None, depth + 1) for key, part in item.items()}
        return self.tensor(item, place, at) if "dtype" in item else self.plain(item, place)


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


def common_value(item: Mapping[str, Any]) -> Any:
    """The value of a description that means the same in every framework: no tensor, and no dtype.

    Raises:
        Unbuildable: It is of a kind that cannot be rebuilt.
    """
    kind, value = item["type"], item.get("value")
    if kind == "slice":
        return slice(*value) if isinstance(value, list) and 1 <= len(value) <= 3 else slice(None)
    if kind in ("ellipsis", "Ellipsis"):
        return ...
    if kind not in PLAIN and isinstance(value, (int, float, bool, str)):
        scalar = getattr(np, kind.removeprefix("numpy."), None)
        if isinstance(scalar, type) and issubclass(scalar, np.generic):
            return scalar(value)
    if "value" not in item:
        raise Unbuildable(f"An argument of type {kind} cannot be rebuilt. SKIP.")
    return value


# -- the description of a tensor -------------------------------------------------------------------


class Range(NamedTuple):
    """The recorded extremes, and the same without inf and nan where these were recorded."""

    low: float
    high: float
    clean_low: float
    clean_high: float


def range_of(leaf: Mapping[str, Any]) -> Range:
    """The range of a tensor that is to be made up.

    Raises:
        Unbuildable: None was recorded.
    """
    (low, clean_low), (high, clean_high) = (_extremes(leaf, name) for name in ("Min", "Max"))
    found = Range(low, high, clean_low, clean_high)
    if not all(isinstance(value, (int, float)) for value in found):
        raise Unbuildable("Max and Min of an input were not recorded, so that it cannot be made up. SKIP.")
    try:
        _ = [float(value) for value in found]
    except OverflowError:
        raise Unbuildable("Max or Min of an input is no number of its dtype. SKIP.") from None
    return found


def need_finite(what: str, *ends: float) -> None:
    """Refuse to make up a tensor between ends that are inf or nan; ``what`` is its kind, such as ``a bool``.

    Raises:
        Unbuildable: One of them is.
    """
    if not all(map(math.isfinite, ends)):
        raise Unbuildable(f"Max or Min of {what} input is not finite. SKIP.")


def never_random(dtype: Any) -> Unbuildable:
    """Return the error of a dtype that no range describes, as of complex numbers."""
    return Unbuildable(f"{dtype} is not supported for random inputs; record with task tensor. SKIP.")


def _extremes(leaf: Mapping[str, Any], name: str) -> tuple[Any, Any]:
    """A statistic with inf and nan, and without; the oldest recorder kept the former under another name."""
    original = leaf.get(f"{name}_origin", leaf.get(name))
    if f"{name}_except_inf_nan" in leaf:
        clean = leaf[f"{name}_except_inf_nan"]
        return original, original if clean is None else clean
    return original, leaf.get(name)


def most_bytes() -> int:
    """How many bytes the tensors of one call may take."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        memory = 16 << 30
    return memory // SHARE_OF_MEMORY


def value_of(leaf: Mapping[str, Any], place: str, read: Callable[[Any, str], Value]) -> Value:
    """A tensor's description, read by ``read``, which raises ValueError with the field that is wrong.

    Raises:
        Unbuildable: A field holds what it cannot hold.
    """
    try:
        return read(dict(leaf), "")
    except ValueError as error:
        raise Unbuildable(f"{place}{error}. SKIP.") from None


def limit_size(shape: tuple[int, ...], itemsize: int, most: int) -> None:
    """Refuse a tensor that takes more than ``most`` bytes.

    Raises:
        Unbuildable: It does.
    """
    if math.prod(shape) * itemsize > most:
        raise Unbuildable(f"A tensor of shape {list(shape)} takes more memory than there is. SKIP.")


def recorded_array(tensors: Callable[[Value], np.ndarray[Any, Any]], value: Value) -> np.ndarray[Any, Any]:
    """The data that were kept of a tensor, in the recorded shape.

    Raises:
        Unbuildable: They cannot be read, or have another shape.
    """
    try:
        array = tensors(value)
    except UnreadableTensor as error:
        raise Unbuildable(f"{error}. SKIP.") from None
    if array.shape != value.shape:
        raise Unbuildable(
            f"{value.data_name} holds shape {list(array.shape)} where {value.extent} was recorded. SKIP."
        )
    return array
