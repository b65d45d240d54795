"""Nested dicts and lists of a checkpoint as a flat list of names."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from probe_recording.reading.pickle_data import PickledCall, PickledName, PickleError

from probe_check.checkpoint.checkpoint_pickle import OpaqueObject

MAX_DEPTH = 40
MAX_VALUES = 1_000_000
MAX_LISTED_VALUES = 256
"""Maximum number of plain values in a list whose values become separate settings."""
_PLAIN_TYPES = (int, float, str, type(None))


def iterate_leaves(value: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the path and the value of each leaf, in the order of the file.

    Raises:
        PickleError: Values are nested too deeply, or there are too many, as in a pickle that repeats itself.
    """
    visited = 0
    pending: list[tuple[tuple[str, ...], Any]] = [((), value)]
    while pending:
        path, item = pending.pop()
        visited += 1
        if visited > MAX_VALUES or len(path) > MAX_DEPTH:
            raise PickleError("its values are nested too deeply, or repeat each other without end")
        children = _list_children(item)
        if children is None:
            yield path, item
        else:
            if len(pending) + len(children) > MAX_VALUES:
                raise PickleError("its values repeat each other without end")
            pending.extend((((*path, name), child) for name, child in reversed(children)))


def _list_children(item: Any) -> list[tuple[str, Any]] | None:
    """Return the named parts of a value; None for a leaf."""
    if isinstance(item, dict):
        return [(_format_key(key), child) for key, child in item.items()]
    if isinstance(item, (list, tuple)):
        if _is_long_series(item):
            return None
        return [(str(number), child) for number, child in enumerate(item)]
    if isinstance(item, OpaqueObject) and item.state:
        return [(_format_key(key), child) for key, child in item.state.items()]
    return None


def _is_long_series(items: Sequence[Any]) -> bool:
    """Return True for many plain numbers or texts, such as the order of samples: they are one setting."""
    return len(items) > MAX_LISTED_VALUES and all(isinstance(item, _PLAIN_TYPES) for item in items)


def _format_key(key: Any) -> str:
    if isinstance(key, OpaqueObject):
        return key.kind.name
    if isinstance(key, int) and key.bit_length() > 200:
        raise PickleError("its pickle has an absurd key")
    return str(key)


def _decode_scalar(arguments: Sequence[Any]) -> Any:
    """Return the number in the arguments of NumPy's function for scalars: a type, and bytes."""
    if len(arguments) != 2 or not isinstance(arguments[0], OpaqueObject) or not isinstance(arguments[1], bytes):
        return None
    kind = arguments[0].arguments[:1]
    try:
        return np.frombuffer(arguments[1], np.dtype(kind[0]))[0].item() if isinstance(kind[0], str) else None
    except (TypeError, ValueError, IndexError):
        return None


def iterate_descriptions(value: Any) -> Iterator[Any]:
    """Yield the arguments of all descriptions of tensors within a value, such as their storages."""
    for _, leaf in iterate_leaves(value):
        pending = [leaf]
        while pending:
            item = pending.pop()
            if isinstance(item, PickledCall):
                pending.extend(a for a in item.arguments if isinstance(a, (PickledCall, tuple)))
                yield from item.arguments[:1]
            elif isinstance(item, tuple):
                pending.extend(a for a in item if isinstance(a, PickledCall))
                yield from item[:1]


def is_tensor(value: Any) -> bool:
    """Return True for the description of a tensor."""
    return isinstance(value, PickledCall)


def convert_to_setting(value: Any) -> Any:
    """Return a leaf that is not a tensor as a setting; names of classes as texts."""
    if isinstance(value, PickledName):
        return f"{value.module}.{value.name}"
    if isinstance(value, OpaqueObject):
        if value.kind.name == "scalar" and (number := _decode_scalar(value.arguments)) is not None:
            return number
        arguments = [
            convert_to_setting(a) for a in value.arguments if isinstance(a, (str, int, float, bool, PickledName))
        ]
        return f"{value.kind.module}.{value.kind.name}({', '.join(str(a)[:80] for a in arguments)})"
    if isinstance(value, bytes):
        return f"{len(value)} bytes, checksum {zlib.crc32(value):08x}"
    if isinstance(value, (list, tuple)) and value:
        return f"{len(value)} values, checksum {zlib.crc32(repr(value).encode('utf-8', 'replace')):08x}"
    return value
