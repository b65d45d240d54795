"""The recorder survives exceptions, and start, stop and step in any order."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.runs.recording import recording
from support.runs.survivals import (
    LEVELS,
    alone,  # noqa: F401
    assert_data_fit,
    hooks_of,
    modes,
    net,
    step_of,
)
from torch import Tensor, nn
from torch.nn import functional as F

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*(beta|prototype|deprecated|requires_grad=True):UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
]
# -- exceptions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_a_step_that_raises_leaves_no_trace_in_the_next(tmp_path: Path, level: str) -> None:
    model, good, bad = net(), torch.randn(3, 4), torch.randn(3, 5)
    with recording(tmp_path / "run", level=level) as found:
        found.start(model)
        step_of(model, good)
        found.stop()
        found.step()
        found.start(model)
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            step_of(model, bad)
        threads = found.debugger._recorder._threads
        assert (threads.modules, threads.running, threads.inside) == ([], [], 0)
        found.stop()
        found.step()
        assert modes() == (0, 0)
        found.start(model)
        step_of(model, good)
        found.stop()
        found.step()
    assert list(found.records(2)) == list(found.records(0))
    assert found.parents(2) == found.parents(0)


@pytest.mark.parametrize("level", ["L1", "mix"])
def test_a_call_that_raised_is_neither_recorded_nor_counted(tmp_path: Path, level: str) -> None:
    model = net()
    with recording(tmp_path / "run", level=level) as found:
        found.start(model)
        with pytest.raises(RuntimeError):
            F.linear(torch.ones(3, 5), torch.ones(2, 2))
        F.linear(torch.ones(3, 5), torch.ones(2, 5))
        found.stop()
    (leaf,) = found.records()["Functional.linear.0.forward"]["output"]
    assert leaf["Max"] == 5.0
    assert list(found.records()) == ["Functional.linear.0.forward"]


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_a_module_that_raised_is_neither_recorded_nor_counted(tmp_path: Path, level: str) -> None:
    model = net()
    with recording(tmp_path / "run", level=level) as found:
        found.start(model)
        with pytest.raises(RuntimeError):
            model(torch.ones(3, 5))
        model(torch.ones(3, 4))
        found.stop()
    names = [name for name in found.records() if "head.Linear" in name or "fc.Linear.forward" in name]
    assert names == [
        "Module.outer.0.fc.Linear.forward.0",
        "Module.head.Linear.forward.0",
        "Module.head.Linear.parameters_grad",
    ]


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_what_the_user_interrupts_is_not_told_as_running(tmp_path: Path, level: str) -> None:
    """KeyboardInterrupt is no Exception: torch then calls no hooks."""

    class Interrupted(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise KeyboardInterrupt

    model = nn.Sequential(nn.Sequential(Interrupted()), nn.ReLU())
    with recording(tmp_path / "run", level=level) as found:
        found.start(model)
        with pytest.raises(KeyboardInterrupt):
            model(torch.ones(2))
        found.stop()
        found.start(model)
        model[1](torch.ones(2))
        found.stop()
    assert found.parents()["Module.1.ReLU.forward.0"] is None


@pytest.mark.parametrize("level", LEVELS)
def test_the_very_exception_of_the_user_arrives(tmp_path: Path, level: str) -> None:
    error = ValueError("mine")

    class Raises(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise error

    with recording(tmp_path / "run", level=level) as found:
        model = nn.Sequential(Raises())
        found.start(model)
        with pytest.raises(ValueError, match="mine") as caught:
            model(torch.ones(2))
        found.stop()
    assert caught.value is error


def test_a_hook_of_the_users_that_raises_in_the_backward_pass(tmp_path: Path) -> None:
    model, x = net(), torch.randn(3, 4)

    def hook(_: Tensor) -> None:
        raise ValueError("mine")

    with recording(tmp_path / "run", level="mix", task="tensor") as found:
        found.start(model)
        y = model(x)
        y.register_hook(hook)
        with pytest.raises(ValueError, match="mine"):
            y.sum().backward()
        found.stop()
        found.step()
        found.start(model)
        step_of(model, x)
        found.stop()
        found.step()
    assert "Functional.linear.0.backward" not in found.records(0)
    assert "Functional.linear.0.backward" in found.records(1)
    assert_data_fit(found, 0)
    assert_data_fit(found, 1)


# -- start, stop and step in any order ------------------------------------------------------------


def test_stop_without_start_and_step_without_start(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1") as found:
        found.stop()
        found.step()
        found.step()
        assert not found.path.exists()
        found.start()
        F.relu(torch.ones(2))
        found.stop()
        found.stop()
    assert [path.name for path in found.path.iterdir()] == ["step2"]
    assert list(found.records(2)) == ["Functional.relu.0.forward"]


@pytest.mark.parametrize("level", LEVELS)
def test_start_twice_records_once(tmp_path: Path, level: str) -> None:
    model, x = net(), torch.randn(3, 4)
    with recording(tmp_path / "run", level=level) as found:
        for step, starts in enumerate((1, 2)):
            for _ in range(starts):
                found.start(model)
            step_of(model, x)
            found.stop()
            assert modes() == (0, 0)
            found.step()
            assert found.records(step)
    assert list(found.records(0)) == list(found.records(1))
    assert not hooks_of(model)


@pytest.mark.parametrize("level", LEVELS)
def test_start_and_stop_several_times_within_a_step(tmp_path: Path, level: str) -> None:
    model, x = net(), torch.randn(3, 4)
    with recording(tmp_path / "run", level=level, task="tensor") as found:
        for number in range(3):
            found.start(model)
            step_of(model, x + number)
            found.stop()
            step_of(model, x)  # this is not recorded, and not counted
        found.step()
    one = {"L0": "Module.head.Linear.forward", "L2": "Aten.addmm"}.get(level, "Functional.linear")
    mine = [name for name in found.records() if name.startswith(one) and "backward" not in name]
    assert len(mine) == {"L0": 3}.get(level, 6)  # two linears in a forward
    assert sorted(int(part) for name in mine for part in name.split(".") if part.isdigit()) == list(range(len(mine)))
    assert assert_data_fit(found) > 10


def test_stop_inside_a_forward_and_start_again(tmp_path: Path) -> None:
    class Pauses(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            found.stop()
            x = F.gelu(x)
            found.start(model)
            return self.fc(x)

    model = nn.Sequential(nn.Sequential(Pauses()), nn.ReLU())
    with recording(tmp_path / "run", level="mix") as found:
        found.start(model)
        model(torch.ones(1, 2)).sum().backward()
        found.stop()
        found.step()
    names = list(found.records())
    assert "Functional.gelu.0.forward" not in names
    assert {"Functional.linear.0.forward", "Module.0.0.fc.Linear.forward.0", "Module.1.ReLU.forward.0"} <= {*names}
    assert found.parents()["Module.1.ReLU.forward.0"] is None


def test_two_models_in_one_list(tmp_path: Path) -> None:
    first, second, x = net(0), net(1), torch.randn(3, 4)
    with recording(tmp_path / "run", level="L0") as found:
        found.start([first, second])
        first(x)
        second(x)
        found.stop()
    names = {name for name in found.records() if "head" in name and "forward" in name}
    assert names == {"Module.0.head.Linear.forward.0", "Module.1.head.Linear.forward.0"}
    weights = [found.records()[f"Module.{i}.head.Linear.forward.0"]["parameters"]["weight"]["Max"] for i in (0, 1)]
    assert weights == [pytest.approx(float(model.head.weight.max())) for model in (first, second)]


def test_two_models_one_after_the_other(tmp_path: Path) -> None:
    first, second, x = net(0), net(1), torch.randn(3, 4)
    with recording(tmp_path / "run", level="L0") as found:
        for model in (first, second):
            found.start(model)
            first(x)
            second(x)
            found.stop()
    heads = [name for name in found.records() if "head" in name and "forward" in name]
    assert heads == ["Module.head.Linear.forward.0", "Module.head.Linear.forward.1"]
    assert not hooks_of(first) and not hooks_of(second)
