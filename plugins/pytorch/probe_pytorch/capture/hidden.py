"""Hooks of modules that are left out of what is pickled and copied of them."""

from __future__ import annotations

import copyreg
from collections import OrderedDict
from typing import Any

from probe_pytorch import compat

_hidden: dict[int, tuple[OrderedDict[int, Any], set[int]]] = {}
"""For each dictionary of hooks, by its id: the dictionary, and the keys that are left out."""

_reducer_before: Any = None


def hide(handle: Any) -> Any:
    """Leave the hook of ``handle`` out of every pickle and deep copy of its module; return the handle."""
    global _reducer_before
    if not _hidden:
        _reducer_before = copyreg.dispatch_table.get(OrderedDict)
        copyreg.pickle(OrderedDict, _reduce)
    for hooks in compat.dicts_of(handle):
        _hidden.setdefault(id(hooks), (hooks, set()))[1].add(handle.id)
    return handle


def remove(handle: Any) -> None:
    """Remove a hook, hidden or not."""
    for hooks in compat.dicts_of(handle):
        _, keys = _hidden.get(id(hooks), (None, set()))
        keys.discard(handle.id)
        if not keys and _hidden.pop(id(hooks), None) is not None and not _hidden:
            _restore_reducer()
    handle.remove()


def _restore_reducer() -> None:
    if copyreg.dispatch_table.get(OrderedDict) is not _reduce:
        return  # someone else put something there
    del copyreg.dispatch_table[OrderedDict]
    if _reducer_before is not None:
        copyreg.dispatch_table[OrderedDict] = _reducer_before


def _reduce(hooks: OrderedDict[Any, Any]) -> Any:
    """Reduce a dictionary as it reduces itself, without the keys that are hidden."""
    found = _hidden.get(id(hooks))
    if found is not None:
        hooks = OrderedDict((key, value) for key, value in hooks.items() if key not in found[1])
    return hooks.__reduce__() if _reducer_before is None else _reducer_before(hooks)
