"""Comparisons in tests, without the command line."""

from __future__ import annotations

from collections.abc import Iterator

from probe_core.flow.execution import PlanExecution
from probe_core.model.plan import Plan
from probe_core.model.report import Report
from probe_core.plugins.manager import Manager


def compare(plan: Plan, manager: Manager) -> Iterator[Report]:
    """Compare what a plan says; the report of each rank."""
    for finished in PlanExecution.open(plan, manager).run():
        assert finished.report is not None, finished.error
        yield finished.report
