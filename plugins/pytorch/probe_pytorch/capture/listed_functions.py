"""Python functions that ``custom_wrap_ops`` lists (docs/recording.md#your-own-functions)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from probe_pytorch.capture.names import Patch
from probe_pytorch.capture.yaml_lists import read_lists


class ListedFunctions:
    """The functions of a list. Each function is recorded as soon as its module is imported.

    Args:
        path: A yaml file that maps the names of modules to names of functions in them.

    Raises:
        UserError: The file cannot be read, or has an invalid structure.
    """

    def __init__(self, path: Path) -> None:
        listed = read_lists(path, "custom_wrap_ops", "names of modules")
        self._pending = [(module, name) for module, names in listed.items() for name in names or ()]

    def iterate_importable(self) -> Iterator[Patch]:
        """Yield the functions that became importable since the last call."""
        for module, name in list(self._pending):
            owner = _find_owner(module)
            if callable(getattr(owner, name, None)):
                self._pending.remove((module, name))
                yield Patch(owner, name, f"{module}.{name}")

    @property
    def missing(self) -> list[str]:
        """The names of the functions that are not importable yet."""
        return [f"{module}.{name}" for module, name in self._pending]


def _find_owner(path: str) -> Any:
    """Return the imported module or class with a dotted path; None if it does not exist."""
    if path in sys.modules:
        return sys.modules[path]
    parent, _, name = path.rpartition(".")
    return getattr(_find_owner(parent), name, None) if parent else None
