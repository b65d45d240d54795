"""The spec of the hook of this kit."""

from __future__ import annotations

from dataclasses import dataclass

from probe_core.plugins.specs import Spec


@dataclass(frozen=True, slots=True)
class NameRule(Spec):
    """Names and arguments of one framework in another, as data (makes a ``probe_matching.NameTable``).

    The common words are those of ``target``; whichever run is compared with which does not matter.
    """

    source: str = ""
    target: str = ""
