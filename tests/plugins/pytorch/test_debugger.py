"""``PrecisionDebugger``: the object, steps and ranks, and its class methods."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from probe_pytorch import PrecisionDebugger
from support.runs.debugged import (
    X,
    alone,  # noqa: F401
    net,
    train,
)
from support.runs.recording import Recording, recording
from torch.nn import functional as F

from probe_core.errors import UserError

pytestmark = pytest.mark.filterwarnings("ignore:.*requires_grad=True:UserWarning")
# -- the object -------------------------------------------------------------------------------------


def test_there_is_one_debugger(tmp_path: Path) -> None:
    PrecisionDebugger._instance = None
    first = PrecisionDebugger(dump_path=tmp_path / "first", level="L1")
    with pytest.raises(UserError, match=r"dump_path is .*first there and .*second here"):
        PrecisionDebugger(dump_path=tmp_path / "second", level="L1")
    second = PrecisionDebugger(dump_path=tmp_path / "first", level="L1")
    assert second is first
    second.start()
    F.relu(X)
    second.stop()
    assert (tmp_path / "first" / "step0").exists() and not (tmp_path / "second").exists()


def test_a_debugger_that_could_not_be_made_is_not_the_one(tmp_path: Path) -> None:
    PrecisionDebugger._instance = None
    with pytest.raises(UserError, match='"level" must be one of the choices'):
        PrecisionDebugger(dump_path=tmp_path / "run", level="L7")
    debugger = PrecisionDebugger(dump_path=tmp_path / "run", level="L1")
    assert debugger._recorder.config.level == "L1"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, '"dump_path" is missing'),
        ({"dump_path": "run", "task": "no such task"}, '"task" must be one of the choices'),
        ({"dump_path": "run", "task": "run_ut"}, "records nothing here"),
        ({"dump_path": "run", "level": 3}, '"level" must be one of the choices'),
        ({"dump_path": "r+n"}, "which holds '\\+'"),
        ({"dump_path": "run", "step": ["5-2"]}, "neither a non-negative integer nor a range"),
        ({"dump_path": "run", "step": 5}, '"step" must be a list'),
        ({"dump_path": "run", "step": [-1]}, "neither a non-negative integer"),
        ({"dump_path": "run", "model": "no model"}, "model must be a torch.nn.Module"),
        ({"dump_path": "run", "model": []}, "model must be a torch.nn.Module"),
        ({"config_path": "missing.json"}, "cannot be read"),
    ],
)
def test_what_cannot_be_followed_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    PrecisionDebugger._instance = None
    with pytest.raises(UserError, match=message):
        PrecisionDebugger(**fields)
    assert PrecisionDebugger._instance is None
    assert list(tmp_path.iterdir()) == []


def test_arguments_come_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"dump_path": str(tmp_path / "no"), "task": "tensor", "level": "L1", "step": [5]}))
    PrecisionDebugger._instance = None
    debugger = PrecisionDebugger(file, task="statistics", dump_path=tmp_path / "run", level="mix", step=[0])
    debugger.start(net())
    debugger.stop()
    head = json.loads((tmp_path / "run" / "step0" / "rank" / "dump.json").read_text())
    assert (head["task"], head["level"]) == ("statistics", "mix")


def test_as_a_context_manager(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1") as found:
        for _ in range(2):
            with found.debugger as debugger:
                F.relu(X)
                assert debugger is found.debugger
            F.gelu(X)
        with pytest.raises(ValueError, match="mine"), found.debugger:
            F.silu(X)
            raise ValueError("mine")
    assert [list(found.records(step)) for step in range(3)] == [
        ["Functional.relu.0.forward"],
        ["Functional.relu.0.forward"],
        ["Functional.silu.0.forward"],
    ]
    assert sorted(path.name for path in found.path.iterdir()) == ["step0", "step1", "step2"]


def test_the_model_of_the_constructor(tmp_path: Path) -> None:
    model = net()
    PrecisionDebugger._instance = None
    debugger = PrecisionDebugger(dump_path=tmp_path / "run", level="L0", model=model)
    with debugger:
        model(X)
    records = json.loads((tmp_path / "run" / "step0" / "rank" / "dump.json").read_text())["data"]
    assert "Module.head.Linear.forward.0" in records


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_these_levels_need_a_model(tmp_path: Path, level: str) -> None:
    with recording(tmp_path / "run", level=level) as found:
        with pytest.raises(UserError, match="needs the model"):
            found.start()
        for wrong in ("model", [1], [], (net(), None), {"a": net()}):
            with pytest.raises(UserError, match="model must be"):
                found.start(wrong)
        found.start((net(),))
        found.stop()


def test_monitor_is_refused_by_recording_tasks(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1") as found, pytest.raises(UserError, match="grad_probe"):
        found.debugger.monitor(net())


@pytest.mark.parametrize("value", [-1, 1.0, "1", True, None])
def test_the_first_step_must_be_a_number(tmp_path: Path, value: Any) -> None:
    with recording(tmp_path / "run", level="L1") as found, pytest.raises(UserError, match="set_init_step"):
        found.debugger.set_init_step(value)


@pytest.mark.parametrize("value", [3, [1], [1, 2, 3], [2, 1], [-1, 2], ["0", "1"], "01"])
def test_the_token_range_must_be_two_numbers(tmp_path: Path, value: Any) -> None:
    with recording(tmp_path / "run", level="L1") as found, pytest.raises(UserError, match="token_range"):
        found.debugger.start(net(), token_range=value)


def test_the_old_name_of_stop(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1") as found:
        found.start()
        F.relu(X)
        found.debugger.forward_backward_dump_end()
        F.relu(X)
        found.start()
        F.gelu(X)
        found.stop()
    assert list(found.records()) == ["Functional.relu.0.forward", "Functional.gelu.0.forward"]


# -- steps and ranks --------------------------------------------------------------------------------


def recorded_steps(found: Recording) -> list[int]:
    """The steps that have a directory, and records in it."""
    numbers = sorted(int(path.name.removeprefix("step")) for path in found.path.glob("step*"))
    assert all(found.records(number) for number in numbers)
    return numbers


@pytest.mark.parametrize(
    ("steps", "recorded"),
    [
        ([], [0, 1, 2, 3, 4, 5]),
        ([1], [1]),
        (["1-2", 4], [1, 2, 4]),
        (["3-3"], [3]),
        ([0, 99], [0]),
        ([9], []),
    ],
)
def test_steps(tmp_path: Path, steps: list[Any], recorded: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    with recording(tmp_path / "run", level="L1", step=steps) as found:
        for _ in range(6):
            found.start()
            F.relu(X)
            found.stop()
            found.step()
    assert recorded_steps(found) == recorded
    assert ("was the last step" in capsys.readouterr().err) == (bool(steps) and not {9, 99} & {*steps})


def test_counts_begin_anew_in_each_step(tmp_path: Path) -> None:
    model = net()
    with recording(tmp_path / "run", level="mix") as found:
        for _ in range(2):
            found.start(model)
            train(model)
            F.relu(X)
            F.relu(X)
            found.stop()
            found.step()
    assert list(found.records(0)) == list(found.records(1))
    assert "Functional.relu.1.forward" in found.records(1)


@pytest.mark.parametrize(("ranks", "is_recorded"), [([], True), ([0], True), ([1], False), (["0-3"], True)])
def test_ranks(tmp_path: Path, ranks: list[Any], is_recorded: bool) -> None:
    with recording(tmp_path / "run", level="L1", rank=ranks) as found:
        found.start()
        F.relu(X)
        found.stop()
        found.step()
    assert found.path.exists() == is_recorded


def test_training_that_is_resumed(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1", step=[10, 12]) as found:
        found.debugger.set_init_step(10)
        for _ in range(3):
            found.start()
            F.relu(X)
            found.stop()
            found.step()
    assert recorded_steps(found) == [10, 12]


def test_recording_is_switched_while_training_runs(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1", dump_enable=False) as found:
        file = tmp_path / "run.config.json"
        for text in (None, True, False, True, "broken"):
            if text is not None:
                file.write_text(json.dumps({**json.loads(file.read_text()), "dump_enable": text}))
            if text == "broken":
                file.write_text("{")
            found.start()
            F.relu(X)
            found.stop()
            found.step()
    assert recorded_steps(found) == [1, 3]


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_the_tokens_of_a_generation(tmp_path: Path, level: str) -> None:
    model = net()
    with recording(tmp_path / "run", level=level) as found:
        found.debugger.start(model, token_range=[1, 2])
        F.relu(X)
        for number in range(5):
            model(X + number)
        found.stop()
        found.step()
        found.debugger.start(model)
        model(X)
        found.stop()
    name = "Functional.gelu.{}.forward" if level == "L1" else "Module.head.Linear.forward.{}"
    assert name.format(1) in found.records() and name.format(2) not in found.records()
    assert "Functional.relu.0.forward" not in found.records()
    first = found.records()["Functional.linear.0.forward" if level == "L1" else "Module.block.Block.forward.0"]
    assert first["input_args"][0]["Max"] == 2.0  # X + 1
    assert name.format(0) in found.records(1) and not model._forward_pre_hooks


# -- by way of the class ----------------------------------------------------------------------------


def test_methods_on_the_class_mean_the_one_debugger(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1") as found:
        PrecisionDebugger.set_init_step(3)
        PrecisionDebugger.start()
        F.relu(X)
        PrecisionDebugger.stop()
        PrecisionDebugger.step()
    assert list(found.records(3)) == ["Functional.relu.0.forward"]


@pytest.mark.parametrize("name", ["start", "stop", "step", "forward_backward_dump_end", "module_dump_end"])
def test_without_a_debugger_methods_say_so(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PrecisionDebugger, "_instance", None)
    with pytest.raises(UserError, match=f"{name}.. is called without a debugger"):
        getattr(PrecisionDebugger, name)()
    assert getattr(PrecisionDebugger, "__doc__")  # noqa: B009


def test_one_of_several_processes_that_have_not_met_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with recording(tmp_path / "run", level="L1") as found:
        found.start()
        F.relu(X)
        found.stop()
    assert [path.name for path in (found.path / "step0").iterdir()] == ["rank3"]
