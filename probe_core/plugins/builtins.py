"""Contributions of the core itself, registered like those of any plugin."""

from __future__ import annotations

from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.specs import CommandSpec, MatcherSpec


@hookimpl
def probe_matchers() -> list[MatcherSpec]:
    """Return the matcher that needs no plugin."""
    return [MatcherSpec("exact", "equal names", "probe_core.matching.exact:ExactMatcher")]


@hookimpl
def probe_commands() -> list[CommandSpec]:
    """Return the command that needs no plugin."""
    return [
        CommandSpec(
            "plugins",
            "List the installed plugins, their contributions, and what is broken.",
            "probe_core.cli.plugins:plugins",
        ),
    ]
