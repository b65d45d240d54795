"""Ask plugins how matchers see two runs; where none answers, they see them as they are."""

from __future__ import annotations

from collections.abc import Iterator

from probe_core.errors import UserError
from probe_core.matching.views import Views
from probe_core.model.plan import Plan
from probe_core.model.run import Run
from probe_core.plugins.blame import blamed
from probe_core.plugins.distributions import given, missing, provider
from probe_core.plugins.manager import ONLY, Manager
from probe_core.plugins.protocols import Viewer
from probe_core.plugins.specs import ViewSpec


def check_views(plan: Plan, manager: Manager) -> None:
    """Refuse a plan whose mappings no plugin can use, before any run is opened.

    Raises:
        UserError: A file that cannot be used, or no plugin that uses it.
    """
    absent = _absent(manager, "Mapping names (-am, -cm, -lm)")
    if absent is not None and plan.maps_names:
        raise absent
    for spec, viewer in _viewers(manager):
        with blamed(spec.title, spec.origin):
            viewer.check(plan)


def views(plan: Plan, manager: Manager, target: Run, golden: Run) -> Views:
    """Return both runs as the plan's matcher sees them.

    Raises:
        UserError: A plugin cannot show them so.
    """
    for spec, viewer in _viewers(manager):
        with blamed(spec.title, spec.origin):
            seen = viewer.views(plan, manager, target, golden)
            if seen is not None and not isinstance(seen, Views):
                raise TypeError(f"views must return Views or None, not {type(seen).__name__}")
        if seen is not None:
            return seen
    note = _unmapped(manager, target, golden)
    return Views(target, golden, plan.matcher or "exact", (note,) if note else ())


def _unmapped(manager: Manager, target: Run, golden: Run) -> str:
    """Return the note that the plugin for runs of two frameworks is missing; empty where it is not."""
    frameworks = target.header.framework, golden.header.framework
    absent = _absent(manager, "Mapping the names of one to the other")
    if absent is None or frameworks[0] == frameworks[1]:
        return ""
    return (
        f"the target is of {frameworks[0]} and the golden of {frameworks[1]}; equal names are paired. "
        f"{absent.what} {absent.fix}"
    )


def _viewers(manager: Manager) -> Iterator[tuple[ViewSpec, Viewer]]:
    for item in manager.contributions("views"):
        assert isinstance(item.spec, ViewSpec)
        yield item.spec, item.spec.make()


def _absent(manager: Manager, what: str) -> UserError | None:
    """Return the error that says how to get the views of probe itself; None where they are there."""
    absent = next((name for name in given("views") if name not in manager.names("views")), None)
    distribution = absent and provider("views", absent)
    return missing(what, distribution, ONLY) if distribution else None
