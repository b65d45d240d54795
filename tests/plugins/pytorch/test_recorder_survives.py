"""Whatever a training step does, the recorder does not disturb it, and records what comes after."""

from __future__ import annotations

import collections
import collections.abc
import copy
import dataclasses
import gc
import io
import itertools
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from probe_pytorch.debugger import PrecisionDebugger
from probe_pytorch.reader import PyTorchReader
from probe_pytorch.storage import tensors as tensor_stores
from support import TESTS
from support.programs.training import raw
from support.runs.recording import Recording, recording
from support.sampling import sampled
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

LEVELS = ("L0", "L1", "mix", "L2")
PLAIN_TASKS = ("statistics", "tensor")

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*(beta|prototype|deprecated|requires_grad=True):UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
]


def modes() -> tuple[int, int]:
    """How many modes this thread has, of functions and of operators."""
    return torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """What a test leaves behind, one that is expected to fail for instance, is not the next one's."""
    assert modes() == (0, 0)
    yield
    while torch._C._len_torch_function_stack():
        torch._C._pop_torch_function_stack()
    while torch._C._len_torch_dispatch_stack():
        torch.utils._python_dispatch._pop_mode()
    if PrecisionDebugger._instance is not None:
        PrecisionDebugger._instance._recorder.finish()
        PrecisionDebugger._instance = None


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.fc(x))


class Net(nn.Module):
    """``inner`` runs inside ``outer``."""

    def __init__(self) -> None:
        super().__init__()
        self.outer = nn.Sequential(Inner(), nn.LayerNorm(4))
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.outer(x))


def net(seed: int = 0) -> Net:
    torch.manual_seed(seed)
    return Net()


def saved(found: Recording, step: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """The data of every tensor that the records name; raises if one cannot be read."""
    run = PyTorchReader().open(found.directory(step) / "dump.json")
    values = (slot.value for record in run.records() for slot in record.slots)
    return {value.data_name: np.array(run.tensor(value)) for value in values if value.data_name}


def leaves(tree: Any) -> Iterator[dict[str, Any]]:
    """The tensor leaves of records."""
    if isinstance(tree, dict) and "dtype" in tree and "shape" in tree:
        yield tree
    elif isinstance(tree, (dict, list)):
        for item in tree.values() if isinstance(tree, dict) else tree:
            yield from leaves(item)


def assert_data_fit(found: Recording, step: int = 0) -> int:
    """Every tensor that was saved is the one whose maximum its record tells; how many there are."""
    data = saved(found, step)
    told = [leaf for leaf in leaves(found.records(step)) if "data_name" in leaf and leaf["shape"]]
    wrong = [leaf["data_name"] for leaf in told if data[leaf["data_name"]].max() != np.float32(leaf["Max"])]
    assert not wrong
    return len(told)


def python(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=120,
    )


# -- exceptions -----------------------------------------------------------------------------------


def step_of(model: nn.Module, x: Tensor) -> None:
    model.zero_grad()
    model(x).sum().backward()


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
    assert sorted(int(part) for name in mine for part in name.split(".") if part.isdigit()) == list(
        range(len(mine))
    )
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
    assert {"Functional.linear.0.forward", "Module.0.0.fc.Linear.forward.0", "Module.1.ReLU.forward.0"} <= {
        *names
    }
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
    weights = [
        found.records()[f"Module.{i}.head.Linear.forward.0"]["parameters"]["weight"]["Max"] for i in (0, 1)
    ]
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


# -- threads and processes ------------------------------------------------------------------------


class Items(torch.utils.data.Dataset[Tensor]):
    """Items that take their time and call torch while they are made."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> Tensor:
        time.sleep(0.01)
        return torch.relu(torch.full((300, 300), float(index)) * 2 + 1)


def load_and_train(found: Recording) -> list[float]:
    """Train on what two workers load, calling by ourselves what they call."""
    model = nn.Sequential(nn.Linear(300, 8), nn.ReLU())
    found.start(model)
    losses = []
    torch.stack([torch.full((3,), -5.0), torch.full((3,), -7.0)])
    batches = iter(torch.utils.data.DataLoader(Items(), batch_size=2, num_workers=2))
    torch.stack([torch.full((3,), -9.0), torch.full((3,), -8.0)])
    for batch in batches:
        losses.append(raw(model(batch).sum() + batch.mean()))
    found.stop()
    found.step()
    return losses


@pytest.mark.parametrize("level", ["L1", "L2"])
def test_workers_of_a_loader_are_not_recorded(tmp_path: Path, level: str) -> None:
    with recording(tmp_path / "run", level=level) as found:
        torch.manual_seed(0)
        assert len(load_and_train(found)) == 8
    names = list(found.records())
    one = {"L1": "Torch.stack.", "L2": "Aten.stack."}[level]
    assert [name for name in names if name.startswith(one)] == [f"{one}{i}.forward" for i in (0, 1)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("store", ["packed", "files"])
def test_workers_of_a_loader_do_not_touch_the_data(tmp_path: Path, store: str) -> None:
    with recording(tmp_path / "run", level="mix", task="tensor", store=store) as found:
        torch.manual_seed(0)
        load_and_train(found)
    assert_data_fit(found)


FORKS = """
    import json, os, sys
    import torch
    from probe_pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(dump_path=sys.argv[1], level="L1")
    debugger.start()
    torch.ones(2) + 1
    here, there = os.pipe()
    child = os.fork()
    if not child:
        torch.relu(torch.ones(2))
        os.read(here, 1)
        sys.exit(0)
    torch.ones(2) * 2
    debugger.stop()
    debugger.step()
    before = open(sys.argv[1] + "/step0/rank/dump.json").read()
    os.write(there, b"x")
    os.waitpid(child, 0)
    after = open(sys.argv[1] + "/step0/rank/dump.json").read()
    print(json.dumps(before == after))
"""


def test_a_forked_child_that_ends_leaves_the_run_alone(tmp_path: Path) -> None:
    done = python(FORKS, tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) is True


STARTS_IN_CHILD = """
    import os, sys
    import torch
    from probe_pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(dump_path=sys.argv[1], level="L1")
    child = os.fork()
    if child:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    debugger.start()
    torch.relu(torch.ones(2))
    debugger.stop()
    debugger.step()
"""


def test_a_debugger_that_is_started_only_in_a_child(tmp_path: Path) -> None:
    """As where a launcher forks the workers of a training."""
    done = python(STARTS_IN_CHILD, tmp_path / "run")
    assert done.returncode == 0, done.stderr
    records = json.loads((tmp_path / "run" / "step0" / "rank" / "dump.json").read_text())["data"]
    assert "Torch.relu.0.forward" in records


@pytest.mark.parametrize("task", PLAIN_TASKS)
def test_a_thread_of_the_users_runs_the_model_too(tmp_path: Path, task: str) -> None:
    model, errors = net(), []

    def run() -> None:  # .grad of one tensor is not for two threads
        x = torch.randn(3, 4, requires_grad=True)
        torch.autograd.grad(model(x).sum(), x)

    def work() -> None:
        try:
            for _ in range(40):
                run()
        except BaseException as error:
            errors.append(error)

    with recording(tmp_path / "run", level="mix", task=task) as found:
        found.start(model)
        F.relu(torch.ones(2))
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            run()
        for thread in threads:
            thread.join()
        found.stop()
        found.step()
    assert not errors
    text = (found.directory() / "dump.json").read_text()
    heads = [line.split('"')[1] for line in text.splitlines() if '"Module.head.Linear.forward.' in line]
    assert sorted(heads) == sorted(f"Module.head.Linear.forward.{i}" for i in range(100))
    assert found.parents()["Module.outer.0.fc.Linear.forward.0"].startswith("Module.outer.0.Inner.forward.")
    if task == "tensor":
        assert_data_fit(found)


def test_two_threads_that_save_first_share_one_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    class Slow(tensor_stores.PackedStore):
        def __init__(self, *arguments: Any) -> None:
            made.append(self)
            time.sleep(0.1)
            super().__init__(*arguments)

    monkeypatch.setattr("probe_pytorch.session.PackedStore", Slow)
    model = net()
    with recording(tmp_path / "run", level="L0", task="tensor") as found:
        found.start(model)
        threads = [threading.Thread(target=model, args=(torch.randn(3, 4),)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found.stop()
        found.step()
    assert len(made) == 1
    assert_data_fit(found)


def test_stop_in_another_thread_than_start(tmp_path: Path) -> None:
    model = net()
    with recording(tmp_path / "run", level="mix") as found:
        found.start(model)
        model(torch.ones(1, 4))
        thread = threading.Thread(target=found.stop)
        thread.start()
        thread.join()
        count = len(found.records())
        model(torch.ones(1, 4))  # the mode may still be there; it is quiet
        assert count > 5 and not hooks_of(model)
        found.step()
        assert len(found.records()) == count
        found.start(model)
        model(torch.ones(1, 4))
        found.stop()
    assert modes() == (0, 0)
    assert list(found.records(1)) == list(found.records(0))


def test_data_parallel_without_a_device(tmp_path: Path) -> None:
    model, x = nn.DataParallel(net()), torch.randn(3, 4)
    expected = raw(model(x))
    with recording(tmp_path / "run", level="L0") as found:
        found.start(model)
        assert raw(model(x)) == expected
        found.stop()
    assert "Module.module.head.Linear.forward.0" in found.records()


# -- modes of the user's --------------------------------------------------------------------------


class SeesFunctions(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


class SeesOperators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def on_the_stacks() -> list[Any]:
    """The modes of this thread."""
    functions = [torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack())]
    return functions + [
        torch._C._get_dispatch_stack_at(i) for i in range(torch._C._len_torch_dispatch_stack())
    ]


@contextmanager
def meanwhile(path: Path, level: str, mode: Any) -> Iterator[tuple[Recording, Any]]:
    """A recording and a mode; in the end neither may have left anything on the stacks."""
    with recording(path, level=level) as found:
        yield found, mode
        found.step()
        found.start(nn.Sequential(nn.ReLU()))  # a later round takes away what an earlier had to leave
        F.relu(torch.ones(2))
        found.stop()
        found.step()
    assert on_the_stacks() == []


CROSSED = [(level, kind) for level in LEVELS for kind in (SeesFunctions, SeesOperators)]


@pytest.mark.parametrize(("level", "kind"), CROSSED)
def test_a_mode_entered_while_recording_and_left_afterwards(tmp_path: Path, level: str, kind: Any) -> None:
    with meanwhile(tmp_path / "run", level, kind()) as (found, mode):
        found.start(nn.Sequential(nn.ReLU()))
        mode.__enter__()
        F.relu(torch.ones(2))
        found.stop()
        assert mode in on_the_stacks()
        mode.seen.clear()
        F.relu(torch.ones(2))
        assert mode.seen  # it is still the user's
        mode.__exit__(None, None, None)
        assert mode not in on_the_stacks()
        mode.seen.clear()
        F.relu(torch.ones(2))
        assert not mode.seen


@pytest.mark.parametrize(("level", "kind"), CROSSED)
def test_a_mode_entered_before_recording_and_left_during(tmp_path: Path, level: str, kind: Any) -> None:
    with meanwhile(tmp_path / "run", level, kind()) as (found, mode):
        mode.__enter__()
        found.start(nn.Sequential(nn.ReLU()))
        F.relu(torch.ones(2))
        mode.__exit__(None, None, None)
        found.stop()
        assert mode not in on_the_stacks()
        mode.seen.clear()
        F.relu(torch.ones(2))
        assert not mode.seen


@pytest.mark.parametrize("kind", [SeesFunctions, SeesOperators])
@pytest.mark.parametrize("level", LEVELS)
def test_a_mode_around_the_recording_and_one_inside_it(tmp_path: Path, level: str, kind: Any) -> None:
    with meanwhile(tmp_path / "run", level, kind()) as (found, mode):
        with mode:
            found.start(nn.Sequential(nn.ReLU()))
            with kind() as inner:
                F.relu(torch.ones(2))
            assert inner.seen
            found.stop()
            assert on_the_stacks() == [mode]
        assert on_the_stacks() == []


@pytest.mark.parametrize("level", LEVELS)
def test_a_device_entered_before_or_during_a_recording(tmp_path: Path, level: str) -> None:
    with recording(tmp_path / "run", level=level) as found:
        device = torch.device("meta")
        device.__enter__()
        found.start(nn.Sequential(nn.ReLU()))
        assert F.relu(torch.ones(2)).is_meta
        device.__exit__(None, None, None)
        assert not F.relu(torch.ones(2)).is_meta
        device.__enter__()
        found.stop()
        assert torch.ones(2).is_meta
        device.__exit__(None, None, None)
        assert not torch.ones(2).is_meta
    assert modes() == (0, 0)


@pytest.mark.parametrize("level", ["L1", "mix"])
def test_the_default_device_is_changed_while_recording(tmp_path: Path, level: str) -> None:
    torch.set_default_device("cpu")
    try:
        with recording(tmp_path / "run", level=level) as found:
            found.start(nn.Sequential(nn.ReLU()))
            torch.set_default_device("meta")
            assert F.relu(torch.ones(2)).is_meta
            torch.set_default_device(None)
            assert not F.relu(torch.ones(2)).is_meta
            found.stop()
        assert list(found.records()) == ["Functional.relu.0.forward", "Functional.relu.1.forward"]
    finally:
        while torch._C._len_torch_function_stack():
            torch._C._pop_torch_function_stack()
        torch._GLOBAL_DEVICE_CONTEXT.device_context = None
        torch.utils._device.CURRENT_DEVICE = None


def busy(linear: nn.Module, x: Tensor) -> None:
    """A little of everything."""
    y = F.relu(linear(x)) + 1
    y.sum().backward()
    F.softmax(y, -1).detach().add_(1)
    x[0]


@pytest.mark.parametrize("task", PLAIN_TASKS)
@pytest.mark.parametrize("level", LEVELS)
def test_modes_of_the_users_see_nothing_of_the_recorder(tmp_path: Path, level: str, task: str) -> None:
    seen = []
    for records in (False, True):
        linear, x = nn.Linear(4, 4), torch.randn(3, 4, requires_grad=True)
        with ExitStack() as stack:
            functions = stack.enter_context(SeesFunctions())
            operators = stack.enter_context(SeesOperators())
            if records:
                found = stack.enter_context(recording(tmp_path / "run", level=level, task=task))
                found.start(nn.Sequential(linear))
            busy(linear, x)
            if records:
                found.stop()
        # a hook on a parameter lets autograd detach the gradient once more on its way into .grad
        kept = [name for name in operators.seen if "detach" not in name]
        seen.append((functions.seen, kept))
    assert seen[0] == seen[1]


class Watches(Tensor):
    """A tensor that notes what is done to it."""

    seen: list[str] = []  # noqa: RUF012

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen.append(getattr(func, "__name__", str(func)))
        return super().__torch_function__(func, types, args, kwargs or {})


@pytest.mark.parametrize("level", LEVELS)
def test_a_subclass_sees_nothing_of_the_recorder(tmp_path: Path, level: str) -> None:
    seen = []
    for records in (False, True):
        linear, x = nn.Linear(4, 4), torch.randn(3, 4).as_subclass(Watches).requires_grad_()
        with ExitStack() as stack:
            if records:
                found = stack.enter_context(recording(tmp_path / "run", level=level, task="tensor"))
                found.start(nn.Sequential(linear))
            Watches.seen.clear()
            busy(linear, x)
            seen.append(Watches.seen.copy())
            if records:
                found.stop()
    assert seen[0] == seen[1]


# -- what the recorder must not change ------------------------------------------------------------


def settings() -> dict[str, object]:
    """What torch and Python are set to."""
    kind, keys, *rest = np.random.get_state()
    return {
        "torch": raw(torch.get_rng_state()),
        "python": random.getstate(),
        "numpy": (kind, keys.tobytes(), rest),
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
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


def hooks_of(model: nn.Module) -> dict[str, Any]:
    """The hooks on modules and parameters."""
    found: dict[str, Any] = {}
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if "hook" in name and isinstance(value, dict) and value:
                found[f"{path}.{name}"] = dict(value)
    for path, parameter in model.named_parameters():
        for name in ("_backward_hooks", "_post_accumulate_grad_hooks"):
            if value := getattr(parameter, name, None):
                found[f"{path}.{name}"] = dict(value)
    return found


def names_of_torch() -> dict[str, Any]:
    """What the names of torch stand for."""
    holders = {"torch": torch, "F": F, "Tensor": Tensor, "nn": nn, "VF": torch._VF, "ops": torch._C._nn}
    found = {
        f"{holder}.{name}": value for holder, space in holders.items() for name, value in vars(space).items()
    }
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


# -- what the questions of the FAQ were about (spec/dump 17, 11) ----------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_what_users_had_to_take_out_of_the_peers_list(tmp_path: Path, level: str) -> None:
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


# -- tensors of every kind ------------------------------------------------------------------------


class Plain(Tensor):
    """A subclass that adds nothing."""


def fake() -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return F.relu(torch.empty(2, 3)) + 1


def without_gradients() -> Any:
    with torch.no_grad():
        return F.relu(torch.ones(2, 3, requires_grad=True)) * 2


def inference() -> Any:
    with torch.inference_mode():
        return F.relu(torch.ones(2, 3) * 2)


def nested(layout: Any) -> Any:
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=layout) * 2


KINDS: dict[str, Callable[[], Any]] = {
    "meta": lambda: F.relu(torch.empty(2, 3, device="meta")) + 1,
    "fake": fake,
    "coo": lambda: torch.sparse.mm(torch.eye(3).to_sparse() * 2, torch.ones(3, 2)),
    "csr": lambda: torch.eye(3).to_sparse_csr() @ torch.ones(3),
    "quantised": lambda: F.relu(torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)).dequantize(),
    "nested": lambda: nested(torch.strided),
    "jagged": lambda: nested(torch.jagged),
    "subclass": lambda: F.relu(torch.ones(2, 3).as_subclass(Plain)) + 1,
    "parameter": lambda: F.relu(nn.Parameter(torch.ones(2, 3))) + 1,
    "empty": lambda: F.relu(torch.ones(0, 3)) + 1,
    "complex": lambda: (torch.ones(2, dtype=torch.complex64) * 1j).conj() + 1,
    "negative": lambda: (torch.ones(2, dtype=torch.complex64) * 1j).conj().imag * 2,
    "expanded": lambda: torch.ones(1, 2).expand(3, 2) * 2,
    "float8": lambda: torch.ones(3).to(torch.float8_e4m3fn).float(),
    "uint32": lambda: torch.ones(3, dtype=torch.uint32).long() + 1,
    "bfloat16": lambda: F.relu(torch.ones(3, dtype=torch.bfloat16)) * 3,
    "no_grad": without_gradients,
    "inference": inference,
    "half a storage": lambda: torch.arange(8.0)[5:] * 2,
    "0-d": lambda: torch.tensor(3.0) * 2,
    "vmap": lambda: torch.func.vmap(lambda v: F.softmax(v, -1).sum())(torch.ones(3, 4)),
    "grad": lambda: torch.func.grad(lambda v: F.gelu(v).sum())(torch.ones(3)),
    "both": lambda: torch.func.vmap(torch.func.grad(lambda v: (v * v).sum()))(torch.ones(3, 4)),
    "jacobian": lambda: torch.func.jacrev(lambda v: v.sin())(torch.ones(3)),
    "functional": lambda: torch.func.functional_call(
        nn.Linear(2, 2), {"weight": torch.ones(2, 2), "bias": torch.ones(2)}, torch.ones(1, 2)
    ),
}


@pytest.mark.parametrize("task", PLAIN_TASKS)
@pytest.mark.parametrize("level", ["L1", "L2"])
@pytest.mark.parametrize("kind", KINDS)
def test_tensors_of_every_kind(tmp_path: Path, kind: str, level: str, task: str) -> None:
    make = KINDS[kind]
    expected = make()
    with recording(tmp_path / "run", level=level, task=task) as found:
        found.start()
        result = make()
        found.stop()
        found.step()
    assert type(result) is type(expected)
    if kind not in ("meta", "fake", "nested", "jagged"):
        assert raw(result.detach()) == raw(expected.detach())
        assert result.requires_grad == expected.requires_grad
    assert modes() == (0, 0)
    assert found.records()
    if task == "tensor":
        saved(found)


def test_what_is_told_of_tensors_without_plain_storage(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1", task="tensor") as found:
        found.start()
        F.relu(torch.empty(2, 3, device="meta"))
        F.silu(torch.tensor([[0.0, -3.0], [2.0, 0.0]]).to_sparse().to_dense())
        torch.tensor([[0.0, -3.0], [2.0, 0.0]]).to_sparse().sum()
        F.gelu(torch.ones(2).as_subclass(Plain))
        with torch.inference_mode():
            F.relu(torch.ones(2) * 4)
        found.stop()
        found.step()
    records = found.records()
    (meta,) = records["Functional.relu.0.forward"]["input_args"]
    assert meta["shape"] == [2, 3] and meta["Max"] is None and "data_name" not in meta
    (sparse,) = records["Tensor.sum.0.forward"]["input_args"]
    assert (sparse["Max"], sparse["Min"], sparse["shape"]) == (
        2.0,
        -3.0,
        [2, 2],
    ) and "data_name" not in sparse
    (plain,) = records["Functional.gelu.0.forward"]["input_args"]
    assert plain["type"] == "torch.Tensor" and plain["Max"] == 1.0
    assert saved(found)["Functional.gelu.0.forward.input.0.pt"].tolist() == [1.0, 1.0]
    assert records["Functional.relu.1.forward"]["output"][0]["Max"] == 4.0


DTENSOR = """
    import json, sys
    from pathlib import Path
    import torch
    import torch.distributed as dist
    from support.runs.recording import recording
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,))
    x = distribute_tensor(torch.arange(12.0).reshape(4, 3), mesh, [Shard(0)])
    w = torch.nn.Parameter(distribute_tensor(torch.ones(2, 3), mesh, [Replicate()]))
    names = dict(vars(dist))
    with recording(Path(sys.argv[1]), level="L1", task="tensor") as found:
        found.start()
        (x * 2)
        torch.nn.functional.linear(x, w).sum().backward()
        dist.all_reduce(torch.ones(2))
        dist.all_reduce(torch.ones(3), async_op=True).wait()
        changed = [name for name in names if vars(dist)[name] is not names[name]]
        found.stop()
        found.step()
    left = [name for name in names if vars(dist)[name] is not names[name]]
    print(json.dumps({
        "records": json.loads((found.directory(0, "rank0") / "dump.json").read_text())["data"],
        "left": left,
        "changed": changed,
        "gradient": [str(w.grad.placements), w.grad.full_tensor().tolist()],
    }))
    dist.destroy_process_group()
"""


def test_distributed_tensors(tmp_path: Path) -> None:
    done = python(DTENSOR, tmp_path / "run")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    leaf = told["records"]["Tensor.__mul__.0.forward"]["input_args"][0]
    assert leaf["type"] == "torch.distributed.tensor.DTensor"
    assert leaf["shape"] == [4, 3] and leaf["Max"] == 11.0
    assert len(leaf["placements"]) == 1 and "S" in leaf["placements"][0]
    assert leaf["device_mesh"] == [0]
    assert leaf["data_name"] == "Tensor.__mul__.0.forward.input.0.pt"
    assert "Functional.linear.0.backward" in told["records"]
    assert {"Distributed.all_reduce.0.forward", "Distributed.all_reduce.1.forward"} <= told["records"].keys()
    assert told["changed"] and told["left"] == []
    assert told["gradient"][1] == [[18.0, 22.0, 26.0]] * 2


# -- objects that answer nothing ------------------------------------------------------------------


def refuse(self: object, *_: object) -> Any:
    raise RuntimeError("this object answers nothing")


class Mute:
    __eq__ = __len__ = __bool__ = __iter__ = __getattr__ = __repr__ = __str__ = refuse
    __hash__ = object.__hash__


class MuteDict(dict):  # type: ignore[type-arg]
    __eq__ = __len__ = __bool__ = __iter__ = __getattr__ = keys = values = items = refuse
    __hash__ = object.__hash__


class MuteList(list):  # type: ignore[type-arg]
    __eq__ = __len__ = __bool__ = __iter__ = __getattr__ = __getitem__ = refuse
    __hash__ = object.__hash__


class MuteMapping(collections.abc.Mapping):  # type: ignore[type-arg]
    __eq__ = __len__ = __iter__ = __getitem__ = refuse
    __hash__ = object.__hash__


class MuteClass:
    __class__ = property(refuse)  # type: ignore[assignment]


@dataclasses.dataclass
class MuteField:
    x: int = 0

    def __getattribute__(self, name: str) -> Any:
        return refuse(self) if name == "x" else object.__getattribute__(self, name)


def chain(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


def ring() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


Pair = collections.namedtuple("Pair", "a b")
ODD: dict[str, Any] = {
    "object": Mute(),
    "dict": MuteDict(a=1),
    "object in a list": [Mute()],
    "object in a dict": {"a": Mute(), 3: Mute(), (1, 2): Mute()},
    "object as a key": {Mute(): 1},
    "list": MuteList([1]),
    "mapping": MuteMapping(),
    "class": MuteClass(),
    "field": MuteField(),
    "type": Mute,
    "depth": chain(5000),
    "ring": ring(),
    "surrogate": "\ud800",
    "array of objects": np.array([{}], dtype=object),
    "complex": np.complex64(1j),
    "generator": (i for i in range(3)),
    "deque": collections.deque([torch.ones(2)]),
    "namedtuple": Pair(Mute(), 1),
    "bytes": b"\xff\x00",
    "nan": float("nan"),
}


class Takes(nn.Module):
    def forward(self, x: Tensor, odd: object = None, **more: object) -> Tensor:
        return x * 2


@pytest.mark.parametrize("task", PLAIN_TASKS)
@pytest.mark.parametrize("kind", ODD)
def test_an_argument_that_answers_nothing_does_not_stop_the_training(
    tmp_path: Path, kind: str, task: str
) -> None:
    value = ODD[kind]
    x = torch.ones(2, requires_grad=True)
    found = Recording(tmp_path / "run", level="mix", task=task)
    model = nn.Sequential(Takes())
    found.start(model)
    model[0](x, value).sum().backward()
    model[0](x, more={"a": value, 3: value})
    assert x.grad is not None and x.grad.tolist() == [2.0, 2.0]
    found.stop()
    found.step()
    found.finish()
    records = found.records()
    assert records["Module.0.Takes.forward.0"]["output"][0]["Max"] == 2.0
    assert "Module.0.Takes.forward.1" in records


@pytest.mark.parametrize("kind", ODD)
def test_an_argument_that_answers_nothing_costs_itself_only(tmp_path: Path, kind: str) -> None:
    value = ODD[kind]
    found = Recording(tmp_path / "run", level="L0")
    model = nn.Sequential(Takes())
    found.start(model)
    model[0](torch.full((2,), 3.0), value)
    found.stop()
    found.finish()
    record = found.records()["Module.0.Takes.forward.0"]
    assert record["input_args"][0]["Max"] == 3.0 and len(record["input_args"]) == 2


def test_what_contains_itself_twice_is_walked_once(tmp_path: Path) -> None:
    @dataclasses.dataclass
    class Node:
        parent: Node | None = None
        children: list[Node] = dataclasses.field(default_factory=list)

    root = Node()
    root.children = [Node(root), Node(root)]

    def late(*_: object) -> None:
        raise TimeoutError

    with recording(tmp_path / "run", level="L0") as found:
        model = nn.Sequential(Takes())
        found.start(model)
        before = signal.signal(signal.SIGALRM, late)
        signal.setitimer(signal.ITIMER_REAL, 1.0)
        try:
            model[0](torch.ones(2), root)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        found.stop()
    assert len(found.records()["Module.0.Takes.forward.0"]["input_args"]) == 2


def test_a_number_too_long_for_python_to_print(tmp_path: Path) -> None:
    found = Recording(tmp_path / "run", level="L0")
    model = nn.Sequential(Takes())
    found.start(model)
    model[0](torch.ones(2), 10**5000)
    try:
        found.stop()
        assert "Module.0.Takes.forward.0" in found.records()
    finally:
        found.debugger._recorder._session = None
        found.finish()


# -- compiled, scripted, traced, copied -----------------------------------------------------------


def test_compiled_code_is_recorded_as_written_and_used_again_afterwards(tmp_path: Path) -> None:
    ran = []

    def backend(graph: Any, _: Any) -> Any:
        def call(*arguments: Any) -> Any:
            ran.append(1)
            return graph(*arguments)

        return call

    model, x = net(), torch.randn(3, 4)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=backend)
    expected = raw(compiled(x))
    assert ran == [1]
    with recording(tmp_path / "run", level="mix") as found:
        found.start(compiled)
        assert raw(compiled(x)) == expected
        assert ran == [1]  # as it was written
        found.stop()
        found.step()
        assert raw(compiled(x)) == expected
    assert ran == [1, 1]
    assert found.head()["probe"]["compile"] == "eager"
    names = list(found.records())
    assert "Module.outer.0.fc.Linear.forward.0" in names and "Functional.relu.0.forward" in names
    assert not any("_orig_mod" in name for name in names)
    torch._dynamo.reset()


def test_a_function_compiled_while_recording(tmp_path: Path) -> None:
    torch._dynamo.reset()
    with recording(tmp_path / "run", level="L1") as found:
        found.start()
        function = torch.compile(lambda x: F.relu(x) * 3, backend="eager")
        assert function(torch.ones(2)).tolist() == [3.0, 3.0]
        found.stop()
        assert function(torch.ones(2)).tolist() == [3.0, 3.0]
    assert {"Functional.relu.0.forward", "Tensor.__mul__.0.forward"} <= found.records().keys()
    torch._dynamo.reset()


@torch.jit.script
def scripted(x: Tensor) -> Tensor:
    return torch.relu(x) + 1


@pytest.mark.parametrize("level", LEVELS)
def test_a_scripted_function(tmp_path: Path, level: str) -> None:
    with recording(tmp_path / "run", level=level) as found:
        found.start(nn.Sequential(nn.ReLU()))
        x = torch.tensor([-1.0, 2.0], requires_grad=True)
        y = scripted(x)
        y.sum().backward()
        found.stop()
    assert y.tolist() == [1.0, 3.0] and x.grad is not None and x.grad.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_a_scripted_module_in_the_model(tmp_path: Path, level: str) -> None:
    model = nn.Sequential(nn.Linear(2, 2), torch.jit.script(nn.Linear(2, 2)))
    with recording(tmp_path / "run", level=level) as found:
        found.start(model)
        model(torch.ones(1, 2))
        found.stop()
    assert "Module.0.Linear.forward.0" in found.records()
    assert not hooks_of(model)


@pytest.mark.parametrize("level", ["L0", "L1"])
def test_a_model_traced_while_recording(tmp_path: Path, level: str) -> None:
    model = net()
    with recording(tmp_path / "run", level=level) as found:
        found.start(model)
        traced = torch.jit.trace(model, torch.ones(3, 4), check_trace=False)
        found.stop()
    assert raw(traced(torch.ones(3, 4))) == raw(model(torch.ones(3, 4)))


@pytest.mark.parametrize("level", LEVELS)
def test_a_model_exported_while_recording(tmp_path: Path, level: str) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    expected = [str(node.target) for node in torch.fx.symbolic_trace(model).graph.nodes]
    with recording(tmp_path / "run", level=level) as found:
        found.start(model)
        nodes = [str(node.target) for node in torch.fx.symbolic_trace(model).graph.nodes]
        found.stop()
    assert nodes == expected


COPIES: dict[str, Callable[[nn.Module], nn.Module]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "save": lambda model: torch.load(saved_model(model), weights_only=False),
    "state": lambda model: copy.copy(model),
}


def saved_model(model: nn.Module) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return file


@pytest.mark.parametrize(
    ("level", "way"),
    [(level, way) for level in LEVELS for way in COPIES],
)
def test_a_model_is_copied_while_it_is_recorded(tmp_path: Path, level: str, way: str) -> None:
    model, x = net(), torch.randn(3, 4)
    expected = raw(model(x))
    with recording(tmp_path / "run", level=level) as found:
        found.start(model)
        model(x)
        twin = COPIES[way](model)
        assert raw(twin(x)) == expected
        state = copy.deepcopy(model.state_dict())
        found.stop()
        found.step()
    assert raw(twin(x)) == expected and list(state) == list(model.state_dict())
    assert not hooks_of(model)


@pytest.mark.parametrize("when", ["during", "afterwards, a copy"])
def test_a_model_that_was_pickled_needs_no_probe(tmp_path: Path, when: str) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    with recording(tmp_path / "run", level="L0") as found:
        found.start(model)
        text, twin = pickle.dumps(model), copy.deepcopy(model)
        found.stop()
    assert b"probe" not in (text if when == "during" else pickle.dumps(twin))


# -- the tasks overflow_check and structure -------------------------------------------------------


def overflowing(count: int) -> None:
    for _ in range(count):
        F.relu(torch.ones(2))
        torch.mul(torch.full((2,), 3e38), 10.0)
    torch.ones(2) + 1


@pytest.mark.parametrize(("wanted", "recorded"), [(1, 1), (2, 2), (-1, 4)])
def test_as_many_overflows_as_asked_for(
    tmp_path: Path, wanted: int, recorded: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with recording(
        tmp_path / "run", level="L1", task="overflow_check", overflow_check={"overflow_nums": wanted}
    ) as found:
        found.start()
        overflowing(4)
        found.stop()
        found.step()
        found.start()
        overflowing(1)
        found.stop()
        found.step()
    assert list(found.records()) == [f"Torch.mul.{i}.forward" for i in range(recorded)]
    assert (found.path / "step1").exists() == (wanted == -1)
    data = saved_overflow(found)
    assert data["Torch.mul.0.forward.output.0.pt"].tolist() == [float("inf")] * 2
    assert len(data) == 2 * recorded
    assert ("the search ends" in capsys.readouterr().err) == (wanted != -1)
    assert modes() == (0, 0)


def saved_overflow(found: Recording) -> dict[str, np.ndarray[Any, Any]]:
    """The data of a run that the reader, which compares, does not open: of this task."""
    from probe_recording.reading.packed import PackedTensors

    packed = PackedTensors.find(found.directory() / "dump_tensor_data")
    assert packed is not None
    names = [leaf["data_name"] for leaf in leaves(found.records()) if "data_name" in leaf]
    return {name: np.array(packed.load(name.removesuffix(".pt"))) for name in names}


def test_overflows_over_several_steps_are_counted_together(tmp_path: Path) -> None:
    with recording(
        tmp_path / "run", level="L1", task="overflow_check", overflow_check={"overflow_nums": 2}
    ) as found:
        for _ in range(3):
            found.start()
            overflowing(1)
            found.stop()
            found.step()
    assert [len(found.records(step)) for step in (0, 1)] == [1, 1]
    assert not (found.path / "step2").exists()


def test_an_overflow_in_the_backward_pass(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1", task="overflow_check") as found:
        found.start()
        x = torch.full((2,), 1e30, requires_grad=True)
        (x * 1e5).sum().backward(torch.tensor(3e38))
        found.stop()
        found.step()
    assert list(found.records()) == ["Tensor.__mul__.0.backward"]
    data = saved_overflow(found)
    assert data["Tensor.__mul__.0.backward.output.0.pt"].tolist() == [float("inf")] * 2
    assert data["Tensor.__mul__.0.backward.input.0.pt"].tolist() == [np.float32(3e38)] * 2


def multiply_into(x: Tensor) -> None:
    torch.mul(x, 10.0, out=x)


@pytest.mark.parametrize(
    ("function", "value", "before"),
    [
        (lambda x: x.mul_(10.0), 3e38, 3e38),
        (lambda x: x.__imul__(10.0), 3e38, 3e38),
        (lambda x: torch.relu_(x), float("inf"), float("inf")),
        (lambda x: x.__setitem__(0, float("inf")), 1.0, 1.0),
        pytest.param(lambda x: F.elu(x, inplace=True), -np.inf, -np.inf, id="inplace"),
        pytest.param(multiply_into, 3e38, 3e38, id="out"),
    ],
)
def test_an_overflow_in_place_keeps_what_was_there_before(
    tmp_path: Path, function: Callable[[Tensor], Any], value: float, before: float
) -> None:
    with recording(
        tmp_path / "run", level="L1", task="overflow_check", overflow_check={"overflow_nums": -1}
    ) as found:
        x = torch.full((2,), value)
        found.start()
        function(x)
        found.stop()
        found.step()
    (name,) = found.records()
    data = saved_overflow(found)
    assert data[f"{name}.input.0.pt"].tolist() == [np.float32(before)] * 2
    assert data[f"{name}.output.0.pt"].tolist() == x.tolist()


class FallsBack(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        try:
            return F.linear(x, torch.ones(2, 7))
        except RuntimeError:
            return x * float("inf")


def test_an_overflowing_module_in_which_a_call_raised(tmp_path: Path) -> None:
    section = {"overflow_nums": -1}
    with recording(tmp_path / "run", level="mix", task="overflow_check", overflow_check=section) as found:
        model = nn.Sequential(FallsBack())
        found.start(model)
        model(torch.ones(1, 2))
        found.stop()
        found.step()
    assert saved_overflow(found)["Module.0.FallsBack.forward.0.input.0.pt"].tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_the_structure_has_names_and_places_only(tmp_path: Path, level: str) -> None:
    model, x = net(), torch.randn(3, 4)
    with recording(tmp_path / "full", level=level) as full:
        full.start(model)
        step_of(model, x)
        full.stop()
        full.step()
    with recording(tmp_path / "run", level=level, task="structure") as found:
        found.start(model)
        step_of(model, x)
        found.stop()
        found.step()
    head = found.head()
    assert (head["task"], head["level"], head["dump_data_dir"]) == ("structure", level, None)
    assert all(record == {} for record in head["data"].values())
    forward = [name for name in full.records() if "forward" in name]
    assert list(head["data"]) == forward
    assert {name: found.parents()[name] for name in forward} == {
        name: full.parents()[name] for name in forward
    }
    assert set(found.stacks()) == set(forward)
    assert not (found.directory() / "dump_tensor_data").exists()


def test_an_overflowing_gradient_of_a_parameter_is_kept_as_it_came(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 1, bias=False))
    with recording(
        tmp_path / "run", level="L0", task="overflow_check", overflow_check={"overflow_nums": -1}
    ) as found:
        found.start(model)
        (model(torch.full((1, 2), 3e38)) * 10).sum().backward()
        weight = model[0].weight
        assert isinstance(weight.grad, Tensor)
        weight.grad.zero_()
        found.stop()
        found.step()
    assert "Module.0.Linear.parameters_grad" in found.records()
    data = saved_overflow(found)
    assert data["Module.0.Linear.parameters_grad.weight.pt"].tolist() == [[float("inf")] * 2]
