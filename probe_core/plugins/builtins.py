"""Contributions of the core itself, registered like those of any plugin."""

from __future__ import annotations

from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.specs import MatcherSpec


@hookimpl
def probe_matchers() -> list[MatcherSpec]:
    """Return the matcher that needs no plugin."""
    return [MatcherSpec("exact", "equal names", "probe_core.matching.exact:ExactMatcher")]
