"""The watch of a MindSpore training: it changes nothing, and names what rose first."""

from __future__ import annotations

import json
import math
import os
import random
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

import probe_mindspore  # noqa: E402
from mindspore import Tensor, nn, ops  # noqa: E402
from mindspore.ops import composite  # noqa: E402
from mindspore.ops.function import clip_func  # noqa: E402
from probe_mindspore import compat  # noqa: E402
from probe_recording.keeping.watch import Watch  # noqa: E402
from support.on_mindspore.ms_benchmark import bits  # noqa: E402
from support.on_mindspore.ms_net import Net, batch, training  # noqa: E402
from support.on_mindspore.ms_training import OPTIMIZERS, Training  # noqa: E402

from probe_core.errors import UserError  # noqa: E402

ms.runtime.launch_blocking()
Change = Callable[[Training], None]


def written(place: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("step")) for path in place.glob("step*"))


def scale_inputs(training: Training) -> None:
    training.inputs = 1e3


def scale_targets(training: Training) -> None:
    training.targets = 300


def explode_layer(training: Training) -> None:
    training.layers[1].output_scale = 1e3


def explode_gradient(training: Training) -> None:
    training.layers[1].gradient_scale = 1e4


def spoil_gradient(training: Training) -> None:
    training.layers[1].gradient_scale = math.nan


def spoil_activation(training: Training) -> None:
    training.layers[0].output_scale = math.inf


def spoil_state(training: Training) -> None:
    for parameter in training.optimizer.get_parameters():
        if parameter.name.startswith(("moment1.", "moments.", "exp_avg.")):
            ops.assign(parameter, parameter * 1e6)


def spoil_parameter(training: Training) -> None:
    for layer in training.layers[1:]:
        layer.dense.weight.set_data(layer.dense.weight * 50)


def raise_rate(training: Training) -> None:
    groups = getattr(training.optimizer, "param_groups", None)
    rate = groups[0]["lr"] if groups else training.optimizer.learning_rate
    ops.assign(rate, rate * 3000)


FAULTS: list[tuple[Change, str, int, str]] = [
    (scale_inputs, "data", 0, "input.0"),
    (scale_targets, "loss", 0, "loss.0"),
    (explode_layer, "activation", 0, "Cell.2.Scaled.forward.0"),
    (explode_gradient, "gradient", 0, "0.dense.weight"),
    (spoil_gradient, "gradient", 0, "0.dense.weight"),
    (spoil_activation, "activation", 0, "Cell.0.Scaled.forward.0"),
    (spoil_state, "optimizer_state", 0, "0.dense.weight"),
    (spoil_parameter, "parameter", 0, "2.dense.weight"),
    (raise_rate, "parameter", 1, "0.dense.weight"),
]
"""Each fault with the kind, the delay in steps and the name of what rises first."""


SPIKES = [pytest.param(number, marks=[pytest.mark.slow] if number >= len(FAULTS) else []) for number in range(20)]


@pytest.mark.parametrize("number", SPIKES)
def test_watch_names_what_rose_first(number: int, tmp_path: Path, capfd: Any) -> None:
    change, kind, delay, name = FAULTS[number % len(FAULTS)]
    case = Training(number, list(OPTIMIZERS)[number % len(OPTIMIZERS)])
    step = random.Random(number).randrange(52, 80)
    place = tmp_path / "run"
    watch = probe_mindspore.watch(4, case.model, dump_path=place)
    for at in range(step + 4):
        if at == step:
            change(case)
        with watch:
            case.run(at)
        if watch.events:
            break
    watch.finish()
    (event,) = watch.events
    assert event.trigger.step - step in (0, 1) and event.rise is not None
    rose = event.rise.name
    assert (rose.kind.value, event.rise.step) == (kind, step + delay) and rose.name.endswith(name), rose
    assert (event.change is not None) is (change is raise_rate)
    if event.change is not None:
        assert (event.change.name, event.change.step) == ("lr", step - 1 + delay)
    assert f"in step {event.trigger.step}" in capfd.readouterr().err
    assert written(place) == list(event.steps) and len(event.steps) == 4
    (entry,) = json.loads((place / f"step{event.trigger.step}/rank/watch.json").read_text())["events"]
    assert entry["first"]["kind"] == kind
    assert not list(place.rglob("dump_error_info.log"))


@pytest.mark.parametrize("optimizer", list(OPTIMIZERS))
def test_a_clean_training_is_bit_equal_and_writes_nothing(optimizer: str, tmp_path: Path) -> None:
    def run(watch_of: Callable[[Any], Any]) -> list[Any]:
        case = Training(3, optimizer, clip=1.0)
        watch = watch_of(case.model)
        losses = [watch.step(case.run, number) for number in range(70)]
        watch.finish()
        assert not watch.events
        return bits(losses) + case.bits()

    class Bare:
        events = ()

        def __init__(self, model: Any) -> None:
            pass

        def step(self, function: Any, number: int) -> Any:
            return function(number)

        def finish(self) -> None:
            pass

    plain = run(Bare)
    assert run(lambda model: probe_mindspore.watch(5, model, dump_path=tmp_path / "run")) == plain
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("number", range(20))
def test_a_clean_training_of_1000_steps_writes_nothing(number: int, tmp_path: Path) -> None:
    case = Training(number, list(OPTIMIZERS)[number % len(OPTIMIZERS)], clip=[None, 1.0][number % 2])
    watch = probe_mindspore.watch(10, case.model, dump_path=tmp_path / "run")
    for step in range(1000):
        watch.step(case.run, step)
    watch.finish()
    assert not watch.events and not list(tmp_path.iterdir())


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_training_with_random_numbers_is_bit_equal(level: str, tmp_path: Path) -> None:
    def run(watch: Watch | None = None, net: Any = None) -> list[bytes]:
        ms.set_seed(3)
        dropout, step = nn.Dropout(p=0.3), training(net)
        net.set_train(), dropout.set_train()
        results = []
        for number in range(3):
            x, y = batch(number)
            x = dropout(x) + ops.dropout(x, 0.2)
            loss, output, gradients = watch.step(step, x, y) if watch is not None else step(x, y)
            results += bits([loss, output, gradients, list(net.get_parameters())])
            results += bits([ops.dropout(x, 0.5), ops.standard_normal((3,))])
        return results

    plain = run(net=Net())
    net = Net()
    watch = probe_mindspore.watch(2, net, dump_path=tmp_path / "run", level=level)
    assert run(watch, net) == plain
    watch.finish()
    assert run(net=Net()) == plain  # nothing is left installed


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_all_functions_are_restored(level: str, tmp_path: Path) -> None:
    holders = (ops, clip_func, composite, composite.base, nn.Optimizer, ms.amp.DynamicLossScaler, nn.Momentum)
    before = [dict(vars(holder)) for holder in holders]
    case = Training(1, clip=1.0)
    watch = probe_mindspore.watch(2, case.model, dump_path=tmp_path / "run", level=level)
    for number in range(3):
        watch.step(case.run, number)
        after = [dict(vars(holder)) for holder in holders]
        changed = [
            f"{holder.__name__}.{name}"
            for holder, old, new in zip(holders, before, after)
            for name in old.keys() | new.keys()
            if old.get(name) is not new.get(name)
        ]
        assert changed == []
    watch.finish()


def test_the_phases_of_a_step_are_written(tmp_path: Path) -> None:
    net = Net()
    step = training(net)
    watch = probe_mindspore.watch(2, net, dump_path=tmp_path / "run", level="mix")
    for number in range(3):
        with watch:
            step(*batch(number))
            if number == 2:
                watch.loss(Tensor(math.nan))
    watch.finish()
    directory = tmp_path / "run/step2/rank"
    files = sorted(path.name for path in directory.iterdir())
    assert files == [
        "conditions.json", "construct.json", "dump.json", "stack.json", "step_phases.json", "watch.json",
    ]  # fmt: skip
    content = json.loads((directory / "step_phases.json").read_text())
    step_phases = {step_phase["phase"]: step_phase for step_phase in content["phases"]}
    assert list(step_phases) == [
        "batch", "frozen", "forward", "loss", "gradient", "settings", "applied", "parameters_before",
        "state_before", "parameters_after", "state_after",
    ]  # fmt: skip
    assert content["framework"] == "mindspore" and content["not_captured"] == {}
    assert list(step_phases["frozen"]["values"]) == ["bn.moving_mean", "bn.moving_variance"]
    (group,) = step_phases["settings"]["facts"]["groups"]
    assert group["settings"]["lr"] == pytest.approx(0.01) and "conv.weight" in group["parameters"]
    assert "moment1.conv.weight" in step_phases["state_before"]["values"]
    assert step_phases["gradient"]["values"]["conv.weight"] == step_phases["applied"]["values"]["conv.weight"]
    assert step_phases["loss"]["values"]["loss.0"]["shape"] == []
    content = json.loads((tmp_path / "run/step1/rank/step_phases.json").read_text())
    last = {step_phase["phase"]: step_phase["values"] for step_phase in content["phases"]}
    for name in ("parameters", "state"):
        assert last[f"{name}_before"] != last[f"{name}_after"] == step_phases[f"{name}_before"]["values"]
    head = json.loads((directory / "dump.json").read_text())
    assert "Cell.block.Block.forward.0" in head["data"] and "Mint.add.0.forward" in head["data"]


def test_the_norm_before_clipping_and_the_unscaled_loss_are_judged(tmp_path: Path) -> None:
    case = Training(1, clip=0.5)
    scaler = ms.amp.DynamicLossScaler(1024, 2, 1000)
    differentiated = ms.value_and_grad(
        lambda x, y: scaler.scale(ops.mse_loss(case.model(x), y)), None, case.optimizer.parameters
    )

    def step(number: int, factor: float) -> None:
        case.targets = factor
        _, gradients = differentiated(*case.batch(number))
        gradients = ops.clip_by_global_norm(scaler.unscale(gradients), 0.5)
        case.optimizer(gradients)

    watch = probe_mindspore.watch(3, case.model, dump_path=tmp_path / "run")
    for number in range(56):
        watch.step(step, number, 30.0 if number == 55 else 1.0)
    watch.finish()
    (event,) = watch.events
    assert event.trigger.level is not None and event.trigger.level < 10  # not times 1024
    step_phases = json.loads((tmp_path / "run/step55/rank/step_phases.json").read_text())["phases"]
    values = {step_phase["phase"]: step_phase["values"] for step_phase in step_phases}
    assert values["unscaled"]["scale"]["Mean"] == 1024.0
    applied = math.hypot(*(leaf["Norm"] for leaf in values["applied"].values()))
    assert applied == pytest.approx(0.5, rel=1e-3) and values["clipped"]["total_norm"]["value"] > 2


def test_a_skipped_step_of_a_loss_scaler_is_no_event(tmp_path: Path) -> None:
    case = Training(1)
    scaler = ms.amp.DynamicLossScaler(1024, 2, 1000)
    differentiated = ms.value_and_grad(
        lambda x, y: scaler.scale(ops.mse_loss(case.model(x), y)), None, case.optimizer.parameters
    )

    def step(number: int) -> None:
        case.layers[1].gradient_scale = math.inf if number == 3 else 1.0
        _, gradients = differentiated(*case.batch(number))
        gradients = scaler.unscale(gradients)
        if all(np.isfinite(gradient.asnumpy()).all() for gradient in gradients):
            case.optimizer(gradients)

    watch = probe_mindspore.watch(3, case.model, dump_path=tmp_path / "run")
    for number in range(6):
        watch.step(step, number)
    watch.finish()
    assert not watch.events


def test_bytes_are_bounded(tmp_path: Path) -> None:
    case = Training(1)
    watch = probe_mindspore.watch(1000, case.model, dump_path=tmp_path / "run", keep_memory=1 << 20)
    for number in range(60):
        watch.step(case.run, number)
        assert watch.byte_count <= 1 << 20
    watch.finish()
    assert not list(tmp_path.iterdir()) and not watch.events
    assert watch._recorder.keeper.dropped_for_memory


def test_an_exception_is_raised_unchanged_and_writes_the_step(tmp_path: Path, capfd: Any) -> None:
    case = Training(1)
    watch = probe_mindspore.watch(2, case.model, dump_path=tmp_path / "run")
    error = ZeroDivisionError("of the script")

    def fail(number: int) -> None:
        case.run(number)
        if number == 3:
            raise error

    for number in range(3):
        watch.step(fail, number)
    with pytest.raises(ZeroDivisionError) as caught:
        watch.step(fail, 3)
    watch.finish()
    assert caught.value is error and written(tmp_path / "run") == [2, 3]
    assert "ZeroDivisionError was raised in step 3" in capfd.readouterr().err


def test_the_loss_after_an_exception_within_a_pass_is_observed(tmp_path: Path) -> None:
    case = Training(1)
    watch = probe_mindspore.watch(2, case.model, dump_path=tmp_path / "run")

    def fail(x: Tensor) -> Tensor:
        raise ValueError("planted")

    with pytest.raises(ValueError, match="planted"), watch:
        ms.grad(fail)(Tensor(1.0))
    second = probe_mindspore.watch(2, case.model, dump_path=tmp_path / "second")
    with watch, second:
        case.run(1)
        second.loss(math.nan)
    watch.finish()
    second.finish()
    step_phases = json.loads((tmp_path / "second/step0/rank/step_phases.json").read_text())["phases"]
    assert {"loss", "gradient", "applied"} <= {step_phase["phase"] for step_phase in step_phases}
    assert compat.is_differentiating()  # MindSpore goes on after the exception
    ms.graph.api._pynative_executor.clear_res()
    assert not compat.is_differentiating()


def test_groups_and_schedules_of_optimizers_are_settings(tmp_path: Path) -> None:
    case = Training(1)
    parameters = list(case.model.trainable_params())
    rates = nn.cosine_decay_lr(0.0, 0.1, 10, 5, 2)
    groups = [{"params": parameters[:1], "lr": 0.01}, {"params": parameters[1:]}]
    for name, optimizer in (
        ("groups", nn.Adam(groups, learning_rate=0.002)),
        ("schedule", nn.Momentum(parameters, rates, 0.9)),
    ):
        case.optimizer = optimizer
        watch = probe_mindspore.watch(6, case.model, dump_path=tmp_path / name)
        for number in range(6):
            with watch:
                case.run(number)
                if number == 5:
                    watch.loss(math.nan)
        watch.finish()
    settings = {
        (name, step): [group["settings"]["lr"] for group in step_phase["facts"]["groups"]]
        for name in ("groups", "schedule")
        for step in range(6)
        for step_phase in json.loads((tmp_path / f"{name}/step{step}/rank/step_phases.json").read_text())["phases"]
        if step_phase["phase"] == "settings"
    }
    assert settings["groups", 5] == pytest.approx([0.01, *[0.002] * 5])
    assert [settings["schedule", step] for step in range(6)] == [pytest.approx([rate]) for rate in rates[:6]]


def test_a_train_cell_is_observed(tmp_path: Path) -> None:
    case = Training(1)
    cell = nn.TrainOneStepCell(nn.WithLossCell(case.model, nn.MSELoss()), case.optimizer, sens=8.0)
    watch = probe_mindspore.watch(3, cell, dump_path=tmp_path / "run")
    for number in range(56):
        case.targets = 1000 if number == 55 else 1.0
        watch.step(cell, *case.batch(number))
    watch.finish()
    (event,) = watch.events
    assert event.trigger.step == 55 and event.rise is not None and event.rise.name.kind.value == "data"


def test_a_signal_writes_the_steps(tmp_path: Path, capfd: Any) -> None:
    case = Training(1)
    received: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: received.append(number))
    try:
        watch = probe_mindspore.watch(2, case.model, dump_path=tmp_path / "run", signal="USR1")
        for number in range(4):
            with watch:
                case.run(number)
                if number == 2:
                    os.kill(os.getpid(), signal.SIGUSR1)
        watch.finish()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert received == [signal.SIGUSR1] and written(tmp_path / "run") == [0, 1, 2]
    assert "signal SIGUSR1 arrived in step 2" in capfd.readouterr().err


def test_kept_runs_can_be_compared(tmp_path: Path, probe: Any) -> None:
    for place in ("a", "b"):
        case = Training(2)
        watch = probe_mindspore.watch(2, case.model, dump_path=tmp_path / place)
        for number in range(3):
            with watch:
                case.run(number)
                if number == 2:
                    watch.loss(math.nan)
        watch.finish()
    assert probe("compare", tmp_path / "a", tmp_path / "b", "-o", tmp_path / "out") == 0, probe.err
    assert probe.out.startswith("AGREE")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rerun": True}, "rerun=True is not possible with MindSpore"),
        ({"rerun": "yes"}, "rerun must be True or False"),
        ({"model": None}, "Level L0 needs the model"),
        ({"model": 3}, "model must be a mindspore.nn.Cell"),
        ({"level": "L2"}, "statistics at level L0, L1 or mix"),
        ({"keep_last": 0}, "keep_last must be a whole number"),
        ({"signal": "KILL"}, "no program can handle it"),
    ],
)
def test_invalid_arguments_are_one_sentence(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        probe_mindspore.watch(**{"model": nn.ReLU(), **arguments})


def test_random_states_of_kernels_cannot_be_restored() -> None:
    """It is the reason why ``rerun`` is refused."""
    x, dropout = Tensor(np.ones(64, np.float32)), nn.Dropout(p=0.5)
    dropout.set_train()
    for draw in (lambda: dropout(x), lambda: ops.standard_normal((64,))):
        ms.set_seed(1)
        state = ms.get_rng_state()
        first = bits(draw())
        ms.set_rng_state(state)
        assert bits(draw()) != first
    ms.set_seed(1)
    first = bits(dropout(x))
    ms.set_seed(1)
    assert bits(dropout(x)) != first


def test_the_code_of_the_page_writes_the_steps_before_a_nan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[4] / "docs" / "watch.md").read_text("utf-8")
    codes = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (code,) = [code for code in codes if "probe_mindspore.watch(" in code]
    net = nn.SequentialCell(nn.Dense(4, 3), nn.ReLU())
    inputs = [np.ones((2, 4), np.float32), np.full((2, 4), math.nan, np.float32)]
    known: dict[str, Any] = {
        "mindspore": ms, "net": net, "optimizer": nn.Momentum(net.trainable_params(), 0.1, 0.9),
        "loss_of": lambda x, y: ops.mse_loss(net(x), y),
        "loader": [(Tensor(each), Tensor(np.ones((2, 3), np.float32))) for each in inputs],
    }  # fmt: skip
    exec(compile(code, "watch.md", "exec"), known)
    known["watch"].finish()
    (event,) = json.loads((tmp_path / "probe-watch/step1/rank/watch.json").read_text())["events"]
    assert event["first"]["kind"] == "data" and event["steps"] == [0, 1]


def test_graph_mode_is_refused() -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    try:
        with pytest.raises(UserError, match="cannot be observed in GRAPH_MODE"):
            probe_mindspore.watch(3, nn.ReLU())
    finally:
        ms.set_context(mode=ms.PYNATIVE_MODE)
