"""Names of modules and parameters in the files, and the selection by ``targets``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_SHORT_NAME_STARTS = ("layers?\\.", "embeddings?\\.", "final", "output", "norm")
_SHORT_NAME_PATTERNS = tuple(re.compile(rf"^.*\.({mark}.*)", re.DOTALL) for mark in _SHORT_NAME_STARTS)


def shorten_name(name: str) -> str:
    """Return a name without the wrappers around its layers: ``layers.0.fc`` for ``module.layers.0.fc``.

    The short name begins with ``layer.``, ``layers.``, ``embedding.``, ``embeddings.``, ``final``, ``output`` or
    ``norm`` after a dot. If a name contains several of these, the earliest in this list is used, at its last place.
    """
    for pattern in _SHORT_NAME_PATTERNS:
        if match := pattern.match(name):
            return match[1]
    return name


class Namer:
    """A mapping from names to names in files, which are unique within a model.

    Args:
        is_short: True to shorten names.
    """

    def __init__(self, *, is_short: bool) -> None:
        self._is_short = is_short
        self._used: set[tuple[int, str]] = set()

    def choose_name(self, model: int, name: str) -> str:
        """Return the short name; the name itself if the short name belongs to another value."""
        short = shorten_name(name) if self._is_short else name
        if (model, short) in self._used:
            short = name
        self._used.add((model, short))
        return short


def list_spellings(model: int, name: str) -> tuple[str, ...]:
    """Return the spellings with which a configuration may name a module or a parameter of a model."""
    short = shorten_name(name)
    return (name, short, f"{model}:{name}", f"{model}:{short}")


def is_inside(name_spellings: Sequence[str], targets: Iterable[str]) -> bool:
    """Return True if a parameter is among the targets, or belongs to a module among them.

    Args:
        name_spellings: The spellings of the name of the parameter.
        targets: Names of modules and parameters; an empty name is the whole model.
    """
    for target in targets:
        is_whole_model = target.endswith(":")
        prefix = target if is_whole_model else f"{target}."
        if not target or any(name == target or name.startswith(prefix) for name in name_spellings):
            return True
    return False
