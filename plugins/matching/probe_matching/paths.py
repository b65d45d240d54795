"""Paths of modules in another run's words: by names (``-cm``), or class by class from the top (``-lm``)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from probe_matching.name_table import module_parts

TOPS = ("TopLayer", "Cell")
"""What the children of the outermost module stand under in a layer mapping."""
_EXTRA = re.compile(r"\(.*\)$")


class Renames:
    """The paths and classes of one run's modules as the other run has them."""

    def __init__(
        self,
        names: Sequence[str],
        cells: Mapping[str, str] | None = None,
        layers: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """``names`` are those of all records, and modules, of the run whose paths are renamed."""
        self._cells = cells or {}
        self._layers = layers or {}
        parts = [found for name in names if (found := module_parts(name))]
        self._classes = {path: name for path, name, _ in parts} if self._layers else {}
        self.used: set[str] = set()

    def __call__(self, path: str, class_name: str) -> tuple[str, str]:
        """The path and the class that a module's partner has."""
        path = self._by_layers(path) if self._layers else path
        return self._by_cells(path, class_name) if self._cells else (path, class_name)

    def _by_cells(self, path: str, class_name: str) -> tuple[str, str]:
        whole = f"{path}.{class_name}" if path else class_name
        found = self._cells.get(whole)
        if found is not None:
            self.used.add(whole)
        else:
            part = next((part for part in self._cells if part in whole), None)
            if part is None:
                return path, class_name
            self.used.add(part)
            found = whole.replace(part, self._cells[part], 1)
        head, _, tail = found.rpartition(".")
        return head, tail

    def _by_layers(self, path: str) -> str:
        """Walk down from the top; in each module its class says what its children are called."""
        steps = path.split(".") if path else []
        found: list[str] = []
        at = 0
        while at < len(steps):
            class_name = self._classes.get(".".join(steps[:at]), "")
            children = self._children(class_name, at == 0)
            for end in range(len(steps), at, -1):
                own = ".".join(steps[at:end])
                if own in children:
                    self.used.add(own)
                    new = _EXTRA.sub("", children[own]).strip(".")
                    found += [new] if new else []
                    at = end
                    break
            else:
                found.append(steps[at])
                at += 1
        return ".".join(found)

    def _children(self, class_name: str, is_top: bool) -> Mapping[str, str]:
        if not is_top:
            return self._layers.get(class_name, {})
        top = next((self._layers[name] for name in TOPS if name in self._layers), {})
        return {**self._layers.get(class_name, {}), **top}
