"""The distributions of this repository: their contributions, and the commands that install them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from probe_core.errors import UserError
from probe_core.files.packaged import load_yaml

PLUGINS_VARIABLE = "PROBE_PLUGINS"
"""The environment variable that selects the plugins to load."""


def _load_distributions() -> Mapping[str, Mapping[str, list[str]]]:
    listed: dict[str, Any] = load_yaml(__package__, "distributions.yaml")
    return listed


def is_of_probe(distribution: str) -> bool:
    """Return True for a distribution of this repository, whose faults are defects of probe."""
    return distribution == "probe-core" or distribution in _load_distributions()


def find_provider(kind: str, name: str) -> str | None:
    """Return the distribution of this repository that gives a contribution; None if none does."""
    name = name.replace("_", "-") if kind == "commands" else name
    return next((dist for dist, kinds in _load_distributions().items() if name in kinds.get(kind, ())), None)


def provides(distribution: str, kind: str) -> bool:
    """Return True if a distribution of this repository gives contributions of a kind."""
    return bool(_load_distributions().get(distribution, {}).get(kind))


def list_contributions(kind: str) -> list[str]:
    """Return the names of all contributions of a kind in the distributions of this repository."""
    return [name for contributions in _load_distributions().values() for name in contributions.get(kind, ())]


def describe_installation(distribution: str) -> str:
    """Return the sentence with the commands that install a distribution of this repository."""
    clone = " ".join(
        f"./{directory}" for directory in _load_distributions().get(distribution, {}).get("directories", ["."])
    )
    wheels = f"pip install --no-index --find-links FOLDER {distribution}"
    return f"In a clone of probe: pip install {clone}; from a folder of wheels: {wheels}"


def create_missing_error(subject: str, distribution: str) -> UserError:
    """Return the error for a contribution whose distribution is not installed or is left out.

    Args:
        subject: The contribution, such as ``The format "xlsx"``.
        distribution: The distribution of this repository that gives it.
    """
    try:
        version = metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return UserError(
            f"{subject} comes with {distribution}, which is not installed.", describe_installation(distribution)
        )
    name = distribution.removeprefix("probe-")
    chosen = os.environ.get(PLUGINS_VARIABLE, name).replace(" ", "").split(",")
    left_out, fix = ("is installed and left out", "See probe plugins for the reason.")
    if name not in chosen:
        left_out, fix = f"{PLUGINS_VARIABLE} leaves out", f"Add {name} to {PLUGINS_VARIABLE}."
    return UserError(f"{subject} comes with {distribution} {version}, which {left_out}.", fix)
