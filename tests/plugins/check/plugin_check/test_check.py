"""``probe plugins --check``: whatever is offered is made, and what fails is said with who gives it."""

from __future__ import annotations

import importlib
import json
import types
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from probe_check.plugin_check.check import check_plugins
from probe_check.plugin_check.output import print_check
from probe_recording.specs import DumperSpec

from probe_core.errors import UserError
from probe_core.model import Measurement
from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.manager import Manager, PluginWarning
from probe_core.plugins.specs import MetricSpec, ReporterSpec, Spec
from probe_core.testing import manager_of


def hooks(name: str, kind: str, *specs: Spec) -> Any:
    """A module of hooks that gives ``specs``."""
    module = types.ModuleType(name)

    def give() -> list[Spec]:
        return list(specs)

    give.__name__ = f"probe_{kind}"
    setattr(module, f"probe_{kind}", hookimpl(give))
    return module


def raising(error: BaseException) -> Any:
    def factory() -> None:
        raise error

    return factory


class Measuring:
    """A metric that measures 1 everywhere."""

    def measure(self, pair: Any) -> list[Measurement]:
        return [Measurement(1.0)]


class Writing:
    """A format that writes nothing."""

    def open(self, path: Path, headers: Any, row_count: int) -> Any:
        path.touch()
        return SimpleNamespace(write=lambda cells, colour: None, close=lambda: None, abandon=lambda: None)

    def line(self, row: int, row_count: int) -> str:
        return str(row)


def metric(name: str, factory: Any = Measuring, **fields: Any) -> MetricSpec:
    return MetricSpec(name, "mine", factory, ("Mine",), **fields)


def test_what_is_installed_can_be_made(probe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROBE_PLUGINS", "pytorch,metrics,reporters,precheck,diagnosis,check,dask,sample")
    assert probe("plugins", "--check") == 0, probe.out
    manager = Manager()
    count = sum(len(manager.contributions(kind)) for kind in manager.kinds)
    assert probe.out == f"{count} contributions tried, 0 failed, 0 conflicts\n" and count > 50


def test_what_fails_is_said_with_who_gives_it() -> None:
    made: list[str] = []

    def good() -> Measuring:
        made.append("good")
        return Measuring()

    manager = manager_of(
        mine=hooks(
            "mine_hooks",
            "metrics",
            metric("good", good),
            metric("bad", raising(ValueError("no such table"))),
            metric("ends", raising(SystemExit(3))),
            metric("refuses", raising(UserError("No licence.", "Buy one."))),
            metric("lost", "mine_hooks:NotThere"),
            metric("no_ahead", ahead="mine_hooks:not_there"),
        )
    )
    core = check_plugins(manager_of()).contribution_count
    found = check_plugins(manager)
    assert set(made) == {"good"} and found.contribution_count == core + 1
    assert [failure.name for failure in found.failed] == ["bad", "ends", "refuses", "lost", "no_ahead"]
    assert all(failure.kind == "metrics" and failure.origins == ("mine",) for failure in found.failed)
    problems = [failure.problem for failure in found.failed]
    assert problems[:3] == [
        'The metric "bad" of mine failed: ValueError: no such table.',
        'The metric "ends" of mine failed: SystemExit: 3.',
        'The metric "refuses" of mine: No licence.',
    ]
    assert [failure.fix for failure in found.failed][2] == "Buy one."
    assert "has no attribute 'NotThere'" in problems[3] and "not_there" in problems[4]


def needing(package: str) -> Any:
    def factory() -> None:
        importlib.import_module(package)

    return factory


def test_what_its_distribution_does_without_is_lacking(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A framework that is not installed is no failure; a package that is required is one."""
    monkeypatch.setattr("importlib.metadata.requires", lambda name: ["absent_required>=2", "absent-two"])
    manager = manager_of(
        mine=hooks(
            "needing_hooks",
            "metrics",
            metric("framework", needing("absent_framework.nn")),
            metric("required", needing("absent_required")),
            metric("own", "absent_own.metric:Metric"),
        )
    )
    found = check_plugins(manager)
    assert [one.name for one in found.failed] == ["required", "own"]
    (lacking,) = found.lacking
    assert lacking.problem == 'The metric "framework" of mine needs absent_framework, which is not installed.'
    assert lacking.fix == "Install absent_framework."
    assert print_check(manager) == 2
    said = capsys.readouterr().out
    assert f"not here  {lacking.problem}\n" in said and said.endswith(", 1 waiting for a missing package\n")
    sound = manager_of(mine=hooks("sound_hooks", "metrics", metric("framework", needing("absent_framework"))))
    assert print_check(sound) == 0


def test_a_package_of_an_extra_that_a_user_error_names_is_lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.requires", lambda name: ['absent_extra>=2; extra == "files"'])

    def factory() -> None:
        try:
            importlib.import_module("absent_extra")
        except ImportError as error:
            raise UserError("It needs absent_extra.", "Install it.") from error

    found = check_plugins(manager_of(mine=hooks("extra_hooks", "metrics", metric("files", factory))))
    assert not found.failed and [one.name for one in found.lacking] == ["files"]


def test_an_interruption_is_none() -> None:
    with pytest.raises(KeyboardInterrupt):
        check_plugins(manager_of(stop=hooks("stop_hooks", "metrics", metric("stop", raising(KeyboardInterrupt())))))


def test_recorders_are_not_called() -> None:
    found = check_plugins(manager_of(rec=hooks("rec_hooks", "dumpers", DumperSpec("rec", "mine", "builtins:exit"))))
    assert found.failed == ()


def test_conflicts_and_plugins_that_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    manager = manager_of(
        one=hooks("one_hooks", "reporters", ReporterSpec("tsv", "mine", Writing)),
        two=hooks("two_hooks", "reporters", ReporterSpec("tsv", "theirs", Writing), ReporterSpec("x", "x", Writing)),
    )
    for as_json, show in ((False, str), (True, json.loads)):
        assert print_check(manager, as_json=as_json) == 2
        shown = show(capsys.readouterr().out)
        if isinstance(shown, str):
            assert 'conflict  The format "tsv" is given by one and two.\n    fix: Uninstall all but' in shown
            assert ", 1 conflict\n" in shown
        else:
            assert shown["failed"] == [] and shown["conflicts"][0]["origins"] == ["one", "two"]
    with pytest.warns(PluginWarning):
        left_out = manager_of(bad=hooks("bad_hooks", "metricks", metric("x")))
    (failure,) = check_plugins(left_out).failed
    assert failure.kind == "plugins" and failure.name == "bad" and "probe_metricks" in failure.problem


def test_a_hook_that_raises(capsys: pytest.CaptureFixture[str]) -> None:
    module = types.ModuleType("raising_hooks")
    module.probe_metrics = hookimpl(raising(OSError("gone")))  # type: ignore[attr-defined]
    module.probe_metrics.__name__ = "probe_metrics"
    manager = manager_of(raising=module)
    with pytest.warns(PluginWarning):
        assert print_check(manager) == 2
    assert "failed  raising is left out: OSError: gone." in capsys.readouterr().out
