"""Translation of module paths: by a table of names (``-cm``), or from the outermost module inward (``-lm``)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from probe_core.store.names import parse_module_key

TOP_LAYER_KEYS = ("TopLayer", "Cell")
"""Keys of a layer mapping for the children of the outermost module."""
_PARENTHESIZED_SUFFIX = re.compile(r"\(.*\)$")


class ModulePathTranslator:
    """A function that translates the paths and classes of the target's modules to those of the golden.

    Attributes:
        used: The keys of the mappings that matched a module.
    """

    def __init__(
        self,
        names: Sequence[str],
        paths: Mapping[str, str] | None = None,
        layers: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """Prepare the translation.

        Args:
            names: The names of all records and modules of the run to translate.
            paths: The mapping of ``-cm``: paths with classes, or parts of them. A part does not cut a number, so that
                ``layer1`` is not a part of ``layer10``.
            layers: The mapping of ``-lm``: the children of each class.
        """
        self._paths = paths or {}
        self._patterns = {part: _compile_part(part) for part in self._paths}
        self._layers = layers or {}
        modules = [module for name in names if (module := parse_module_key(name))]
        self._classes = {module.path: module.class_name for module in modules} if self._layers else {}
        self.used: set[str] = set()

    def __call__(self, path: str, class_name: str) -> tuple[str, str]:
        """Return the path and class of a module's partner."""
        path = self._translate_by_layers(path) if self._layers else path
        return self._translate_by_paths(path, class_name) if self._paths else (path, class_name)

    def _translate_by_paths(self, path: str, class_name: str) -> tuple[str, str]:
        module_name = f"{path}.{class_name}" if path else class_name
        key = module_name if module_name in self._paths else self._find_part(module_name)
        if key is None:
            return path, class_name
        self.used.add(key)
        translated_path = self._paths[key]
        if key != module_name:
            translated_path = self._patterns[key].sub(lambda _: self._paths[key], module_name, 1)
        head, _, tail = translated_path.rpartition(".")
        return head, tail

    def _find_part(self, module_name: str) -> str | None:
        return next((part for part, pattern in self._patterns.items() if pattern.search(module_name)), None)

    def _translate_by_layers(self, path: str) -> str:
        """Translate a path from the top down; the class of each module gives the names of its children."""
        steps = path.split(".") if path else []
        translated_steps: list[str] = []
        position = 0
        while position < len(steps):
            class_name = self._classes.get(".".join(steps[:position]), "")
            children = self._find_children(class_name, position == 0)
            for end in range(len(steps), position, -1):
                child = ".".join(steps[position:end])
                if child in children:
                    self.used.add(child)
                    partner = _PARENTHESIZED_SUFFIX.sub("", children[child]).strip(".")
                    translated_steps += [partner] if partner else []
                    position = end
                    break
            else:
                translated_steps.append(steps[position])
                position += 1
        return ".".join(translated_steps)

    def _find_children(self, class_name: str, is_top: bool) -> Mapping[str, str]:
        if not is_top:
            return self._layers.get(class_name, {})
        top = next((self._layers[name] for name in TOP_LAYER_KEYS if name in self._layers), {})
        return {**self._layers.get(class_name, {}), **top}


def _compile_part(part: str) -> re.Pattern[str]:
    """Return a pattern for a part of a path that does not begin or end within a number."""
    before = r"(?<!\d)" if part[:1].isdigit() else ""
    after = r"(?!\d)" if part[-1:].isdigit() else ""
    return re.compile(before + re.escape(part) + after)
