"""Tasks of the debugger that plugins provide."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
from probe_recording.api import Process, TaskRecorder, TaskSpec
from probe_recording.recorder.tasks import create_task_recorder
from probe_recording.settings import config
from probe_recording.specs import check_task

from probe_core.errors import UserError
from probe_core.plugins.blame import PluginError


def parse(section: Any) -> int:
    return int(section.number("threshold", 0, 9, 3))


class Counter(TaskRecorder):
    def __init__(self, config: Any, framework: str) -> None:
        super().__init__(config)
        self.framework = framework


PROCESS = Process()
SPEC = TaskSpec(
    "count", "counts", Counter, frameworks=("mine",), fields=("threshold",), settings="counting_plugin:parse"
)


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "counting_plugin", ModuleType("counting_plugin"))
    monkeypatch.setattr("counting_plugin.parse", parse, raising=False)
    for module in ("settings.config", "recorder.tasks"):
        monkeypatch.setattr(f"probe_recording.{module}.find_plugin_tasks", lambda: {"count": SPEC})


def configured(**fields: Any) -> config.Config:
    return config.parse({"dump_path": "run", "task": "count", **fields})


def test_a_task_receives_its_section() -> None:
    recorder = create_task_recorder(configured(count={"threshold": 5}), "mine", PROCESS)
    assert isinstance(recorder, Counter)
    assert (recorder.config.settings, recorder.framework, recorder.process) == (5, "mine", PROCESS)
    assert configured() != configured(count={"threshold": 5})


def test_an_unknown_field_and_a_wrong_value_are_named() -> None:
    with pytest.warns(config.ConfigWarning, match='unknown field "treshold" is ignored; did you mean "threshold"'):
        configured(count={"treshold": 5})
    with pytest.raises(UserError, match=r'section "count".*threshold'):
        configured(count={"threshold": 50})


def test_another_framework_is_refused() -> None:
    with pytest.raises(UserError, match="not available for other"):
        create_task_recorder(configured(), "other", PROCESS)


def test_an_unknown_task_lists_those_of_plugins() -> None:
    with pytest.raises(UserError) as caught:
        config.parse({"dump_path": "run", "task": "cuont"})
    assert "count" in caught.value.choices


def test_the_recorders_own_tasks_load_no_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "find_plugin_tasks", lambda: pytest.fail("plugins were loaded"))
    for task in ("statistics", "TENSOR", "nan_check", "", None):
        config.parse({"dump_path": "run", "task": task})


@pytest.mark.parametrize("method", ["monitor", "save", "module_dump", "module_dump_end", "register", "restore"])
def test_unsupported_methods_are_refused(method: str) -> None:
    recorder = TaskRecorder(configured())
    count = {"monitor": 1, "save": 3, "module_dump_end": 0, "register": 3}.get(method, 2)
    with pytest.raises(UserError, match='task "count" does not support'):
        getattr(recorder, method)(*range(count))


def test_steps_are_counted() -> None:
    recorder = TaskRecorder(configured())
    recorder.set_step(5)
    recorder.step()
    assert recorder.current_step == 6


def test_an_incomplete_spec_is_refused() -> None:
    with pytest.raises(TypeError, match="needs frameworks"):
        check_task(TaskSpec("count", "counts", Counter))


def test_a_check_of_plugins_imports_the_factory_and_does_not_call_it() -> None:
    assert SPEC.make() is Counter
    with pytest.raises(PluginError, match="count"):
        TaskSpec("count", "counts", "counting_plugin:missing").make()
