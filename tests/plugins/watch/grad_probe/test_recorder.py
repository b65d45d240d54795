"""The recorder of gradients of PyTorch models: steps, files, and what it leaves alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from probe_watch import compare_gradients
from probe_watch.grad_probe.packed import PackedSigns
from support.programs.preloaded import PreloadedPopen
from support.runs.gradients import configuration, debugging, module_of, record, rows, steps
from torch import nn

from probe_core.errors import UserError


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))


def train(model: nn.Module, count: int, optimizer: Any = None) -> None:
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(count):
        optimizer.zero_grad()
        model(torch.randn(3, 4)).square().mean().backward()
        optimizer.step()


def files(path: Path) -> list[str]:
    return sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())


# -- steps and ranks ----------------------------------------------------------------------------------


def test_each_step_of_the_optimizer_has_its_files(tmp_path: Path) -> None:
    with debugging(tmp_path / "run") as debugger:
        model = net()
        debugger.monitor(model)
        train(model, 2)
        debugger.step()  # the steps of the debugger do not matter
        train(model, 1)
    names = ["0.bias", "0.weight", "2.bias", "2.weight"]
    assert files(tmp_path / "run") == sorted(
        [f"rank0/grad_summary_{step}.csv" for step in range(3)]
        + [f"rank0/grad_directions_{step}.safetensors" for step in range(3)]
        + [f"rank0/step{step}/{name}.npy" for step in range(3) for name in names]
    )
    assert [row["param_name"] for row in rows(tmp_path / "run", 2)] == [
        "0.weight",
        "0.bias",
        "2.weight",
        "2.bias",
    ]


def test_steps_are_selected(tmp_path: Path) -> None:
    with debugging(tmp_path / "run", step=[1, "3-4"]) as debugger:
        model = net()
        debugger.monitor(model)
        train(model, 6)
    assert steps(tmp_path / "run") == [1, 3, 4]


def test_the_gradient_is_that_before_the_step(tmp_path: Path) -> None:
    class Clearing(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            self.zero_grad()

    with debugging(tmp_path / "run") as debugger:
        model = module_of({"a": torch.tensor([1.0, -2.0])})
        debugger.monitor(model)
        Clearing(model.parameters(), lr=0.1).step()
    assert [row["max"] for row in rows(tmp_path / "run")] == ["1.0"]


def test_each_of_several_optimizers_counts(tmp_path: Path) -> None:
    with debugging(tmp_path / "run") as debugger:
        model = net()
        debugger.monitor(model)
        optimizers = [torch.optim.SGD(layer.parameters(), lr=0.1) for layer in (model[0], model[2])]
        model(torch.randn(3, 4)).sum().backward()
        for optimizer in optimizers:
            optimizer.step()
    assert steps(tmp_path / "run") == [0, 1]


def test_a_resumed_training_continues_the_count_and_keeps_earlier_steps(tmp_path: Path) -> None:
    for first in (0, 2):
        with debugging(tmp_path / "run") as debugger:
            model = net()
            debugger.set_init_step(first)
            debugger.monitor(model)
            train(model, 3)
    assert steps(tmp_path / "run") == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("rank", "recorded"), [("0", []), ("1", [0])])
def test_ranks_are_selected(rank: str, recorded: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with debugging(tmp_path / "run", rank=[1]) as debugger:
        model = net()
        debugger.monitor(model)
        train(model, 1)
    assert steps(tmp_path / "run", 1) == recorded and not steps(tmp_path / "run", 0)


def test_monitoring_again_observes_the_other_model(tmp_path: Path) -> None:
    with debugging(tmp_path / "run") as debugger:
        for name in ("a", "b"):
            model = module_of({name: torch.ones(1)})
            debugger.monitor(model)
            torch.optim.SGD(model.parameters()).step()
    assert [row["param_name"] for row in rows(tmp_path / "run", 1)] == ["b"]
    assert steps(tmp_path / "run") == [0, 1]


# -- parameters ---------------------------------------------------------------------------------------


def test_main_grad_takes_precedence_and_none_is_left_out(tmp_path: Path) -> None:
    model: Any = module_of({name: torch.ones(1) for name in ("a", "b", "c")})
    model.a.main_grad, model.b.grad = torch.tensor([5.0]), None
    with debugging(tmp_path / "run") as debugger:
        debugger.monitor(model)
        torch.optim.SGD(model.parameters()).step()
    assert {row["param_name"]: row["max"] for row in rows(tmp_path / "run")} == {"a": "5.0", "c": "1.0"}


def test_parameters_are_selected_by_their_exact_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with debugging(tmp_path / "run", param_list=["2.weight", "0.weigth"]) as debugger:
        model = net()
        debugger.monitor(model)
        train(model, 1)
    assert [row["param_name"] for row in rows(tmp_path / "run")] == ["2.weight"]
    assert "does not have: 0.weigth. Similar names: 0.weight" in capsys.readouterr().err


def test_a_shared_parameter_is_recorded_once(tmp_path: Path) -> None:
    def tied() -> nn.ModuleDict:
        model = nn.ModuleDict({"first": nn.Linear(2, 2, bias=False), "second": nn.Linear(2, 2, bias=False)})
        model["second"].weight = model["first"].weight
        return model

    for run, listed, names in (("all", [], ["first.weight"]), ("one", ["second.weight"], ["second.weight"])):
        with debugging(tmp_path / run, param_list=listed) as debugger:
            model = tied()
            debugger.monitor(model)
            model["second"](torch.ones(1, 2)).sum().backward()
            torch.optim.SGD(model.parameters()).step()
        assert [row["param_name"] for row in rows(tmp_path / run)] == names


def test_several_models_have_numbers(tmp_path: Path) -> None:
    models = [module_of({"a": torch.ones(1)}), module_of({"a": torch.ones(1)})]
    with debugging(tmp_path / "run") as debugger:
        debugger.monitor(models)
        torch.optim.SGD(models[0].parameters()).step()
    assert [row["param_name"] for row in rows(tmp_path / "run")] == ["a", "1.a"]


NAMES = ["a/b", "a_b", "a%2Fb", "..", "é\n", "x" * 300, "x" * 301, "-=1", 'q"uote,', "*?:"]


@pytest.mark.parametrize("kind", ["npy", "packed"])
def test_names_that_no_file_can_have(kind: str, tmp_path: Path) -> None:
    model = nn.Module()
    for number, name in enumerate(NAMES):
        parameter = nn.Parameter(torch.zeros(3))
        parameter.grad = torch.tensor([float(number % 2), -1.0, float(number % 3)])
        model._parameters[name] = parameter
    with debugging(tmp_path / "run", direction_files=kind) as debugger:
        debugger.monitor(model)
        torch.optim.SGD(model.parameters()).step()
    assert len(files(tmp_path / "run")) == 1 + (len(NAMES) if kind == "npy" else 1)
    comparison = compare_gradients(tmp_path / "run", tmp_path / "run", tmp_path / "out")
    assert [series.parameter for series in comparison.ranks[0].series] == NAMES
    assert all(pair.agreement is not None for s in comparison.ranks[0].series for pair in s.pairs.values())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "run", "run.json"]


def test_an_empty_gradient_is_a_row(tmp_path: Path) -> None:
    record(tmp_path / "run", {"a": torch.zeros(0, 3), "b": torch.ones(2)}, grad_level="L2")
    row = rows(tmp_path / "run")[0]
    assert (row["max"], row["min"], row["norm"], row["=0"], row["shape"]) == ("", "", "0.0", "0.0", "[0, 3]")
    assert np.load(tmp_path / "run" / "rank0" / "step0" / "a.npy").shape == (0, 3)
    assert compare_gradients(tmp_path / "run", tmp_path / "run").main is None


def test_a_gradient_that_cannot_be_measured_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model: Any = module_of({"a": torch.ones(2), "b": torch.ones(2)})
    model.a.main_grad = torch.ones(2, device="meta")
    with debugging(tmp_path / "run") as debugger:
        debugger.monitor(model)
        torch.optim.SGD(model.parameters()).step()
    assert [row["param_name"] for row in rows(tmp_path / "run")] == ["b"]
    assert "the gradient of a is not recorded: " in capsys.readouterr().err
    assert "a" not in PackedSigns(tmp_path / "run" / "rank0" / "grad_directions_0.safetensors")


def test_a_distributed_tensor_is_recorded_by_its_local_shard(tmp_path: Path) -> None:
    class Sharded(torch.Tensor):
        def to_local(self) -> torch.Tensor:
            return torch.tensor([1.0, -1.0])

    model: Any = module_of({"a": torch.ones(4)})
    model.a.main_grad = torch.ones(4).as_subclass(Sharded)
    with debugging(tmp_path / "run") as debugger:
        debugger.monitor(model)
        torch.optim.SGD(model.parameters()).step()
    assert rows(tmp_path / "run")[0]["shape"] == "[2]"


# -- files --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"grad_level": "L0"}, ["grad_summary_0.csv"]),
        ({"direction_files": "npy"}, ["grad_summary_0.csv", "step0/a.npy"]),
        ({"direction_files": "packed"}, ["grad_directions_0.safetensors", "grad_summary_0.csv"]),
        ({}, ["grad_directions_0.safetensors", "grad_summary_0.csv", "step0/a.npy"]),
    ],
)
def test_files_of_the_settings(fields: dict[str, Any], expected: list[str], tmp_path: Path) -> None:
    run = record(tmp_path / "run", {"a": torch.ones(2)}, **fields)
    assert files(run / "rank0") == expected


def test_an_earlier_run_is_replaced_and_other_files_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with debugging(tmp_path / "run") as debugger:
        model = net()
        debugger.monitor(model)
        train(model, 3)
    kept = [tmp_path / "run" / "rank0" / "notes.txt", tmp_path / "run" / "rank0" / "step1" / "notes.txt"]
    for file in kept:
        file.write_text("mine")
    record(tmp_path / "run", {"a": torch.ones(2)})
    assert steps(tmp_path / "run") == [0] and all(file.exists() for file in kept)
    assert "replaced 3 steps of an earlier run" in capsys.readouterr().err
    assert not (tmp_path / "run" / "rank0" / "step2").exists()


def test_a_directory_that_cannot_be_written_is_reported_by_monitor(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with debugging(tmp_path / "run") as debugger, pytest.raises(UserError, match="is a file"):
        debugger.monitor(net())


@pytest.mark.parametrize("place", ["rank0/grad_summary_1.csv", "rank0/step1", "rank0"])
def test_a_failed_write_ends_the_recording_and_not_the_training(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with debugging(tmp_path / "run") as debugger:
        model = net()
        debugger.monitor(model)
        if place == "rank0":
            (tmp_path / "run" / place).symlink_to(tmp_path)
        train(model, 1)
        if place.endswith("step1"):
            (tmp_path / "run" / place).write_text("")
        elif place != "rank0":
            (tmp_path / "run" / place).mkdir()
        train(model, 2)
    error = capsys.readouterr().err
    assert error.count("the recording of gradients ends in step") == 1 and "The training goes on." in error
    assert steps(tmp_path / "run") == ([] if place == "rank0" else [0]) or place.endswith(".csv")
    assert not list(tmp_path.glob("run/rank0/*.part")) and not list(tmp_path.glob("*.csv"))


def test_an_interrupt_leaves_complete_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with debugging(tmp_path / "run") as debugger:
        model = net()
        debugger.monitor(model)
        train(model, 1)

        def interrupt(*_: Any) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("probe_watch.grad_probe.pytorch.measure", interrupt)
        with pytest.raises(KeyboardInterrupt):
            train(model, 1)
    assert steps(tmp_path / "run") == [0] and not list(tmp_path.rglob("*.part"))


@pytest.mark.parametrize(
    ("fields", "count", "message"),
    [
        ({}, None, "no gradients were recorded: monitor() was never called."),
        ({}, 0, "no gradients were recorded: no optimizer stepped after monitor()."),
        ({"step": [7]}, 2, "the program ended after step 1, without a step that is selected."),
        ({"rank": [7]}, 2, ""),
        ({}, 1, ""),
    ],
)
def test_a_run_without_files_is_explained(
    fields: dict[str, Any],
    count: int | None,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with debugging(tmp_path / "run", **fields) as debugger:
        model = net()
        if count is not None:
            debugger.monitor(model)
            train(model, count)
    error = capsys.readouterr().err
    assert message in error and bool(message) == bool(error)


def test_leftovers_of_a_killed_training_are_removed(tmp_path: Path) -> None:

    from probe_core.files.atomic import AtomicFile

    with subprocess.Popen(["true"]) as process:
        process.wait()
    (tmp_path / "run" / "rank0").mkdir(parents=True)
    left = AtomicFile(tmp_path / "run" / "rank0" / "grad_directions_9.safetensors").temporary
    left.rename(left.with_name(left.name.replace(f".{os.getpid()}.", f".{process.pid}.")))
    record(tmp_path / "run", {"a": torch.ones(1)}, direction_files="npy")
    assert files(tmp_path / "run" / "rank0") == ["grad_summary_0.csv", "step0/a.npy"]


def test_another_process_in_the_same_directory_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from probe_recording.run_directory.directory import Lock

    (tmp_path / "run").mkdir()
    lock = Lock(tmp_path / "run", "rank0")
    record(tmp_path / "run", {"a": torch.ones(2)})
    lock.release()
    assert "is being written by process" in capsys.readouterr().err and not steps(tmp_path / "run")


def test_a_forked_child_writes_nothing(tmp_path: Path) -> None:
    with debugging(tmp_path / "run") as debugger:
        model = module_of({"a": torch.ones(1)})
        debugger.monitor(model)
        debugger._recorder._pid += 1
        torch.optim.SGD(model.parameters()).step()
    assert not steps(tmp_path / "run")


ENDLESS = """
import sys, torch
from probe_pytorch import PrecisionDebugger
model = torch.nn.Linear(64, 64)
debugger = PrecisionDebugger(sys.argv[1])
debugger.monitor(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    optimizer.zero_grad()
    model(torch.randn(8, 64)).square().mean().backward()
    optimizer.step()
"""


def test_a_killed_training_leaves_readable_files(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = PreloadedPopen([sys.executable, "-c", ENDLESS, str(configuration(run, grad_level="L2"))])
    try:
        while not (run / "rank0" / "grad_summary_5.csv").exists():
            assert process.poll() is None
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    recorded = steps(run)
    assert recorded == list(range(len(recorded))) and len(recorded) >= 6
    comparison = compare_gradients(run, run, tmp_path / "out")
    assert comparison.ranks[0].steps == tuple(recorded) and comparison.main is None
    record(run, {"a": torch.ones(1)})  # the lock of the killed process is no obstacle
    assert steps(run) == [0]


# -- the training ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["L0", "L1", "L2"])
def test_a_training_has_the_same_bits_with_and_without_the_task(level: str, tmp_path: Path) -> None:
    def trained(debugger: Any) -> list[torch.Tensor]:
        model = net()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        if debugger is not None:
            debugger.monitor(model)
        train(model, 4, optimizer)
        state = [value for states in optimizer.state.values() for value in states.values()]
        return [*model.state_dict().values(), *state, torch.random.get_rng_state()]

    with debugging(tmp_path / "run", grad_level=level) as debugger:
        with_task = trained(debugger)
    without = trained(None)
    assert steps(tmp_path / "run") == [0, 1, 2, 3]
    assert all(torch.equal(a, b) for a, b in zip(with_task, without, strict=True))


def test_the_model_and_optimizer_hold_no_hooks(tmp_path: Path) -> None:
    with debugging(tmp_path / "run") as debugger:
        model = net()
        debugger.monitor(model)
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
        torch.save(model, tmp_path / "model.pt")


@pytest.mark.parametrize("model", [None, 3, "model"])
def test_monitor_needs_a_model(model: Any, tmp_path: Path) -> None:
    with debugging(tmp_path / "run") as debugger, pytest.raises(UserError, match=r"model"):
        debugger.monitor(model)
