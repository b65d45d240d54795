"""Views of two runs: plugins may rename records, and move values within them, before matching."""

from __future__ import annotations

from collections.abc import Iterator

from probe_core.matching.views import Views
from probe_core.model.plan import Plan
from probe_core.model.run import Run
from probe_core.plugins.blame import blame_plugin
from probe_core.plugins.manager import Manager
from probe_core.plugins.protocols import SelectingViewer, Viewer
from probe_core.plugins.specs import ViewSpec

NAME_MAPPING_OPTION = "--api-mapping"
"""The option whose distribution translates names between frameworks."""


def check_views(plan: Plan, manager: Manager) -> None:
    """Refuse a plan that a view cannot carry out, before any run is opened.

    Raises:
        UserError: A mapping file is not valid.
    """
    for spec, viewer in _create_viewers(manager):
        with blame_plugin(spec.title, spec.origin):
            viewer.check(plan)


def select_records(manager: Manager, target: Run, golden: Run) -> tuple[Run, Run, list[str]]:
    """Return both runs without the records that views leave out, and notes on these."""
    notes: list[str] = []
    for spec, viewer in _create_viewers(manager):
        if isinstance(viewer, SelectingViewer):
            with blame_plugin(spec.title, spec.origin):
                target, golden, more = viewer.select(target, golden)
            notes += more
    return target, golden, notes


def create_views(plan: Plan, manager: Manager, target: Run, golden: Run) -> Views:
    """Return both runs as the plan's matcher sees them; unchanged if no plugin offers a view.

    Raises:
        UserError: A plugin cannot make the view that the plan asks for.
    """
    for spec, viewer in _create_viewers(manager):
        with blame_plugin(spec.title, spec.origin):
            result = viewer.views(plan, manager, target, golden)
            if result is not None and not isinstance(result, Views):
                raise TypeError(f"views must return Views or None, not {type(result).__name__}")
        if result is not None:
            return result
    note = _describe_missing_mapping(manager, target, golden)
    return Views(target, golden, plan.matcher or "exact", (note,) if note else ())


def _describe_missing_mapping(manager: Manager, target: Run, golden: Run) -> str:
    """Return the note that two frameworks are compared without a plugin that maps names, or an empty text."""
    frameworks = target.header.framework, golden.header.framework
    if frameworks[0] == frameworks[1]:
        return ""
    missing = manager.create_missing_option_error("compare", NAME_MAPPING_OPTION)
    if missing is None:
        return ""
    return (
        f"the target is of {frameworks[0]} and the golden of {frameworks[1]}; equal names are paired. "
        f"{missing.what} {missing.fix}"
    )


def _create_viewers(manager: Manager) -> Iterator[tuple[ViewSpec, Viewer]]:
    for spec in manager.specs("views", ViewSpec):
        yield spec, spec.make()
