"""Views of two runs: the first plugin that changes a run is used, and results of other types are refused."""

from __future__ import annotations

import types
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from probe_core.errors import UserError
from probe_core.flow.viewing import check_views, create_views, select_records
from probe_core.matching.views import Views
from probe_core.model.plan import Plan
from probe_core.model.run import Run
from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.manager import Manager
from probe_core.plugins.specs import ViewSpec
from probe_core.testing import ArrayRun, manager_of

PLAN = Plan(Path("target"), Path("golden"), Path("output"), "20260101000000")
RUN = ArrayRun({"Functional.relu.0.forward": ([np.ones(2)], [np.ones(2)])})
SHORT_RUN = ArrayRun({})
NUMBERS = count()


class FixedViewer:
    """A viewer that returns a given result, and leaves out all records of the golden."""

    def __init__(self, result: Any, refusal: str = "") -> None:
        self.result, self.refusal = result, refusal

    def check(self, plan: Plan) -> None:
        if self.refusal:
            raise UserError(self.refusal, "Correct it.")

    def views(self, plan: Plan, manager: Manager, target: Run, golden: Run) -> Any:
        return self.result

    def select(self, target: Run, golden: Run) -> tuple[Run, Run, list[str]]:
        return target, SHORT_RUN, ["the golden is left out"]


def create_manager(*viewers: Any) -> Manager:
    module: Any = types.ModuleType(f"viewing_hooks_{next(NUMBERS)}")

    def probe_views() -> list[ViewSpec]:
        return [
            ViewSpec(f"view{number}", "view", lambda viewer=viewer: viewer) for number, viewer in enumerate(viewers)
        ]

    module.probe_views = hookimpl(probe_views)
    return manager_of(mine=module)


def test_runs_are_unchanged_without_a_view() -> None:
    views = create_views(PLAN, Manager([], []), RUN, RUN)
    assert (views.target, views.golden, views.matcher, views.notes) == (RUN, RUN, "exact", ())
    assert create_views(replace(PLAN, matcher="mine"), Manager([], []), RUN, RUN).matcher == "mine"


def test_the_first_view_that_changes_a_run_is_used() -> None:
    first, second = Views(RUN, RUN, "one"), Views(RUN, RUN, "two")
    manager = create_manager(*map(FixedViewer, (None, first, second)))
    assert create_views(PLAN, manager, RUN, RUN) is first


def test_a_view_of_another_type_is_an_error_of_its_plugin() -> None:
    with pytest.raises(UserError, match=r'The view "view0" of mine failed: TypeError: views must return Views or None'):
        create_views(PLAN, create_manager(FixedViewer(3)), RUN, RUN)


def test_check_views_refuses_a_plan() -> None:
    check_views(PLAN, create_manager(FixedViewer(None)))
    with pytest.raises(UserError, match="No such mapping"):
        check_views(PLAN, create_manager(FixedViewer(None, "No such mapping.")))


def test_select_records_leaves_out_records_with_a_note() -> None:
    assert select_records(create_manager(FixedViewer(None)), RUN, RUN) == (RUN, SHORT_RUN, ["the golden is left out"])
