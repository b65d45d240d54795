"""What a runner knows of single APIs: the file ``rules.yaml`` of its package, by section."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from importlib.resources import files
from typing import Any

from probe_core.errors import Defect


class Rules:
    """The sections of a ``rules.yaml``, which is read when the first of them is asked for.

    Args:
        package: The package that the file lies in.
    """

    def __init__(self, package: str) -> None:
        self._package = package

    def __call__(self, section: str) -> Any:
        """A section of the rules, as the yaml file nests it.

        Raises:
            Defect: There is no such file, or no such section.
        """
        try:
            return self._all[section]
        except KeyError:
            raise Defect(f"The rules.yaml of {self._package} has no section {section}.") from None

    def is_random(self, api: str, keywords: Mapping[str, Any]) -> bool:
        """Does a call of the API with these keywords draw random numbers?"""
        return api in self("random") and keywords.get("training", True) is not False

    def load(self) -> None:
        """Read the file now, so that a missing one is known before any call is run.

        Raises:
            Defect: There is no such file.
        """
        _ = self._all

    @cached_property
    def _all(self) -> dict[str, Any]:
        import yaml

        loaded: dict[str, Any] = yaml.safe_load(package_text(self._package, "rules.yaml"))
        return loaded


def package_text(package: str, name: str) -> str:
    """Return the text of a file that ships inside ``package``.

    Raises:
        Defect: The installation lacks the file.
    """
    try:
        return files(package).joinpath(name).read_text("utf-8")
    except FileNotFoundError:
        raise Defect(f"The installed package {package} lacks its file {name}.") from None
