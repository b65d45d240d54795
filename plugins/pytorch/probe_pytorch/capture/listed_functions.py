"""Python functions that ``custom_wrap_ops`` lists (docs/recording.md#your-own-functions)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from probe_pytorch.capture.names import Patch
from probe_pytorch.capture.yaml_lists import read_lists


class ListedFunctions:
    """The functions of a list, each of which is recorded once its module is imported.

    Args:
        path: A yaml file that maps the names of modules to names of functions in them.

    Raises:
        UserError: The file cannot be read, or has another form.
    """

    def __init__(self, path: Path) -> None:
        listed = read_lists(path, "custom_wrap_ops", "names of modules")
        self._pending = [(module, name) for module, names in listed.items() for name in names or ()]

    def iterate_importable(self) -> Iterator[Patch]:
        """Yield the functions that can be wrapped now and could not before."""
        for module, name in list(self._pending):
            holder = _find_holder(module)
            if callable(getattr(holder, name, None)):
                self._pending.remove((module, name))
                yield Patch(holder, name, f"{module}.{name}")

    @property
    def missing(self) -> list[str]:
        """The names of the functions that were not found so far."""
        return [f"{module}.{name}" for module, name in self._pending]


def _find_holder(path: str) -> Any:
    """Return the imported module, or the class in one, that a dotted path names; None if there is none."""
    if path in sys.modules:
        return sys.modules[path]
    parent, _, name = path.rpartition(".")
    return getattr(_find_holder(parent), name, None) if parent else None
