"""Slices of tensors, to which ``slice`` and ``request_id`` limit a recording (docs/configuration.md#slices)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from probe_core.errors import UserError
from probe_recording.fields import Fields

SLICE_FIELDS = ("dim", "begin", "end", "size")


@dataclass(frozen=True, slots=True)
class DimensionSlice:
    """A range of indices of one dimension of each tensor.

    Attributes:
        dim: The dimension; tensors with fewer dimensions are recorded whole.
        begin: The first index; a negative index counts from the end.
        end: The index after the last one, or None for the end of the dimension.
        size: The length that the dimension must have for the slice to apply; None for any length.
    """

    dim: int = 0
    begin: int = 0
    end: int | None = None
    size: int | None = None


def select_index(shape: Sequence[int], slices: Sequence[DimensionSlice]) -> tuple[slice, ...] | None:
    """Return the index of the part of a tensor that is recorded; None for the whole tensor.

    Args:
        shape: The shape of the tensor.
        slices: The slices; the last one that applies to a dimension determines its range.
    """
    ranges: dict[int, slice] = {}
    for item in slices:
        if item.dim < len(shape) and item.size in (None, shape[item.dim]):
            ranges[item.dim] = slice(item.begin, item.end)
    if not ranges:
        return None
    return tuple(ranges.get(dim, slice(None)) for dim in range(max(ranges) + 1))


def describe_slices(slices: Sequence[DimensionSlice], *, has_request: bool) -> str:
    """Return the parts of tensors that are recorded, as text; empty for whole tensors."""
    texts = [_describe_slice(item) for item in slices]
    return ", ".join(texts + ["the rows of a request"] * has_request)


def _describe_slice(item: DimensionSlice) -> str:
    end = "" if item.end is None else item.end
    size = "" if item.size is None else f" of {item.size}"
    return f"[{item.begin}:{end}]{size} in dimension {item.dim}"


def read_slices(section: Fields) -> tuple[DimensionSlice, ...]:
    """Return the slices of the field ``slice`` of a task's section.

    Raises:
        UserError: The field is not a list of objects with integers.
    """
    value = section.value("slice")
    if not value:
        return ()
    example = 'For example "slice": [{"dim": 0, "begin": 0, "end": 16}].'
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise section.wrong("slice", "must be a list of objects", example)
    return tuple(_parse_slice(section, item, example) for item in value if item)


def _parse_slice(section: Fields, fields: Mapping[str, Any], example: str) -> DimensionSlice:
    for name, value in fields.items():
        if name not in SLICE_FIELDS:
            raise section.wrong("slice", f'has the unknown field "{name}"', "The fields are:", SLICE_FIELDS)
        if type(value) is not int and not (name in ("end", "size") and value is None):
            raise section.wrong("slice", f"has the {name} {value!r:.40}, which is not an integer", example)
        if name in ("dim", "size") and value is not None and value < 0:
            raise section.wrong("slice", f"has the negative {name} {value}", example)
    return DimensionSlice(**fields)


def find_request_slice(request: str, scheduled_tokens: Mapping[str, int]) -> DimensionSlice | None:
    """Return the rows of a batch that belong to a request; None if it has none.

    Args:
        request: The identifier of the request.
        scheduled_tokens: The number of rows of each request of the batch, in the order of the rows.
    """
    if request not in scheduled_tokens:
        return None
    names = list(scheduled_tokens)
    begin = sum(scheduled_tokens[name] for name in names[: names.index(request)])
    return DimensionSlice(0, begin, begin + scheduled_tokens[request], sum(scheduled_tokens.values()))


def check_scheduled_tokens(value: Mapping[str, int]) -> Mapping[str, int]:
    """Return the tokens of requests that a script passes to ``start``, if they are valid.

    Raises:
        UserError: They are not a dict from texts to positive integers.
    """
    if isinstance(value, Mapping) and all(
        isinstance(name, str) and type(count) is int and count > 0 for name, count in value.items()
    ):
        return value
    raise UserError(
        f"scheduled_tokens must be a dict from request identifiers to positive integers, not {value!r:.80}.",
        'For example scheduled_tokens={"request-0": 5, "request-1": 1}.',
    )
