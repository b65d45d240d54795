"""Faults at steps that nobody knows beforehand are found, and the part of the step that rose first is named."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import probe_pytorch
import pytest
import torch
from support.trainings import Batch, Scaled, Training, restarts, warm_up_and_decay

Change = Callable[[Training, Batch], None]


def scale_inputs(training: Training, batch: Batch) -> None:
    batch.inputs = batch.inputs * 1e3


def scale_targets(training: Training, batch: Batch) -> None:
    batch.targets = batch.targets * 300


def explode_layer(training: Training, batch: Batch) -> None:
    layer = training.model[3]
    assert isinstance(layer, Scaled)
    layer.output_scale = 1e3
    batch.before_update = lambda: setattr(layer, "output_scale", 1.0)


def explode_gradient(training: Training, batch: Batch) -> None:
    layer = training.model[1]
    assert isinstance(layer, Scaled)
    layer.gradient_scale = 1e4
    batch.before_update = lambda: setattr(layer, "gradient_scale", 1.0)


def spoil_gradient(training: Training, batch: Batch) -> None:
    layer = training.model[3]
    assert isinstance(layer, Scaled)
    layer.gradient_scale = float("nan")
    batch.before_update = lambda: setattr(layer, "gradient_scale", 1.0)


def spoil_activation(training: Training, batch: Batch) -> None:
    layer = training.model[1]
    assert isinstance(layer, Scaled)
    layer.output_scale = float("inf")
    batch.before_update = lambda: setattr(layer, "output_scale", 1.0)


def spoil_state(training: Training, batch: Batch) -> None:
    for state in training.optimizer.state.values():
        for key in ("exp_avg", "momentum_buffer", "square_avg"):
            if key in state:
                state[key].mul_(1e6 if key != "square_avg" else 1e-12)


def spoil_parameter(training: Training, batch: Batch) -> None:
    with torch.no_grad():
        training.model[1].linear.weight.mul_(50)
        training.model[5].weight.mul_(50)


def raise_rate(training: Training, batch: Batch) -> None:
    for group in training.optimizer.param_groups:
        group["lr"] *= 3000


FAULTS: list[tuple[Change, str, int, str]] = [
    (scale_inputs, "data", 0, "input.0"),
    (scale_targets, "loss", 0, "loss.0"),
    (explode_layer, "activation", 0, "Module.3.Scaled.forward.0"),
    (explode_gradient, "gradient", 0, "1.linear.bias"),
    (spoil_gradient, "gradient", 0, "3.linear.bias"),
    (spoil_activation, "activation", 0, "Module.1.Scaled.forward.0"),
    (spoil_state, "optimizer_state", 0, "0.weight.exp_avg"),
    (spoil_parameter, "parameter", 0, "1.linear.weight"),
    (raise_rate, "parameter", 1, "0.weight"),
]
"""Each fault with the kind, the delay in steps and the name of what rises first."""


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    """Small tensors need no threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def plant(training: Training, change: Change, step: int, length: int, place: Path) -> probe_pytorch.Watch:
    watch = probe_pytorch.watch(4, training.model, dump_path=place)

    def at(number: int, planted: Training, batch: Batch) -> None:
        if number == step:
            change(planted, batch)

    for number in range(length):
        with watch:
            training.run(number, at)
        if watch.events:
            break
    watch.finish()
    return watch


@pytest.mark.parametrize("number", range(20))
def test_watch_finds_a_spike_at_an_unknown_step(number: int, tmp_path: Path, capfd: Any) -> None:
    chance = random.Random(number)
    change, kind, delay, name = FAULTS[number % len(FAULTS)]
    training = Training(number, "adamw", chance.choice([0.05, 0.3, 1.0]), chance.random() < 0.5)
    step = chance.randrange(60, 110)
    place = tmp_path / "run"
    watch = plant(training, change, step, step + 4, place)
    assert [event.trigger.step - step in (0, 1) for event in watch.events] == [True]
    (event,) = watch.events
    assert event.rise is not None
    assert (event.rise.name.kind.value, event.rise.step, event.rise.name.name) == (kind, step + delay, name)
    is_rate = change is raise_rate
    assert (event.change is not None) is is_rate
    if event.change is not None:
        assert (event.change.name, event.change.step) == ("lr", step)
        assert event.change.value == pytest.approx(3000 * event.change.previous)
    said = capfd.readouterr().err
    assert f"in step {event.trigger.step}" in said and name in said
    (written,) = json.loads((place / f"step{event.trigger.step}/rank/watch.json").read_text())["events"]
    assert written["first"]["kind"] == kind and written["steps"] == list(event.steps)
    assert sorted(path.name for path in place.glob("step*")) == sorted(f"step{one}" for one in event.steps)


def clean_trainings(length: int) -> list[Training]:
    schedules = [lambda _: 1.0, warm_up_and_decay(length), restarts(length // 4)]
    found = []
    for seed in range(20):
        chance = random.Random(seed)
        kind, noise = chance.choice(["adamw", "sgd", "rmsprop"]), chance.choice([0.05, 0.3, 1.0])
        epoch = chance.choice([0, 0, 37, 100])
        found.append(Training(seed, kind, noise, chance.random() < 0.5, chance.choice(schedules), epoch))
    return found


def check_clean(training: Training, length: int, place: Path) -> None:
    watch = probe_pytorch.watch(10, training.model, dump_path=place)
    for number in range(length):
        with watch:
            training.run(number)
    watch.finish()
    assert not watch.events and not place.exists()


@pytest.mark.parametrize("number", [0, 5, 9])
def test_watch_writes_nothing_of_a_clean_run(number: int, tmp_path: Path) -> None:
    check_clean(clean_trainings(200)[number], 200, tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("number", range(20))
def test_watch_writes_nothing_of_a_clean_run_of_1000_steps(number: int, tmp_path: Path) -> None:
    check_clean(clean_trainings(1000)[number], 1000, tmp_path / "run")
