"""Validation of factory addresses without importing the modules that they name."""

from __future__ import annotations

import re
import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path


def explain_unresolved(text: str) -> str:
    """Return why ``"package.module:attribute"`` cannot be imported; empty if it seems to exist.

    No module is imported; an attribute exists if its name occurs in the source.
    """
    module, _, attribute = text.partition(":")
    loaded = sys.modules.get(module)
    if loaded is not None:
        return "" if hasattr(loaded, attribute.partition(".")[0]) else f"{module} has no {attribute}"
    spec = _find_module_spec(module)
    if spec is None:
        return f"there is no module {module}"
    if spec.origin is None or not spec.origin.endswith(".py"):
        return ""
    try:
        source = Path(spec.origin).read_text("utf-8")
    except (OSError, ValueError):
        return f"{spec.origin} cannot be read"
    words = set(re.findall(r"\w+|\*", source))
    if attribute.partition(".")[0] in words or "__getattr__" in words or "import *" in source:
        return ""
    return f"{module} has no {attribute}"


def _find_module_spec(module: str) -> ModuleSpec | None:
    """Return the import spec of a module without importing its packages."""
    first, *rest = module.split(".")
    try:
        spec = find_spec(first) if first else None
        for part in rest:
            if spec is None or spec.submodule_search_locations is None:
                return None
            spec = PathFinder.find_spec(f"{spec.name}.{part}", list(spec.submodule_search_locations))
    except (ImportError, ValueError, AttributeError):
        return None
    return spec
