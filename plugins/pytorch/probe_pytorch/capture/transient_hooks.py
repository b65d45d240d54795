"""Module hooks that are left out of pickles and copies of the module."""

from __future__ import annotations

import copyreg
from collections import OrderedDict
from typing import Any

from probe_pytorch import compat_hooks

_hidden: dict[int, tuple[OrderedDict[int, Any], set[int]]] = {}
"""The dictionaries of hooks by their ids, each with the keys that are left out."""

_reducer_before: Any = None


def exclude_from_copies(handle: Any) -> Any:
    """Leave the hook of ``handle`` out of all pickles and deep copies of its module; return the handle."""
    global _reducer_before
    before = copyreg.dispatch_table.get(OrderedDict)
    if not _hidden and before is not _reduce:  # an interruption may have left it
        _reducer_before = before
        copyreg.pickle(OrderedDict, _reduce)
    for hooks in compat_hooks.list_hook_dicts(handle):
        _hidden.setdefault(id(hooks), (hooks, set()))[1].add(handle.id)
    return handle


def remove_hook(handle: Any) -> None:
    """Remove a hook, hidden or not."""
    for hooks in compat_hooks.list_hook_dicts(handle):
        _, keys = _hidden.get(id(hooks), (None, set()))
        keys.discard(handle.id)
        if not keys and _hidden.pop(id(hooks), None) is not None and not _hidden:
            _restore_reducer()
    handle.remove()


def _restore_reducer() -> None:
    if copyreg.dispatch_table.get(OrderedDict) is not _reduce:
        return  # other code has replaced it
    del copyreg.dispatch_table[OrderedDict]
    if _reducer_before is not None:
        copyreg.dispatch_table[OrderedDict] = _reducer_before


def _reduce(hooks: OrderedDict[Any, Any]) -> Any:
    """Reduce a dictionary in the usual way, without the hidden keys."""
    hidden = _hidden.get(id(hooks))
    if hidden is not None:
        hooks = OrderedDict((key, value) for key, value in hooks.items() if key not in hidden[1])
    return hooks.__reduce__() if _reducer_before is None else _reducer_before(hooks)
