"""Reader of ``thresholds.yaml``: thresholds of the first stages, and of each standard by release."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from probe_precheck.releases import resolve_release

from probe_core.errors import UserError
from probe_core.files.packaged import load_yaml

FIRST_STAGE = "first_stage"
NON_RELEASE_SECTIONS = (FIRST_STAGE, "mint_stage", "solo")
"""Names of sections that do not belong to a release."""


def load_first_stage() -> Mapping[str, Any]:
    """Return the thresholds of the first stage, which are the same in every release."""
    return load_section(FIRST_STAGE)


def load_section(name: str) -> Mapping[str, Any]:
    """Return a section that is the same in every release."""
    limits: Mapping[str, Any] = load_yaml(__package__, "thresholds.yaml")[name]
    return limits


def load_thresholds(release: str, standard: str) -> Mapping[str, Any]:
    """Return the thresholds of one standard in one release, nested as in the yaml file.

    Args:
        release: A release of msprobe, such as ``guide`` or ``8.3`` (docs/standards.md#releases).
        standard: The name of a standard, such as ``ulp``.

    Raises:
        UserError: There is no such release.
    """
    thresholds, release = load_yaml(__package__, "thresholds.yaml"), resolve_release(release)
    releases = [name for name in thresholds if name not in NON_RELEASE_SECTIONS]
    if release not in releases:
        raise UserError(
            f'There are no thresholds of a release "{release}", so nothing can be judged by them.',
            "Choose one of:",
            releases,
        )
    limits: Mapping[str, Any] = thresholds[release][standard]
    return limits


def get_for_dtype(limits: Mapping[str, Any], kind: str) -> Any:
    """Return the entry of ``limits`` for a dtype, such as ``float16``, or the default entry."""
    return limits[kind] if kind in limits else limits["default"]
