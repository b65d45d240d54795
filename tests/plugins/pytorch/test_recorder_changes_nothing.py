"""The recorder changes nothing of a program, and holds nothing."""

from __future__ import annotations

import gc
import itertools
import random
import signal
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.programs.training import raw
from support.runs.recording import recording
from support.runs.survivals import (
    LEVELS,
    PLAIN_TASKS,
    alone,  # noqa: F401
    hooks_of,
    modes,
    net,
    step_of,
)
from support.sampling import sampled
from torch import Tensor, nn
from torch.nn import functional as F

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*(beta|prototype|deprecated|requires_grad=True):UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
]
# -- what the recorder must not change ------------------------------------------------------------


def settings() -> dict[str, object]:
    """Return the settings of torch and Python."""
    kind, keys, *rest = np.random.get_state()
    return {
        "torch": raw(torch.get_rng_state()),
        "python": random.getstate(),
        "numpy": (kind, keys.tobytes(), rest),
        "dtype": torch.get_default_dtype(),
        "device": torch.empty(0).device,
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "autocast": torch.is_autocast_cpu_enabled(),
        "threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "anomaly": torch.is_anomaly_enabled(),
        "alarm": signal.getsignal(signal.SIGINT),
        "recursion": sys.getrecursionlimit(),
        "trace": (sys.gettrace(), sys.getprofile()),
    }


@pytest.mark.parametrize("task", [*PLAIN_TASKS, "structure", "overflow_check"])
@pytest.mark.parametrize("level", LEVELS)
def test_no_setting_is_changed(tmp_path: Path, level: str, task: str) -> None:
    if task == "structure" and level not in ("L0", "mix"):
        pytest.skip("there is no such recording")
    model = net()
    before = settings()
    with recording(tmp_path / "run", level=level, task=task) as found:
        found.start(model)
        step_of(model, torch.ones(3, 4))
        assert settings() == before
        found.stop()
        found.step()
        assert settings() == before
    assert settings() == before


def test_dropout_draws_the_same_numbers(tmp_path: Path) -> None:
    drawn = []
    for level in (None, *LEVELS):
        torch.manual_seed(5)
        if level is None:
            drawn.append(raw(F.dropout(torch.ones(64)) + torch.randn(64)))
            continue
        with recording(tmp_path / level, level=level, task="tensor") as found:
            found.start(nn.Sequential(nn.Dropout()))
            drawn.append(raw(F.dropout(torch.ones(64)) + torch.randn(64)))
            found.stop()
    assert len(set(drawn)) == 1


def names_of_torch() -> dict[str, Any]:
    """Return the objects that the names of torch stand for."""
    holders = {"torch": torch, "F": F, "Tensor": Tensor, "nn": nn, "VF": torch._VF, "ops": torch._C._nn}
    found = {f"{holder}.{name}": value for holder, space in holders.items() for name, value in vars(space).items()}
    found |= {f"Module.{name}": value for name, value in vars(nn.Module).items()}
    return found


def names_of_distributed() -> dict[str, Any]:
    return dict(vars(torch.distributed))


@pytest.mark.parametrize("task", [*PLAIN_TASKS, "structure", "overflow_check"])
@pytest.mark.parametrize("level", LEVELS)
def test_nothing_is_left_after_stop(tmp_path: Path, level: str, task: str) -> None:
    if task == "structure" and level not in ("L0", "mix"):
        pytest.skip("there is no such recording")
    model = net()
    handles = [
        model.head.register_forward_hook(lambda *_: None),
        model.head.register_full_backward_hook(lambda *_: None),
        model.head.weight.register_hook(lambda gradient: None),
    ]
    hooks, distributed = hooks_of(model), names_of_distributed()
    with recording(tmp_path / "run", level=level, task=task) as found:
        for _ in range(2):
            found.start(model)
            step_of(model, torch.randn(3, 4))
            found.stop()
            assert hooks_of(model) == hooks
            assert modes() == (0, 0)
            now = names_of_distributed()
            assert [name for name in distributed if now[name] is not distributed[name]] == []
            found.step()
    for handle in handles:
        handle.remove()


@pytest.mark.parametrize("level", LEVELS)
def test_the_names_of_torch_stand_for_what_they_did(tmp_path: Path, level: str) -> None:
    with recording(tmp_path / "warm", level=level) as found:  # what is imported on the way is imported now
        found.start(net())
        found.stop()
    before = names_of_torch()
    gelu, relu = F.gelu, torch.relu
    with recording(tmp_path / "run", level=level) as found:
        found.start(net())
        now = names_of_torch()
        assert [name for name in before if now.get(name) is not before[name]] == []
        assert F.gelu is gelu and torch.relu is relu and Tensor.__getitem__ is Tensor.__getitem__
        found.stop()
    now = names_of_torch()
    assert [name for name in before if now.get(name) is not before[name]] == []


# -- what the questions of the FAQ were about ----------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_what_users_of_msprobe_had_to_take_out_of_the_list(tmp_path: Path, level: str) -> None:
    class Mlp(nn.Module):
        def __init__(self, activation: Callable[[Tensor], Tensor]) -> None:
            super().__init__()
            assert activation is F.gelu, "activation_func must be F.gelu"
            self.activation = activation

        def forward(self, x: Tensor) -> Tensor:
            assert self.activation == F.gelu
            return self.activation(x)

    def work() -> list[bytes]:
        x = torch.arange(12.0).reshape(3, 4)
        index = torch.tensor([0, 2])
        values = [
            Mlp(F.gelu)(x), x[0], x[1, 2], x[..., 1], x[:, None], x[index], x[x > 3], x[-1, ::2], x[True],
            x.as_strided((2, 2), (1, 2)), x.t(), x.transpose(0, 1), x.T, torch.transpose(x, 0, 1), x.mT,
            torch.as_strided(x, (2, 3), (4, 1)), F.gelu(x, approximate="tanh"),
        ]  # fmt: skip
        y = x.clone()
        y[0, 1] = 5
        y[:, 2] = x[:, 0]
        y[index] += 1
        rows = [row.sum() for row in x]
        a, b = x[:2]
        assert len(x) == 3 and 3.0 in x and (x[0] == x[0]).all() and x[0, 0] == 0
        return [raw(value) for value in (*values, y, *rows, a, b)]

    expected = work()
    with recording(tmp_path / "run", level=level, task="tensor") as found:
        found.start(nn.Sequential(nn.ReLU()))
        assert work() == expected
        with pytest.raises(IndexError, match="too many indices"):
            torch.ones(2)[0, 0]
        with pytest.raises(TypeError, match="len\\(\\) of a 0-d tensor"):
            len(torch.tensor(1.0))
        found.stop()


# -- nothing is held ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "level, task", sampled(itertools.product(LEVELS, [*PLAIN_TASKS, "overflow_check"]), 0.5, seed=3)
)
def test_nothing_is_held_once_a_call_is_over(tmp_path: Path, level: str, task: str) -> None:
    model = net()
    more = {"overflow_check": {"overflow_nums": -1}} if task == "overflow_check" else {}
    with recording(tmp_path / "run", level=level, task=task, **more) as found:
        found.start(model)
        x = torch.randn(3, 4, requires_grad=True)
        hidden = model(x)
        y = hidden * 2
        forward = {name: weakref.ref(value) for name, value in {"x": x, "hidden": hidden, "y": y}.items()}
        del x, hidden, y  # never differentiated
        gc.collect()
        assert [name for name, value in forward.items() if value() is not None] == []
        x = torch.randn(3, 4, requires_grad=True)
        hidden = model(x)
        gradients: list[Any] = []
        hidden.register_hook(lambda gradient: gradients.append(weakref.ref(gradient)))
        loss = (hidden * 2).sum()
        loss.backward()
        gradients.append(weakref.ref(x.grad))
        backward = {name: weakref.ref(value) for name, value in {"x": x, "h": hidden, "loss": loss}.items()}
        del x, hidden, loss
        gc.collect()
        assert [name for name, value in backward.items() if value() is not None] == []
        assert [value for value in gradients if value() is not None] == []
        found.stop()


def test_nothing_is_held_of_a_call_that_raised(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1", task="overflow_check") as found:
        found.start()
        x = torch.randn(3, 5)
        held = weakref.ref(x)
        with pytest.raises(RuntimeError):
            F.linear(x, torch.ones(2, 2))
        del x
        gc.collect()
        alive = held() is not None
        found.stop()
    assert not alive
