"""Families of calls that not every recorder captures (docs/formats.md#families)."""

from __future__ import annotations

from collections import Counter
from typing import Any

AUTOGRAD_SCOPE = "Autograd"
"""The scope of calls of ``torch.autograd.Function``."""

MAX_COUNTED_NAMES = 100
"""Maximum number of operators whose unrecorded calls are counted by name; calls of others are counted together."""


class Family:
    """The scopes of the recorded calls of a family, in the order in which they were first seen."""

    def __init__(self) -> None:
        self.scopes: list[str] = []

    def add(self, scope: str) -> None:
        """Note that a call of ``scope`` is recorded."""
        if scope not in self.scopes:
            self.scopes.append(scope)


class Families:
    """The families of calls that a recorder of API calls captures beyond those of torch's own functions.

    Attributes:
        operators: Custom operators, whose scope is their namespace.
        functions: Subclasses of ``torch.autograd.Function``.
        unrecorded: The number of calls, in this step, of each operator that was seen and not recorded.
    """

    def __init__(self) -> None:
        self.operators, self.functions = Family(), Family()
        self.unrecorded: Counter[str] = Counter()

    def count_unrecorded(self, name: str) -> None:
        """Count a call that is not recorded."""
        if name not in self.unrecorded and len(self.unrecorded) >= MAX_COUNTED_NAMES:
            name = "others"
        self.unrecorded[name] += 1

    def begin_step(self) -> dict[str, Any]:
        """Return the fields for the header of a step, which are updated as calls are seen."""
        self.unrecorded = Counter()
        scopes = {
            "custom_operators": self.operators.scopes,
            "autograd_functions": self.functions.scopes,
        }
        return {"families": scopes, "unrecorded": self.unrecorded}
