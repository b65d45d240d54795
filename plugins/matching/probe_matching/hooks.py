"""The plugin's hooks: matchers for runs whose names differ, and common names for two frameworks."""

from __future__ import annotations

from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.specs import MatcherSpec, ViewSpec


@hookimpl
def probe_matchers() -> list[MatcherSpec]:
    """Return matchers for runs whose names differ."""
    return [
        MatcherSpec("fuzzy", "equal names except for the call count, in order", "probe_matching.fuzzy:Fuzzy"),
        MatcherSpec(
            "align",
            "calls aligned in order, with insertions and omissions",
            "probe_matching.aligned:Aligned",
        ),
        MatcherSpec("mapping", "names paired by a yaml file", "probe_matching.mapping:Mapping"),
    ]


@hookimpl
def probe_views() -> list[ViewSpec]:
    """Return the view that gives runs common names."""
    return [
        ViewSpec(
            "common_words",
            "common names for runs of two frameworks or with mapping files",
            "probe_matching.across:CommonWords",
            asks=("name_rules",),
        )
    ]
