"""The limits that judged the rows of a table, if its policy states them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from probe_core.errors import UserError
from probe_core.model import Mode
from probe_core.plugins.manager import Manager
from probe_core.plugins.specs import PolicySpec, TableSpec


@runtime_checkable
class LimitsPolicy(Protocol):
    """A policy that states its limits."""

    def limits(self) -> Mapping[str, str]:
        """Return a sentence on the limits of each metric that it reads, by the metric's column."""


def find_limits(manager: Manager, mode: Mode) -> dict[str, str]:
    """Return the limits of the policy behind the verdicts of a table, by column; none if it states none."""
    try:
        table = manager.find("tables", mode.value, TableSpec)
        policy = manager.find("policies", table.policy, PolicySpec).make()
    except UserError:  # the plugin is not installed, or broken
        return {}
    return dict(policy.limits()) if isinstance(policy, LimitsPolicy) else {}
