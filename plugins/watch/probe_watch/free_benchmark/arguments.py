"""The tensors among the arguments of a call, whatever the framework."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

DEPTH = 8
"""The depth up to which lists, tuples and dicts are searched for tensors, as by the recorder."""


class UnsupportedTensor(Exception):
    """An argument is a tensor of a kind that cannot be copied."""


def iterate_tensors(value: Any, kinds: type | tuple[type, ...], depth: int = 0) -> Iterator[Any]:
    """Yield the tensors in an argument, in order.

    Args:
        value: The argument, or a list, tuple or dict of arguments.
        kinds: The classes of tensors.
        depth: The number of containers around the value.
    """
    if isinstance(value, kinds):
        yield value
    elif isinstance(value, (list, tuple)) and depth < DEPTH:
        for item in value:
            yield from iterate_tensors(item, kinds, depth + 1)
    elif isinstance(value, dict) and depth < DEPTH:
        yield from iterate_tensors(list(value.values()), kinds, depth)


def map_tensors(function: Callable[[Any], Any], value: Any, kind: type, depth: int = 0) -> Any:
    """Return a value in which each tensor is replaced; other values stay the same objects."""
    if isinstance(value, kind):
        return function(value)
    if isinstance(value, (list, tuple)) and depth < DEPTH:
        items = [map_tensors(function, item, kind, depth + 1) for item in value]
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*items)
        return type(value)(items)
    if isinstance(value, dict) and depth < DEPTH:
        return {key: map_tensors(function, item, kind, depth + 1) for key, item in value.items()}
    return value


def map_results(function: Callable[[Any, Any], Any], original: Any, changed: Any, kind: type) -> Any:
    """Return the first of two results, in which the function of each tensor and its partner replaces the tensor."""
    if isinstance(original, kind):
        return function(original, changed)
    if isinstance(original, (list, tuple)) and isinstance(changed, (list, tuple)):
        items = [map_results(function, first, second, kind) for first, second in zip(original, changed)]
        create: Any = type(original)
        return create(*items) if hasattr(original, "_fields") else create(items)
    return original


def choose_change(
    values: Iterable[Any], kinds: type | tuple[type, ...], is_wanted: Callable[[Any], bool],
    change: Callable[[Any], Any],
) -> tuple[Any, Any] | None:  # fmt: skip
    """Return the tensor to change with its new values: in the first argument that holds a wanted tensor.

    Args:
        values: The arguments.
        kinds: The classes of tensors.
        is_wanted: A function that returns True for tensors that may be changed.
        change: A function that returns the new values of a tensor; None if it changes nothing.

    Returns:
        None if nothing is changed.
    """
    for value in values:
        wanted = [tensor for tensor in iterate_tensors(value, kinds) if is_wanted(tensor)]
        for tensor in wanted:
            changed = change(tensor)
            if changed is not None:
                return tensor, changed
        if wanted:
            return None
    return None
