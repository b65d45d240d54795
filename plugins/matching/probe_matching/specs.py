"""The spec of this kit's hook."""

from __future__ import annotations

from dataclasses import dataclass

from probe_core.plugins.specs import Spec


@dataclass(frozen=True, slots=True)
class NameRule(Spec):
    """A table of the names and arguments of one framework in another (makes a ``probe_matching.api.NameTable``).

    The names of the framework ``target`` are the common ones; either run may be of either framework.
    """

    source: str = ""
    target: str = ""
