"""The options of ``compare`` that this kit adds.

They select the ranks to compare, the place where comparisons run, and whether an earlier one is resumed.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Set
from typing import Any

from probe_core.model.plan import Plan
from probe_core.plugins.distributions import list_contributions
from probe_core.plugins.manager import Manager, PluginWarning
from probe_ranks.specs import ExecutorSpec


def select_ranks(plan: Plan, values: Mapping[str, Any], option_names: Set[str]) -> Plan:
    """Return the plan with the values of the options (docs/pairing.md#ranks).

    Step ``n`` of the target is compared with step ``n + step_offset`` of the golden. The options of other plugins set
    ``step_offset``.
    """
    return plan.with_options(**values)


def set_workers(plan: Plan, values: Mapping[str, Any], option_names: Set[str]) -> Plan:
    """Return the plan with the values of the options; a scheduler selects an executor if none is named."""
    plan = plan.with_options(**values)
    if plan.options.get("scheduler") is None or plan.options.get("executor") is not None:
        return plan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PluginWarning)  # the command has warned already
        return plan.with_options(executor=find_scheduled_executor(Manager()))


def find_scheduled_executor(manager: Manager) -> str | None:
    """Return the executor that ``--scheduler`` selects, installed or not; None if there is none."""
    names = [spec.name for spec in manager.specs("executors", ExecutorSpec) if spec.has_scheduler]
    return next(iter([*names, *list_contributions("executors")]), None)
