"""Comparisons in tests, without the command line."""

from __future__ import annotations

from collections.abc import Iterator

from probe_core.model.plan import Plan
from probe_core.model.report import Report
from probe_core.plugins.manager import Manager
from probe_core.ranks.ranks import Ranks


def compare(plan: Plan, manager: Manager) -> Iterator[Report]:
    """Compare what a plan says; the report of each rank."""
    for finished in Ranks(plan, manager).run():
        assert finished.report is not None, finished.error
        yield finished.report
