"""The thresholds of ``thresholds.yaml``: of the first stages, and of each standard by release."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from probe_precheck import release_named

from probe_core.errors import UserError

FIRST_STAGE = "first_stage"
OTHER = (FIRST_STAGE, "mint_stage", "solo")
"""Sections that are no release."""


@cache
def _all() -> dict[str, Any]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C reads ten times as fast
    text = files(__package__).joinpath("thresholds.yaml").read_text("utf-8")
    loaded: dict[str, Any] = yaml.load(text, Loader=loader)
    return loaded


def first_stage() -> Mapping[str, Any]:
    """The thresholds of the first stage, the same in every release."""
    return section(FIRST_STAGE)


def section(name: str) -> Mapping[str, Any]:
    """A section that is the same in every release."""
    found: Mapping[str, Any] = _all()[name]
    return found


def thresholds(release: str, standard: str) -> Mapping[str, Any]:
    """The thresholds of one standard in one release, as the yaml file nests them.

    Raises:
        UserError: There is no such release.
    """
    releases, release = [name for name in _all() if name not in OTHER], release_named(release)
    if release not in releases:
        raise UserError(f'There are no thresholds of a release "{release}".', "Choose one of:", releases)
    found: Mapping[str, Any] = _all()[release][standard]
    return found


def of_kind(limits: Mapping[str, Any], kind: str) -> Any:
    """What ``limits`` has for a dtype (``float16``), or for all others."""
    return limits[kind] if kind in limits else limits["default"]
