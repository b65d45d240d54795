"""The phases of a training step in ``step_phases.json``."""

from __future__ import annotations

import gc
import importlib
import json
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from support.runs.recording import Recording, recording
from torch import nn
from torch.nn import functional as F

STEP = [
    "batch", "buffers_before", "forward", "loss", "gradient", "settings", "applied", "parameters_before",
    "parameters_after", "state_after", "buffers",
]  # fmt: skip


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))


def loss_of(model: nn.Module, seed: int = 1) -> torch.Tensor:
    return model(torch.randn(6, 4, generator=torch.Generator().manual_seed(seed))).square().mean()


def read_file(found: Recording, step: int = 0) -> dict[str, Any]:
    return json.loads((found.directory(step) / "step_phases.json").read_text())


def step_phases(found: Recording, phase: str, step: int = 0) -> list[dict[str, Any]]:
    return [step_phase for step_phase in read_file(found, step)["phases"] if step_phase["phase"] == phase]


def norms(step_phase: dict[str, Any]) -> dict[str, float]:
    return {name: leaf["Norm"] for name, leaf in step_phase["values"].items() if leaf is not None}


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_the_phases_of_a_step_in_their_order(tmp_path: Path, level: str) -> None:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    with recording(tmp_path / "run", level=level) as found:
        for step in range(2):
            found.start(model)
            loss = loss_of(model)
            loss.backward()
            gradients = {name: float(p.grad.norm()) for name, p in model.named_parameters() if p.grad is not None}
            before = {name: float(p.detach().norm()) for name, p in model.named_parameters()}
            optimizer.step()
            optimizer.zero_grad()
            found.stop()
            found.step()
            expected = STEP if not step else [*STEP[:8], "state_before", *STEP[8:]]
            assert [step_phase["phase"] for step_phase in read_file(found, step)["phases"]] == expected
            assert step_phases(found, "loss", step)[0]["values"]["loss.0"]["Max"] == loss.item()
            for phase in ("gradient", "applied"):
                assert norms(step_phases(found, phase, step)[0]) == pytest.approx(gradients)
            assert norms(step_phases(found, "parameters_before", step)[0]) == pytest.approx(before)
            after = {name: float(p.detach().norm()) for name, p in model.named_parameters()}
            assert norms(step_phases(found, "parameters_after", step)[0]) == pytest.approx(after)
            settings = step_phases(found, "settings", step)[0]
            assert settings["facts"]["optimizer"] == "AdamW"
            (group,) = settings["facts"]["groups"]
            assert (group["settings"]["lr"], group["parameters"]) == (0.01, list(gradients))
            assert "optimizer.step()" in settings["stack"][0]
            assert "loss.backward()" in step_phases(found, "loss", step)[0]["stack"][0]
            assert "1.running_mean" in step_phases(found, "buffers", step)[0]["values"]
            assert not read_file(found, step)["not_captured"]


def test_gradients_that_are_added_to_earlier_ones(tmp_path: Path) -> None:
    model = net()
    with recording(tmp_path / "run", level="L1") as found:
        found.start(model)
        loss_of(model).backward()
        loss_of(model, 2).backward()
        sums = {name: float(p.grad.norm()) for name, p in model.named_parameters() if p.grad is not None}
        found.stop()
        assert [len(step_phase["values"]) for step_phase in step_phases(found, "gradient")] == [6, 6]
        (accumulated,) = step_phases(found, "accumulated")
        assert norms(accumulated) == pytest.approx(sums)
        assert norms(step_phases(found, "gradient")[1]) != pytest.approx(sums)


def test_clipping_and_unscaling(tmp_path: Path) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0) if hasattr(torch.amp, "GradScaler") else None
    if scaler is None:
        pytest.skip("gradients are scaled on GPUs only")
    with recording(tmp_path / "run", level="mix") as found:
        found.start(model)
        scaler.scale(loss_of(model)).backward()
        scaler.unscale_(optimizer)
        total = nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        scaler.step(optimizer)
        scaler.update()
        found.stop()
        phases = [step_phase["phase"] for step_phase in read_file(found)["phases"]]
        assert phases.index("gradient") < phases.index("unscaled") < phases.index("clipped") < phases.index("applied")
        assert step_phases(found, "unscaled")[0]["values"]["scale"]["value"] == 1024.0
        (clipped,) = step_phases(found, "clipped")
        assert clipped["facts"] == {"function": "clip_grad_norm_", "max_norm": 1e-3}
        assert norms(clipped) == pytest.approx({"total_norm": float(total)})
        assert "clip_grad_norm_(model" in clipped["stack"][0]
        applied = norms(step_phases(found, "applied")[0])
        assert sum(norm**2 for norm in applied.values()) ** 0.5 == pytest.approx(1e-3, rel=1e-2)


def test_phases_after_stop_are_listed(tmp_path: Path) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with recording(tmp_path / "run", level="L0") as found:
        found.start(model)
        loss_of(model).backward()
        found.stop()
        optimizer.step()
        found.step()
        missing = read_file(found)["not_captured"]
        assert set(missing) == {"settings", "applied", "parameters_before", "parameters_after", "state_after"}
        assert len(set(missing.values())) == 1
        assert "no optimizer stepped" in missing["settings"]


def test_without_a_model_the_optimizer_is_seen(tmp_path: Path) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with recording(tmp_path / "run", level="L1") as found:
        found.start()
        loss_of(model).backward()
        optimizer.step()
        found.stop()
        assert set(norms(step_phases(found, "applied")[0])) == {f"group0.{number}" for number in range(6)}
        assert set(read_file(found)["not_captured"]) == {"batch", "forward", "gradient"}


def test_updates_that_bfloat16_loses_are_counted(tmp_path: Path) -> None:
    shares = []
    for name, dtype in (("low", torch.bfloat16), ("high", torch.float32)):
        parameter = nn.Parameter(torch.ones(1000, dtype=dtype))
        optimizer = torch.optim.SGD([parameter], lr=1e-4)
        with recording(tmp_path / name, level="L1") as found:
            found.start()
            parameter.sum().backward()
            optimizer.step()
            found.stop()
            (pair,) = step_phases(found, "parameters_after")[0]["facts"]["unchanged"].values()
            shares.append(pair)
    assert shares[0] == [shares[0][1], shares[0][1]]
    assert shares[1] == [0, shares[0][1]]
    assert 200 < shares[0][1] < 400


def test_a_large_state_is_measured_in_parts(tmp_path: Path) -> None:
    parameter = nn.Parameter(torch.ones(300, 200))
    optimizer = torch.optim.SGD([parameter], lr=0.1, momentum=0.9)
    with recording(tmp_path / "run", level="L1") as found:
        found.start()
        (parameter * torch.arange(200.0)).sum().backward()
        optimizer.step()
        found.stop()
    state = step_phases(found, "state_after")[0]["values"]["group0.0.momentum_buffer"]
    assert state["shape"] == [16, 2048]
    assert step_phases(found, "applied")[0]["values"]["group0.0"]["shape"] == [300, 200]
    assert (state["Max"], state["Min"]) == (199.0, 0.0)


def test_it_can_be_turned_off(tmp_path: Path) -> None:
    model = net()
    with recording(tmp_path / "run", level="mix", step_phases=False) as found:
        found.start(model)
        loss_of(model).backward()
        found.stop()
    assert not (found.directory() / "step_phases.json").exists()


def test_a_later_recording_replaces_it(tmp_path: Path) -> None:
    for fields in ({}, {"step_phases": False}):
        with recording(tmp_path / "run", level="L0", **fields) as found:
            found.start(net())
            found.stop()
    assert not (found.directory() / "step_phases.json").exists()


def test_nothing_is_left_and_nothing_is_kept(tmp_path: Path) -> None:
    functions = torch.autograd.backward, nn.utils.clip_grad_norm_, nn.utils.clip_grad.clip_grad_value_
    optimizers = importlib.import_module("torch.optim.optimizer")
    hooks = len(optimizers._global_optimizer_pre_hooks)
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    with recording(tmp_path / "run", level="L1") as found:
        found.start(model)
        batch = torch.randn(6, 4)
        loss = F.mse_loss(model(batch), torch.zeros(6, 2))
        held = [weakref.ref(batch), weakref.ref(loss), weakref.ref(model[0].weight)]
        loss.backward()
        held.append(weakref.ref(model[0].weight.grad))
        optimizer.step()
        optimizer.zero_grad()
        del batch, loss
        gc.collect()
        assert [one() is None for one in held] == [True, True, False, True]
        found.stop()
        assert (
            torch.autograd.backward,
            nn.utils.clip_grad_norm_,
            nn.utils.clip_grad.clip_grad_value_,
        ) == functions
        assert not model._forward_pre_hooks
        assert not model._forward_hooks
        assert not model[0].weight._backward_hooks
        found.debugger._model = None  # which start() was given
        del model, optimizer
        gc.collect()
        assert held[2]() is None
    assert len(optimizers._global_optimizer_pre_hooks) == hooks


def test_an_optimizer_that_raises_leaves_the_next_step_intact(tmp_path: Path) -> None:
    model = net()

    class Failing(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            raise ZeroDivisionError

    with recording(tmp_path / "run", level="L1") as found:
        found.start(model)
        loss_of(model).backward()
        with pytest.raises(ZeroDivisionError):
            Failing(model.parameters(), lr=0.1).step()
        torch.optim.SGD(model.parameters(), lr=0.1).step()
        found.stop()
        assert [step_phase["facts"]["optimizer"] for step_phase in step_phases(found, "applied")] == ["Failing", "SGD"]
        assert [step_phase["facts"]["optimizer"] for step_phase in step_phases(found, "parameters_after")] == ["SGD"]


class Doubled(torch.autograd.Function):
    """A function whose backward pass calls functions of torch."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.chunk(2)[0].repeat(2, 1)


def test_calls_inside_the_backward_pass_stay_on_record(tmp_path: Path) -> None:
    model = net()
    with recording(tmp_path / "run", level="mix") as found:
        found.start(model)
        Doubled.apply(model(torch.ones(6, 4))).sum().backward()
        found.stop()
        found.step()
    called = json.loads((found.directory(0) / "dump.json").read_text())["data"]
    assert {"Tensor.chunk.0.forward", "Tensor.repeat.0.forward"} <= called.keys()
