"""The kit for views: the installed ones pass, and each check finds the fault that it is for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from probe_matching.hooks import probe_views
from support.conformance import X, failing

from probe_core.errors import UserError
from probe_core.matching.views import Hints, Views
from probe_core.plugins.specs import (
    ViewSpec,
)
from probe_core.testing import (
    ArrayRun,
    ViewConformance,
)

# -- views -----------------------------------------------------------------------------------------


def run_of(framework: str, *names: str) -> ArrayRun:
    run = ArrayRun({name: ([X, X + 1], [X]) for name in names})
    run.header = replace(run.header, framework=framework)
    return run


RUN = run_of("mine", "Functional.a.0.forward", "Functional.b.0.forward", "Functional.b.1.forward")
OTHER = run_of("other", "Functional.a.0.forward", "Functional.c.0.forward", "Functional.c.0.backward")


NAMING = [spec for spec in probe_views() if spec.name not in ("common_rows", "captured_calls")]
"""The views that change names only; the others leave out records or change values."""


@pytest.mark.parametrize("spec", NAMING, ids=lambda spec: spec.name)
def test_the_views_pass(spec: ViewSpec, tmp_path: Path) -> None:
    assert failing(ViewConformance, tmp_path, spec=spec, target=RUN, golden=OTHER) == set()


class AsTheyAre:
    def check(self, plan: Any) -> None:
        pass

    def views(self, plan: Any, manager: Any, target: Any, golden: Any) -> Any:
        return Views(target, golden, "exact")


class Strict(AsTheyAre):
    def check(self, plan: Any) -> None:
        raise UserError("No.", "Never.")


class Lazy(AsTheyAre):
    def views(self, plan: Any, manager: Any, target: Any, golden: Any) -> Any:
        return None


class Shortened(AsTheyAre):
    def views(self, plan: Any, manager: Any, target: Any, golden: Any) -> Any:
        return Views(run_of("mine", "Functional.a.0.forward"), golden, "exact")


class Unsure(AsTheyAre):
    def views(self, plan: Any, manager: Any, target: Any, golden: Any) -> Any:
        return Views(target, golden, "")


class Talking(AsTheyAre):
    class Always(Hints):
        def of(self, op: Any, rows: Any) -> list[str]:
            return ["as ever"]

    def views(self, plan: Any, manager: Any, target: Any, golden: Any) -> Any:
        return Views(target, golden, "exact", hints=self.Always())


@pytest.mark.parametrize(
    "view, faults",
    [
        (AsTheyAre, set()),
        (Strict, {"a_plan_without_files_is_not_refused"}),
        (Lazy, {"it_names_a_matcher", "only_names_change", "hints_are_texts"}),
        (Shortened, {"only_names_change"}),
        (Unsure, {"it_names_a_matcher"}),
        (Talking, {"hints_are_texts"}),
    ],
)
def test_a_fault_of_a_view_is_found(view: Any, faults: set[str], tmp_path: Path) -> None:
    spec = ViewSpec("mine", "mine", view)
    assert failing(ViewConformance, tmp_path, spec=spec, target=RUN, golden=OTHER) == faults
