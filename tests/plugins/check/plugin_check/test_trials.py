"""Trials of contributions: what can be made and fails in every comparison is reported with its distribution."""

from __future__ import annotations

import types
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from probe_check.plugin_check.check import ContributionFailure, check_plugins
from probe_check.plugin_check.output import print_check
from probe_check.plugin_check.trial_runs import TrialRun
from probe_check.plugin_check.trials import TRIALS
from probe_reporters.api import HighlightSpec
from probe_reporters.hooks import probe_outputs

from probe_core.errors import UserError
from probe_core.model import Advice, Column, Measurement, Mode, Verdict
from probe_core.model.run import Run
from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.manager import Manager
from probe_core.plugins.specs import (
    AnswerSpec,
    CommandSpec,
    FinderSpec,
    JudgeSpec,
    MatcherSpec,
    MetricSpec,
    Needs,
    Option,
    OptionSpec,
    OutputSpec,
    PolicySpec,
    ReaderSpec,
    ReporterSpec,
    SchedulerSpec,
    Spec,
    TableSpec,
    ViewSpec,
)
from probe_core.testing import manager_of

NUMBERS = count()
"""Numbers that distinguish the modules of hooks, since a module of one name is loaded once."""


OUTPUT = types.ModuleType("trial_output")
OUTPUT.probe_outputs = probe_outputs  # type: ignore[attr-defined]


def plugin(kind: str, *specs: Spec) -> Manager:
    """Return the core with a plugin that gives ``specs``."""
    module = types.ModuleType(f"trial_hooks_{next(NUMBERS)}")

    def give() -> list[Spec]:
        return list(specs)

    give.__name__ = f"probe_{kind}"
    setattr(module, f"probe_{kind}", hookimpl(give))
    if kind in ("reporters", "tables", "highlighters"):
        return manager_of(**{"mine": module, "probe-reporters": OUTPUT})
    return manager_of(mine=module)


def failures(kind: str, *specs: Spec) -> list[ContributionFailure]:
    return list(check_plugins(plugin(kind, *specs)).failed)


class Broken:
    """An object whose methods do not exist, or take other arguments."""

    def judge(self, *, nothing: Any) -> Any:
        raise AssertionError

    sniff = open = match = views = measure = mark = add = witness = check = run = create_check = judge


def broken_action() -> None:
    raise AssertionError


BROKEN: dict[str, Spec] = {
    "readers": ReaderSpec("mine", "mine", Broken, framework="mine"),
    "matchers": MatcherSpec("mine", "mine", Broken),
    "views": ViewSpec("mine", "mine", Broken),
    "metrics": MetricSpec("mine", "mine", Broken, ("Mine",)),
    "policies": PolicySpec("mine", "mine", Broken, "mine"),
    "judges": JudgeSpec("mine", "mine", Broken),
    "finders": FinderSpec("mine", "mine", Broken),
    "answers": AnswerSpec("mine", "mine", Broken),
    "highlighters": HighlightSpec("mine", "mine", Broken),
    "reporters": ReporterSpec("mine", "mine", Broken, suffix=".mine"),
    "schedulers": SchedulerSpec("mine", "mine", Broken),
    "outputs": OutputSpec("mine", "mine", Broken),
    "tables": TableSpec("tensor", "mine", lambda: ["no column"], policy="trial"),
    "options": OptionSpec("mine", "mine", lambda: 3, command="compare", options=()),
    "commands": CommandSpec("mine", "mine", Broken),
}


@pytest.mark.parametrize("kind", TRIALS)
def test_check_reports_what_fails_in_every_comparison(kind: str) -> None:
    """The contribution can be made; the failure names it, its distribution and the error."""
    spec = BROKEN[kind]
    (failure,) = failures(kind, spec)
    assert (failure.kind, failure.name, failure.origins) == (kind, spec.name, ("mine",))
    assert failure.problem.startswith(f"{spec.title} of mine failed: ")
    assert "pip uninstall mine" in failure.fix


def test_every_kind_of_the_core_but_recorders_has_a_trial() -> None:
    assert set(manager_of().kinds) - set(TRIALS) <= {"dumpers", "references", "runners", "status_rules",
                                                     "standards", "name_rules", "detectors", "tasks", "interceptors",
                                                     "condition_captures", "recorders", "executors"}  # fmt: skip


def test_command_exits_with_2_if_a_contribution_fails_in_use(capsys: pytest.CaptureFixture[str]) -> None:
    manager = plugin("judges", BROKEN["judges"])
    assert print_check(manager) == 2
    shown = capsys.readouterr().out
    assert 'failed  The judge "mine" of mine failed: TypeError: ' in shown
    assert " tried, 1 failed, 0 conflicts\n" in shown


class Judging:
    def __init__(self, result: Any) -> None:
        self.result = result

    def judge(self, op: Any, rows: Any) -> Any:
        return {0: self.result} if rows else {}


class Measuring:
    def __init__(self, result: Any) -> None:
        self.result = result

    def measure(self, pair: Any) -> Any:
        return self.result


class Policy:
    def judge(self, pair: Any, measurements: Any) -> Any:
        return "Yes"


WRONG: list[tuple[str, Spec, str]] = [
    ("judges", JudgeSpec("mine", "mine", lambda: Judging(Verdict)), "must return a Ruling"),
    ("metrics", MetricSpec("mine", "mine", lambda: Measuring([1.0]), ("Mine",)), "a list of Measurement"),
    ("metrics", MetricSpec("mine", "mine", lambda: Measuring([]), ("Mine",)), "must return 1 Measurement"),
    ("metrics", MetricSpec("mine", "mine", Broken, ("Mine",), Needs.CHECKSUM), "TypeError"),
    ("policies", PolicySpec("mine", "mine", Policy, "mine", modes=(Mode.MD5,)), "must return a Verdict"),
    ("tables", TableSpec("md5", "mine", lambda: [Column("A", "target.nothing")], policy="trial"), "nothing"),
    ("options", OptionSpec("mine", "mine", lambda: broken_action, command="compare",
                           options=(Option("x", ("x",), "x"),)), "must begin with a dash"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "spec", "text"), WRONG)
def test_check_reports_results_of_another_type(kind: str, spec: Spec, text: str) -> None:
    (failure,) = failures(kind, spec)
    assert text in failure.problem


class Refusing:
    """A matcher that needs a file."""

    def match(self, target: Run, golden: Run, plan: Any) -> Any:
        raise UserError("It needs a file.", "Give one.")


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("matchers", MatcherSpec("mine", "mine", Refusing)),
        ("options", OptionSpec("mine", "mine", lambda: broken_action, command="compare", options=())),
    ],
)
def test_check_accepts_what_works_or_refuses_with_a_sentence(kind: str, spec: Spec) -> None:
    assert failures(kind, spec) == []


class PartlyRefusing:
    """A matcher that refuses tensors, and fails for other runs."""

    def match(self, target: Run, golden: Run, plan: Any) -> Any:
        if target.mode is Mode.TENSOR:
            raise UserError("It needs statistics.", "Record them.")
        raise LookupError("no such call")


def test_refusal_in_one_mode_hides_no_failure_in_another() -> None:
    (failure,) = failures("matchers", MatcherSpec("mine", "mine", PartlyRefusing))
    assert "LookupError: no such call" in failure.problem


def hooks_of(**hooks: Callable[..., Any]) -> Manager:
    module = types.ModuleType(f"trial_hooks_{next(NUMBERS)}")
    for name, function in hooks.items():
        function.__name__ = name
        setattr(module, name, hookimpl(function))
    return manager_of(mine=module)


def test_check_calls_observers_and_advisors() -> None:
    calls: list[str] = []

    def started(target: str) -> None:
        calls.append(Path(target).parent.name)

    def finished(report: Any) -> None:
        raise LookupError("no server")

    def advise(report: Any) -> Any:
        return "look at exp"

    found = check_plugins(hooks_of(probe_run_started=started, probe_run_finished=finished, probe_advise=advise)).failed
    assert calls == ["target"] * 3
    assert [failure.problem for failure in found] == [
        "probe_run_finished of mine failed: LookupError: no server.",
        "probe_advise of mine failed: TypeError: must return Advice or None, not str.",
    ]
    assert check_plugins(hooks_of(probe_advise=lambda report: Advice("1", "a", report.mode.value))).failed == ()


def test_other_contributions_take_no_part_in_a_trial() -> None:
    """A judge takes part in every comparison; a broken one is no failure of another contribution."""

    class Quiet:
        def judge(self, op: Any, rows: Any) -> Any:
            return {}

    specs = (BROKEN["judges"], JudgeSpec("quiet", "quiet", Quiet))
    assert [failure.name for failure in failures("judges", *specs)] == ["mine"]


@pytest.mark.parametrize("mode", Mode)
def test_trial_runs_differ_and_hold_the_data_of_their_mode(mode: Mode) -> None:
    target, golden = (TrialRun(Path("dump.json"), mode, is_target=side) for side in (True, False))
    values = {slot.name: slot.value for record in golden.records() for slot in record.slots}
    others = {slot.name: slot.value for record in target.records() for slot in record.slots}
    common = values.keys() & others.keys()
    if mode is Mode.TENSOR:
        data = [(target.tensor(others[name]), golden.tensor(values[name])) for name in common
                if values[name].data_name]  # fmt: skip
        same = [first.tobytes() == second.tobytes() for first, second in data]
    else:
        same = [others[name] == values[name] for name in common]
    assert 5 < sum(same) < len(same) - 5
    assert values.keys() - others.keys() and others.keys() - values.keys()


def test_highlighters_get_the_metrics_that_their_spec_names() -> None:
    class Marking:
        def mark(self, rows: Any) -> Any:
            assert all("mine.Mine" in row.measurements for row in rows)
            return {}

    module = types.ModuleType(f"trial_hooks_{next(NUMBERS)}")

    @hookimpl
    def probe_metrics() -> list[Spec]:
        return [MetricSpec("mine", "mine", lambda: Measuring([Measurement(1.0)]), ("Mine",), Needs.STATISTICS)]

    @hookimpl
    def probe_highlighters() -> list[Spec]:
        return [HighlightSpec("marks", "marks", Marking, metrics=("mine",))]

    vars(module).update(probe_metrics=probe_metrics, probe_highlighters=probe_highlighters)
    manager = manager_of(**{"mine": module, "probe-reporters": OUTPUT})
    assert [failure.problem for failure in check_plugins(manager).failed] == []
