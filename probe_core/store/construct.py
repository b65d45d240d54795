"""Which module each call was made in, as the recorders write it into ``construct.json``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from probe_core.errors import UserError
from probe_core.files.jsonstream import load_object

DEEPEST = 200


class Construct:
    """The parent of each record; empty where the recorder noted none, as at level L1."""

    def __init__(self, parents: dict[str, str]) -> None:
        self._parents = parents

    @classmethod
    def read(cls, path: Path) -> Construct:
        """The parents in ``path``; a file that is missing or damaged tells nothing, and costs nothing."""
        if not path.is_file():
            return cls({})
        try:
            members = load_object(path, "construct file")
        except UserError:
            return cls({})
        parents: dict[str, str] = {}
        for child, parent in members.items():
            if isinstance(parent, list) and parent:  # [parent, micro step]
                parent = parent[0]
            if isinstance(parent, str):
                parents[sys.intern(child)] = sys.intern(parent)
        return cls(parents)

    def renamed(self, rename: Callable[[str], str]) -> Construct:
        """The same under other names."""
        return Construct({rename(child): rename(parent) for child, parent in self._parents.items()})

    def modules(self) -> set[str]:
        """All modules that something was called in."""
        return set(self._parents.values())

    def ancestors(self, key: str) -> list[str]:
        """The modules around ``key``, innermost first."""
        found: list[str] = []
        while (parent := self._parents.get(key)) and len(found) < DEEPEST:
            found.append(parent)
            key = parent
        return found
