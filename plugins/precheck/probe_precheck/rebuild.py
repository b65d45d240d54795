"""Arguments of a call, rebuilt from their descriptions: the steps that do not need a framework.

The rules are in docs/standards.md#inputs.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from probe_core.errors import UnreadableTensor
from probe_core.model import Value
from probe_precheck.fitting import RecordedArguments
from probe_precheck.model import Call

MAX_DEPTH = 100
"""Largest number of nested levels in an argument."""
PLAIN_TYPES = ("int", "float", "bool", "str", "complex")
"""Types of values that have the same meaning in every framework."""


class Unbuildable(Exception):
    """Exception for an argument that cannot be rebuilt from its record; its text is the reason."""


def derive_seed(seed: int, place: str, size: int) -> int:
    """Return the random seed of a tensor.

    Args:
        seed: The number from which all seeds of the check are derived.
        place: The name of the tensor in the run, such as ``Mint.add.0.forward.input.1``.
        size: The number of bytes of the result.
    """
    digest = hashlib.blake2b(f"{seed}/{place}".encode("utf-8", "surrogatepass"), digest_size=size).digest()
    return int.from_bytes(digest, "little")


# -- the descriptions of a call --------------------------------------------------------------------


def get_arguments(call: Call) -> RecordedArguments:
    """Return the descriptions of the call's arguments.

    Raises:
        Unbuildable: The record does not contain them as lists and objects.
    """
    positional = call.forward.get("input_args", call.forward.get("input", []))
    keywords = call.forward.get("input_kwargs") or {}
    if not isinstance(positional, list) or not isinstance(keywords, dict):
        raise Unbuildable("Its arguments are not recorded as lists and objects. SKIP.")
    return RecordedArguments(positional, keywords)


@dataclass(frozen=True, slots=True)
class ArgumentConverter:
    """Conversion of nested descriptions to values, in the same lists and dicts.

    Attributes:
        tensor: A function that creates a tensor from its description, its name in the run, and the position or
            keyword of the argument; the last is None for a tensor inside an argument.
        plain: A function that creates any other value from its description and its name in the run.
        sequence: The type that recorded lists are converted to.
    """

    tensor: Callable[[Mapping[str, Any], str, int | str | None], Any]
    plain: Callable[[Mapping[str, Any], str], Any]
    sequence: Callable[[Iterable[Any]], Any] = list

    def arguments(self, call: Call, described_arguments: RecordedArguments) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of the call's forward, by position and by keyword."""
        name = f"{call.name}.forward"
        return (
            [self.value(item, f"{name}.input.{i}", i) for i, item in enumerate(described_arguments.positional)],
            {key: self.value(item, f"{name}.kwargs.{key}", key) for key, item in described_arguments.keywords.items()},
        )

    def value(self, item: Any, place: str, at: int | str | None = None, depth: int = 0) -> Any:
        """Return the value of one description.

        Args:
            item: The description, or a list or dict of descriptions.
            place: The name of the value in the run.
            at: The position or keyword if the value is an argument; otherwise None.
            depth: The number of levels around the value.

        Raises:
            Unbuildable: The nesting is too deep.
        """
        if depth > MAX_DEPTH:
            raise Unbuildable("Its arguments are nested too deeply. SKIP.")
        if isinstance(item, list):
            parts = (self.value(part, f"{place}.{i}", None, depth + 1) for i, part in enumerate(item))
            return self.sequence(parts)
        if not isinstance(item, dict):
            return item
        if not isinstance(item.get("type"), str):
            return {key: self.value(part, f"{place}.{key}", None, depth + 1) for key, part in item.items()}
        return self.tensor(item, place, at) if "dtype" in item else self.plain(item, place)


def list_descriptions(value: Any) -> list[Any]:
    """Return the descriptions in nested lists and objects, depth first; None for values without a description."""
    if isinstance(value, list):
        return [leaf for item in value for leaf in list_descriptions(item)]
    if isinstance(value, dict) and not isinstance(value.get("type"), str):
        return [leaf for item in value.values() for leaf in list_descriptions(item)]
    return [value]


def is_recorded(leaf: Any) -> bool:
    """Return True for the description of a tensor whose data were recorded."""
    return isinstance(leaf, Mapping) and leaf.get("data_name") is not None


def rebuild_plain_value(item: Mapping[str, Any]) -> Any:
    """Return the value of a description whose meaning does not depend on the framework, unlike a tensor or a dtype.

    Raises:
        Unbuildable: A value of this type cannot be rebuilt.
    """
    kind, value = item["type"], item.get("value")
    if kind == "slice":
        return slice(*value) if isinstance(value, list) and 1 <= len(value) <= 3 else slice(None)
    if kind in ("ellipsis", "Ellipsis"):
        return ...
    if kind not in PLAIN_TYPES and isinstance(value, (int, float, bool, str)):
        scalar = getattr(np, kind.removeprefix("numpy."), None)
        if isinstance(scalar, type) and issubclass(scalar, np.generic):
            return scalar(value)
    if "value" not in item:
        raise Unbuildable(f"An argument of type {kind} cannot be rebuilt. SKIP.")
    return value


# -- the description of a tensor -------------------------------------------------------------------


class Range(NamedTuple):
    """Recorded minimum and maximum, and the same without inf and nan if the record contains them separately."""

    low: float
    high: float
    clean_low: float
    clean_high: float


def read_range(leaf: Mapping[str, Any]) -> Range:
    """Return the range of a random tensor.

    Raises:
        Unbuildable: No range was recorded.
    """
    (low, clean_low), (high, clean_high) = (_read_extremes(leaf, name) for name in ("Min", "Max"))
    recorded = Range(low, high, clean_low, clean_high)
    if not all(isinstance(value, (int, float)) for value in recorded):
        raise Unbuildable("Max and Min of an input were not recorded, so its values cannot be generated. SKIP.")
    try:
        _ = [float(value) for value in recorded]
    except OverflowError:
        raise Unbuildable("Max or Min of an input is outside the range of its dtype. SKIP.") from None
    return recorded


def check_finite_range(subject: str, *ends: float) -> None:
    """Check that the ends of the range of a random tensor are finite.

    Args:
        subject: The kind of the tensor for the message, such as ``a bool``.
        ends: The ends of the range.

    Raises:
        Unbuildable: An end is inf or nan.
    """
    if not all(map(math.isfinite, ends)):
        raise Unbuildable(f"Max or Min of {subject} input is not finite. SKIP.")


def create_not_random_error(dtype: Any) -> Unbuildable:
    """Return the error for a dtype that cannot be generated from a range, such as a complex dtype."""
    return Unbuildable(f"{dtype} is not supported for random inputs; record with task tensor. SKIP.")


def _read_extremes(leaf: Mapping[str, Any], name: str) -> tuple[Any, Any]:
    """Return a statistic with inf and nan, and the same without.

    Recorders of msprobe 1.0 write the statistic with inf and nan under another name.
    """
    original = leaf.get(f"{name}_origin", leaf.get(name))
    if f"{name}_except_inf_nan" in leaf:
        clean = leaf[f"{name}_except_inf_nan"]
        return original, original if clean is None else clean
    return original, leaf.get(name)


def parse_tensor(leaf: Mapping[str, Any], place: str, read: Callable[[Any, str], Value]) -> Value:
    """Parse the description of a tensor.

    Args:
        leaf: The description.
        place: The name of the tensor in the run, for the message.
        read: The parser, which raises ValueError with the name of an invalid field.

    Raises:
        Unbuildable: A field has an invalid value.
    """
    try:
        return read(dict(leaf), "")
    except ValueError as error:
        raise Unbuildable(f"{place}{error}. SKIP.") from None


def check_tensor_memory(shape: tuple[int, ...], itemsize: int, most: int) -> None:
    """Check that a tensor needs at most ``most`` bytes.

    Raises:
        Unbuildable: The tensor needs more.
    """
    if math.prod(shape) * itemsize > most:
        raise Unbuildable(f"A tensor of shape {list(shape)} needs more memory than is available. SKIP.")


def check_call_memory(needed: int, most: int) -> None:
    """Check that a call needs at most ``most`` bytes.

    Raises:
        Unbuildable: The call needs more.
    """
    if needed > most:
        raise Unbuildable(
            f"Its inputs and results need {_format_size(needed)} of memory, "
            f"and one call may use {_format_size(most)}. SKIP."
        )


def _format_size(count: int) -> str:
    """Return a number of bytes as text, such as ``12.8 GB``."""
    for power, unit in ((12, "TB"), (9, "GB"), (6, "MB")):
        if count >= 10**power:
            return f"{count / 10**power:,.1f} {unit}"
    return f"{count:,} bytes"


def read_recorded_array(tensors: Callable[[Value], np.ndarray[Any, Any]], value: Value) -> np.ndarray[Any, Any]:
    """Return the recorded data of a tensor.

    Raises:
        Unbuildable: The data cannot be read, or has another shape than the record.
    """
    try:
        array = tensors(value)
    except UnreadableTensor as error:
        raise Unbuildable(f"{error}. SKIP.") from None
    if array.shape != value.shape:
        raise Unbuildable(f"{value.data_name} has shape {list(array.shape)} where {value.extent} was recorded. SKIP.")
    return array
