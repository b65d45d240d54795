"""What a runner knows of single APIs: the file ``rules.yaml`` of its package, by section."""

from __future__ import annotations

from functools import cached_property
from importlib.resources import files
from typing import Any


class Rules:
    """The sections of a ``rules.yaml``, which is read when the first of them is asked for.

    Args:
        package: The package that the file lies in.
    """

    def __init__(self, package: str) -> None:
        self._package = package

    def __call__(self, section: str) -> Any:
        """A section of the rules, as the yaml file nests it."""
        return self._all[section]

    @cached_property
    def _all(self) -> dict[str, Any]:
        import yaml

        text = files(self._package).joinpath("rules.yaml").read_text("utf-8")
        loaded: dict[str, Any] = yaml.safe_load(text)
        return loaded
