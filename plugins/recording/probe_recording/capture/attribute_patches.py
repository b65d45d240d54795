"""Replacement of attributes of modules and classes by wrappers, and their restoration."""

from __future__ import annotations

from typing import Any, NamedTuple

_INHERITED = object()
"""Mark of an attribute that its holder inherits."""


class _Patch(NamedTuple):
    holder: Any
    name: str
    previous: Any
    wrapper: Any

    def undo(self) -> None:
        """Restore the attribute, unless other code has replaced the wrapper."""
        if vars(self.holder).get(self.name) is not self.wrapper:
            return
        if self.previous is _INHERITED:
            delattr(self.holder, self.name)
        else:
            setattr(self.holder, self.name, self.previous)


class AttributePatches:
    """The attributes that a capture has replaced."""

    def __init__(self) -> None:
        self._patches: list[_Patch] = []

    def __bool__(self) -> bool:
        return bool(self._patches)

    def replace(self, holder: Any, name: str, wrapper: Any) -> None:
        """Replace an attribute of a module or class by a wrapper."""
        self._patches.append(_Patch(holder, name, vars(holder).get(name, _INHERITED), wrapper))
        setattr(holder, name, wrapper)

    def restore(self, holder: Any, name: str) -> None:
        """Restore one attribute."""
        for patch in [patch for patch in reversed(self._patches) if patch.holder is holder and patch.name == name]:
            self._patches.remove(patch)
            patch.undo()

    def restore_all(self) -> None:
        """Restore all attributes, the last one first."""
        patches, self._patches = self._patches, []
        for patch in reversed(patches):
            patch.undo()
