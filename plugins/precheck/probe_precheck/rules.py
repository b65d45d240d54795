"""Reader of ``rules.yaml``, the file in which a runner's package describes single APIs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from importlib.resources import files
from typing import Any

from probe_core.errors import Defect


class Rules:
    """Sections of a ``rules.yaml``; the file is read on first use.

    Args:
        package: The package that contains the file.
    """

    def __init__(self, package: str) -> None:
        self._package = package

    def __call__(self, section: str) -> Any:
        """Return a section of the rules, nested as in the yaml file.

        Raises:
            Defect: The package has no such file, or the file has no such section.
        """
        try:
            return self._all[section]
        except KeyError:
            raise Defect(f"The rules.yaml of {self._package} has no section {section}.") from None

    def is_random(self, api: str, keywords: Mapping[str, Any]) -> bool:
        """Return True if a call of the API with these keywords draws random numbers."""
        return api in self("random") and keywords.get("training", True) is not False

    def load(self) -> None:
        """Read the file, so that a missing file is reported before a call is run.

        Raises:
            Defect: The package has no such file.
        """
        _ = self._all

    @cached_property
    def _all(self) -> dict[str, Any]:
        import yaml

        loaded: dict[str, Any] = yaml.safe_load(read_package_text(self._package, "rules.yaml"))
        return loaded


def read_package_text(package: str, name: str) -> str:
    """Return the text of a file that ships inside ``package``.

    Raises:
        Defect: The installation lacks the file.
    """
    try:
        return files(package).joinpath(name).read_text("utf-8")
    except FileNotFoundError:
        raise Defect(f"The installed package {package} lacks its file {name}.") from None
