"""The recorder in threads and processes, and under modes of the user's."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_pytorch.storage import tensors as tensor_stores
from support.programs.training import raw
from support.runs.recording import Recording, recording
from support.runs.survivals import (
    CROSSED,
    LEVELS,
    PLAIN_TASKS,
    SeesFunctions,
    SeesOperators,
    alone,  # noqa: F401
    assert_data_fit,
    hooks_of,
    modes,
    net,
    python,
    reason_to_skip_subclasses,
)
from torch import Tensor, nn
from torch.nn import functional as F

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*(beta|prototype|deprecated|requires_grad=True):UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
]
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
    """Workers of a training are forked by a launcher."""
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


def on_the_stacks() -> list[Any]:
    """The modes of this thread."""
    functions = [torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack())]
    return functions + [torch._C._get_dispatch_stack_at(i) for i in range(torch._C._len_torch_dispatch_stack())]


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
        if hasattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context"):  # else it is the context itself, or None
            torch._GLOBAL_DEVICE_CONTEXT.device_context = None
        else:
            torch._GLOBAL_DEVICE_CONTEXT = None  # type: ignore[assignment]
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
    if level == "L2" and (reason := reason_to_skip_subclasses()):
        pytest.skip(reason)
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
