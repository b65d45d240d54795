"""Hooks of probe-matching: matchers, and runs of two frameworks in common words."""

from __future__ import annotations

from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.specs import MatcherSpec, ViewSpec


@hookimpl
def probe_matchers() -> list[MatcherSpec]:
    """Ways of pairing runs whose names differ."""
    return [
        MatcherSpec("fuzzy", "equal names but for the call count, in order", "probe_matching.fuzzy:Fuzzy"),
        MatcherSpec(
            "align",
            "streams of calls aligned, whatever is inserted or missing",
            "probe_matching.aligned:Aligned",
        ),
        MatcherSpec("mapping", "names paired by a yaml file", "probe_matching.mapping:Mapping"),
    ]


@hookimpl
def probe_views() -> list[ViewSpec]:
    """Two frameworks, or names that a person maps, in common words."""
    return [
        ViewSpec(
            "common_words",
            "runs of two frameworks, or with mapped names, in common words",
            "probe_matching.across:CommonWords",
            asks=("name_rules",),
        )
    ]
