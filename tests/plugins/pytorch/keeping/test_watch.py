"""The watch of a script: it changes nothing, and writes runs that the other tools read."""

from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import probe_pytorch
import pytest
import torch
from support.programs import models, training
from support.sampling import sampled
from support.trainings import Training
from torch import nn

from probe_core.errors import UserError

CASES = {f"{program.name}-{variant.name}": (program, variant) for program, variant in models.cases()}
pytestmark = pytest.mark.filterwarnings("ignore:Detected call of .lr_scheduler:UserWarning")
ALWAYS = ("mlp_adamw", "llama-nonreentrant", "bert-bf16", "inplace")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Sums depend on the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    assert not torch.nn.modules.module._global_forward_pre_hooks


class Recorder:
    """A watch with the methods of a recorder."""

    def __init__(self, place: Path, level: str) -> None:
        self.place, self.level = place, level
        self.watch: probe_pytorch.Watch | None = None

    def start(self, model: nn.Module) -> None:
        self.watch = self.watch or probe_pytorch.watch(2, model, dump_path=self.place, level=self.level)
        self.watch.start()

    def stop(self) -> None:
        pass

    def step(self) -> None:
        assert self.watch is not None
        self.watch.stop()


@cache
def bare(name: str) -> training.Outcome:
    return training.run(*CASES[name])


@pytest.mark.parametrize("name", sampled(list(CASES), 0, lambda name: name.startswith(ALWAYS)))
def test_training_is_bit_equal_with_and_without_a_watch(name: str, tmp_path: Path) -> None:
    program, variant = CASES[name]
    if program.needs:
        pytest.importorskip(program.needs)
    recorder = Recorder(tmp_path / "run", "mix" if len(name) % 2 else "L0")
    outcome = training.run(program, variant, recorder=recorder)
    assert recorder.watch is not None
    recorder.watch.finish()
    assert training.differences(bare(name), outcome) == []
    assert recorder.watch._recorder.keeper.step_count == 3


# -- what is written --------------------------------------------------------------------------


def watched(training: Training, place: Path, length: int, spoiled: int, **options: Any) -> probe_pytorch.Watch:
    watch = probe_pytorch.watch(options.pop("keep_last", 3), training.model, dump_path=place, **options)
    for step in range(length):
        with watch:
            loss = training.run(step)
            if step == spoiled:
                watch.loss(torch.tensor(math.nan))
            elif step > spoiled:
                watch.loss(loss)
    watch.finish()
    return watch


def test_the_files_are_those_of_an_ordinary_recording(tmp_path: Path, probe: Any) -> None:
    for place in ("a", "b"):
        watched(Training(3), tmp_path / place, 6, 4)
        assert sorted(path.name for path in (tmp_path / place).iterdir() if path.is_dir()) == [
            "step2", "step3", "step4",
        ]  # fmt: skip
        files = sorted(path.name for path in (tmp_path / place / "step4" / "rank").iterdir())
        assert files == [
            "conditions.json", "construct.json", "dump.json", "stack.json", "step_phases.json", "watch.json",
        ]  # fmt: skip
    head = json.loads((tmp_path / "a/step3/rank/dump.json").read_text())
    assert head["task"] == "statistics" and head["level"] == "L0" and "unfinished" not in str(head["probe"])
    assert probe("compare", tmp_path / "a", tmp_path / "b", "-o", tmp_path / "out") == 0, probe.err
    assert probe.out.startswith("AGREE")
    debugger = {"Module.1.Scaled.forward.0", "Module.0.Linear.backward.0", "Module.5.Linear.parameters_grad"}
    assert debugger <= head["data"].keys()


def test_nothing_is_written_before_an_event_and_bytes_are_bounded(tmp_path: Path) -> None:
    case = Training(1)
    watch = probe_pytorch.watch(1000, case.model, dump_path=tmp_path / "run", keep_memory=1 << 20)
    for step in range(60):
        with watch:
            case.run(step)
        assert watch.byte_count <= 1 << 20
    watch.finish()
    assert not list(tmp_path.iterdir()) and not watch.events
    assert watch._recorder.keeper.dropped_for_memory


def test_an_exception_is_raised_unchanged_and_writes_the_step(tmp_path: Path, capfd: Any) -> None:
    case = Training(1)
    watch = probe_pytorch.watch(2, case.model, dump_path=tmp_path / "run")
    error = ZeroDivisionError("of the script")

    def fail(step: int) -> None:
        case.model(torch.ones(2, 6))
        if step == 4:
            raise error

    for step in range(4):
        watch.step(fail, step)
    with pytest.raises(ZeroDivisionError) as caught:
        watch.step(fail, 4)
    assert caught.value is error and error.__cause__ is None and error.__context__ is None
    with pytest.raises(KeyError), watch:
        raise KeyError("another")
    watch.step(fail, 5)
    watch.finish()
    assert [event.trigger.name for event in watch.events] == ["ZeroDivisionError", "KeyError"]
    assert sorted(path.name for path in (tmp_path / "run").glob("step*")) == ["step3", "step4", "step5"]
    data = json.loads((tmp_path / "run/step4/rank/dump.json").read_text())["data"]
    assert "Module.0.Linear.forward.0" in data
    assert "ZeroDivisionError was raised in step 4" in capfd.readouterr().err


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(0), SystemExit()])
def test_an_interrupt_and_an_ordinary_exit_are_no_events(error: BaseException, tmp_path: Path) -> None:
    watch = probe_pytorch.watch(2, dump_path=tmp_path / "run")
    with pytest.raises(type(error)), watch:
        raise error
    watch.finish()
    assert not watch.events and not list(tmp_path.iterdir())


def test_an_earlier_recording_is_moved_away(tmp_path: Path) -> None:
    for _ in range(2):
        watched(Training(3), tmp_path / "run", 6, 4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "run.1"]
    assert (tmp_path / "run.1/step4/rank/watch.json").exists()


def test_two_watches_of_one_directory_write_next_to_each_other(tmp_path: Path, capfd: Any) -> None:
    first = probe_pytorch.watch(1, dump_path=tmp_path / "run")
    with pytest.raises(ValueError, match="planted"), first:
        nn.Sequential(nn.Linear(2, 2))(torch.ones(2, 2))
        raise ValueError("planted")
    assert first._recorder._sessions.claim.is_made
    watched(Training(3), tmp_path / "run", 3, 1)
    first.finish()
    others = [path for path in tmp_path.iterdir() if path.name.startswith("run-")]
    assert len(others) == 1 and (others[0] / "step1/rank/watch.json").exists()
    assert "is in use" in capfd.readouterr().err


def test_a_directory_that_cannot_be_written_is_reported_and_the_training_goes_on(tmp_path: Path, capfd: Any) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        probe_pytorch.watch(2, dump_path=tmp_path / "file" / "run")
    watch = probe_pytorch.watch(2, dump_path=tmp_path / "late")
    for name in ("late", f"late-{os.getpid()}"):
        (tmp_path / name).write_text("")
    case = Training(1)
    with watch:
        case.run(0)
        watch.loss(math.nan)
    with watch:
        case.run(1)
    watch.finish()
    assert not watch._recorder.is_complete and watch._recorder.keeper.step_count == 2


def test_models_are_found_when_they_are_called(tmp_path: Path) -> None:
    case = Training(1)
    watch = probe_pytorch.watch(2, dump_path=tmp_path / "run")
    with watch:
        case.run(0)
        watch.loss(math.nan)
    watch.finish()
    data = json.loads((tmp_path / "run/step0/rank/dump.json").read_text())["data"]
    assert "Module.1.Scaled.forward.0" in data


def test_a_model_without_modules_is_observed_by_its_phases(tmp_path: Path) -> None:
    model = nn.Linear(4, 2)
    watch = probe_pytorch.watch(2, model, dump_path=tmp_path / "run")
    for step in range(3):
        with watch:
            model(torch.full((3, 4), math.nan if step == 2 else 1.0)).square().mean().backward()
    watch.finish()
    (event,) = watch.events
    assert event.rise is not None and event.rise.name.kind.value == "data" and event.steps == (1, 2)
    assert (tmp_path / "run/step2/rank/step_phases.json").exists()


def test_a_gradient_scaler_that_skips_steps_is_no_event(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    try:
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20, growth_interval=10)
    except AttributeError:
        pytest.skip("this torch has no GradScaler for the CPU")
    watch = probe_pytorch.watch(3, model, dump_path=tmp_path / "run")
    scales = set()
    for step in range(80):
        with watch:
            with torch.autocast("cpu", torch.float16):
                loss = (model(torch.randn(8, 8)) * 100).float().square().mean()
            if step == 70:
                loss = loss * 1e4
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        scales.add(scaler.get_scale())
    watch.finish()
    assert len(scales) > 5  # the scale was halved and doubled
    assert [event.trigger.step for event in watch.events] == [70]


def test_two_losses_have_a_band_each(tmp_path: Path) -> None:
    generator, critic = nn.Linear(4, 4), nn.Linear(4, 1)
    optimizers = [torch.optim.Adam(model.parameters()) for model in (critic, generator)]
    watch = probe_pytorch.watch(3, [generator, critic], dump_path=tmp_path / "run")
    for step in range(60):
        with watch:
            noise = torch.randn(8, 4)
            loss = critic(torch.randn(8, 4)).square().mean() - critic(generator(noise).detach()).mean()
            for optimizer in optimizers:
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                loss = critic(generator(noise)).mean() * (1e4 if step == 55 else 1)
    watch.finish()
    (event,) = watch.events
    assert event.trigger.step == 55 and event.rise is not None
    assert (event.rise.name.phase, event.rise.name.number) == ("loss", 1)


# -- running a step again ----------------------------------------------------------------------


class Case:
    """A training whose step draws from all generators and changes its batch."""

    def __init__(self) -> None:
        training.seed(3)
        self.model = nn.Sequential(
            nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.ReLU(inplace=True), nn.Linear(8, 2)
        )
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2, amsgrad=True)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 2)
        self.losses: list[float] = []
        self.watch: probe_pytorch.Watch | None = None

    def step(self, batch: dict[str, torch.Tensor], number: int, fails: bool = False) -> float:
        batch["x"].mul_(1 + random.random()).add_(float(np.random.rand()))
        with torch.autocast("cpu", torch.bfloat16):
            output = self.model(batch["x"])
        loss = output.float().square().mean()
        loss.backward()
        if number % 2:  # gradients of two steps are accumulated
            self.optimizer.step()
            self.optimizer.zero_grad()
        self.scheduler.step()
        if fails:
            raise ValueError("planted")
        if self.watch is not None and number in (3, 8):
            self.watch.loss(math.nan)
        return loss.item()

    def run(self, watch: probe_pytorch.Watch | None) -> dict[str, str]:
        generator = torch.Generator().manual_seed(4)
        self.watch = watch
        for number in range(12):
            batch = {"x": torch.randn(5, 6, generator=generator)}
            if watch is None:
                self.losses.append(self.step(batch, number))
            else:
                self.losses.append(watch.step(self.step, batch, number))
            self.losses.append(batch["x"].sum().item())
        values = {name: training.digest(value) for name, value in self.model.state_dict().items()}
        for name, parameter in self.model.named_parameters():
            values[f"grad {name}"] = training.digest(parameter.grad)
            for key, value in self.optimizer.state[parameter].items():
                values[f"{key} {name}"] = training.digest(value)
        return {
            **values,
            **training.random_states(),
            "losses": repr(self.losses),
            "lr": repr(self.optimizer.param_groups[0]["lr"]),
            "scheduler": repr(self.scheduler.state_dict()),
        }


def test_a_step_that_runs_again_leaves_the_training_bit_equal(tmp_path: Path, capfd: Any) -> None:
    expected = Case().run(None)
    case = Case()
    place = tmp_path / "run"
    watch = probe_pytorch.watch(2, case.model, case.optimizer, dump_path=place, rerun=True, state=[case.scheduler])
    assert case.run(watch) == expected
    watch.finish()
    assert len(watch.events) == 2
    for step in (3, 8):
        kept = json.loads((place / f"step{step}/rank/dump.json").read_text())["data"]
        again = json.loads((place / f"rerun/step{step}/rank/dump.json").read_text())
        assert again["task"] == "tensor" and (place / f"rerun/step{step}/rank/dump_tensor_data").is_dir()
        for name in kept.keys() & again["data"].keys():  # the same step, to the bit
            for side in ("input_args", "output"):
                for one, other in zip(kept[name].get(side, []), again["data"][name].get(side, [])):
                    if one is not None:
                        assert {key: other[key] for key in one} == one, name
    assert "step 3 ran again" in capfd.readouterr().err


def test_a_step_that_raised_runs_again(tmp_path: Path) -> None:
    case = Case()
    watch = probe_pytorch.watch(2, case.model, case.optimizer, dump_path=tmp_path / "run", rerun=True)
    batch = {"x": torch.randn(5, 6)}
    with pytest.raises(ValueError, match="planted"):
        watch.step(case.step, batch, 0, fails=True)
    gradients = [training.digest(parameter.grad) for parameter in case.model.parameters()]
    assert all(gradient != "None" for gradient in gradients)
    watch.finish()
    assert (tmp_path / "run/rerun/step0/rank/dump.json").exists()


def test_rerun_counts_its_snapshot_and_refuses_one_that_is_too_large(tmp_path: Path) -> None:
    model = nn.Linear(600, 600)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = probe_pytorch.watch(2, model, optimizer, dump_path=tmp_path / "run", rerun=True, keep_memory=1 << 20)
    with pytest.raises(UserError, match="A snapshot of the training takes 1,4"):
        watch.step(model, torch.ones(1, 600))
    watch.finish()
    small = nn.Linear(100, 100)
    watch = probe_pytorch.watch(
        2, small, torch.optim.SGD(small.parameters(), lr=0.1), dump_path=tmp_path / "run", rerun=True
    )
    watch.step(small, torch.ones(1, 100))
    assert watch.byte_count >= 4 * (100 * 100 + 100 + 100)
    watch.finish()


class Unrestorable:
    """An object whose state cannot be restored."""

    def state_dict(self) -> dict[str, int]:
        return {}

    def load_state_dict(self, state: dict[str, int]) -> None:
        raise RuntimeError("no way back")


def test_a_state_that_cannot_be_restored_does_not_end_the_training(tmp_path: Path, capfd: Any) -> None:
    case = Case()
    watch = probe_pytorch.watch(
        2, case.model, case.optimizer, dump_path=tmp_path / "run", rerun=True, state=[Unrestorable()]
    )
    case.watch = watch
    expected = Case()
    batch = torch.ones(5, 6)
    for each, step in ((case, watch.step), (expected, None)):
        training.seed(5)
        arguments: Any = ({"x": batch.clone()}, 3)
        each.losses.append(step(each.step, *arguments) if step else each.step(*arguments))
        each.losses.append(torch.randn(()).item() + random.random())
    assert case.losses == expected.losses
    watch.finish()
    assert "cannot run again: RuntimeError: no way back" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rerun": True}, "rerun=True needs the model and the optimizer"),
        ({"rerun": "yes"}, "rerun must be True or False"),
        ({"state": [1]}, "state has no effect without rerun=True"),
        ({"model": 3}, "model must be a torch.nn.Module"),
        ({"optimizer": [3]}, "optimizer must be a torch.optim.Optimizer"),
        ({"level": "L2"}, "statistics at level L0, L1 or mix"),
        ({"level": "L7"}, "level"),
        ({"keep_last": -1}, "keep_last must be a whole number"),
        ({"signal": "STOP"}, "no program can handle it"),
        ({"dump_path": "a b"}, "character"),
    ],
)
def test_invalid_arguments_are_one_sentence(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        probe_pytorch.watch(**arguments)


def test_start_is_refused_with_rerun(tmp_path: Path) -> None:
    case = Case()
    watch = probe_pytorch.watch(2, case.model, case.optimizer, dump_path=tmp_path / "run", rerun=True)
    with pytest.raises(UserError, match="needs a step function"):
        watch.start()
    with pytest.raises(UserError, match="state_dict"):
        probe_pytorch.watch(2, case.model, case.optimizer, rerun=True, state=[3])
    watch.finish()
