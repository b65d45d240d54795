"""The options of ``compare`` that this kit adds: where comparisons run, and whether an earlier one is resumed."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from probe_core.model.plan import Plan


def set_workers(plan: Plan, values: Mapping[str, Any], option_names: Set[str]) -> Plan:
    """Return the plan with the values of the options."""
    return plan.with_options(**values)
