"""Releases of msprobe whose thresholds the standards have (docs/standards.md#releases)."""

from __future__ import annotations

RELEASES = ("guide", "8.3")
"""Names of the releases, oldest first. ``guide`` is the guide of msprobe 1.0.4."""
RELEASE_BY_FORMER_NAME = {"seed": "guide"}
"""Present names of releases by their earlier names, which are still accepted."""


def resolve_release(name: str) -> str:
    """Return the present name of a release; other names are returned unchanged."""
    return RELEASE_BY_FORMER_NAME.get(name, name)
