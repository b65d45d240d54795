"""Ctrl-C at any moment of a recorded script: each step that was begun can be read."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from probe_pytorch.reader import PyTorchReader
from probe_recording.interrupts import defer_interrupts
from probe_recording.sessions import session as sessions
from support.faults.failing_writes import FailingWrites
from support.sampling import places
from torch.optim import optimizer as optimizers

SCRIPT = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        model(torch.randn(3, 4)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
OPTIONS = {
    "packed": ["--task", "tensor", "--step", "all"],
    "statistics": ["--step", "all"],
    "files": ["--task", "tensor", "-c", "config.json"],
}


@pytest.fixture(autouse=True)
def interruptible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Python's own handler of Ctrl-C, and nothing left of the recorder afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sessions, "FLUSH_INTERVAL_RECORDS", 6)
    Path("train.py").write_text(textwrap.dedent(SCRIPT))
    Path("config.json").write_text('{"store": "files", "level": "mix", "dump_path": "run"}')
    environment = dict(os.environ)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    hooks = dict(optimizers._global_optimizer_post_hooks)
    yield
    signal.signal(signal.SIGINT, before)
    os.environ.clear()
    os.environ.update(environment)
    assert torch._C._len_torch_function_stack() == 0
    assert dict(optimizers._global_optimizer_post_hooks) == hooks


@pytest.fixture
def run(probe: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], int]:
    """``run(kind, path)`` records the script, and does what the end of the process would."""
    ending: list[Callable[[], None]] = []
    monkeypatch.setattr(atexit, "register", ending.append)
    monkeypatch.setattr(atexit, "unregister", lambda function: function in ending and ending.remove(function))

    def call(kind: str, path: str) -> int:
        try:
            code: int = probe("run", "-o", path, *OPTIONS[kind], "train.py")
        finally:
            for function in reversed(ending):
                function()
            ending.clear()
            torch.set_grad_enabled(True)  # a second interrupt may hit torch while it turns that on again
        return code

    return call


def check(path: Path, kind: str) -> int:
    """The steps of a run, each of which must be readable."""
    steps = list(path.glob("step*"))
    for step in steps:
        assert [found.name for found in step.iterdir()] == ["rank"]
        recorded = PyTorchReader().open(step / "rank" / "dump.json")
        for record in recorded.records():
            for slot in record.slots:
                if slot.value.data_name:
                    recorded.tensor(slot.value)
        assert not recorded.header.unfinished
        recorded.close()
    assert not list(path.rglob("dump_error_info.log"))
    return len(steps)


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("kind", OPTIONS)
@pytest.mark.parametrize("share", [6, pytest.param(200, marks=pytest.mark.slow)])
def test_at_any_write(kind: str, share: int, run: Any, probe: Any) -> None:
    """Ctrl-C, or twice in a row, while a file is written; PROBE_TEST_EVERY takes each of the writes."""
    with FailingWrites(Path.cwd() / "clean") as writes:
        assert run(kind, "clean") == 0
    assert check(Path("clean"), kind) == 3
    count = writes.count
    for number in places(count, share, kind):
        path = Path.cwd() / f"run{number}"
        with FailingWrites(path, interrupt, at=number, times=1 + number % 3):
            assert run(kind, str(path)) == 130, probe.err
        assert "Interrupted" in probe.err and "Traceback" not in probe.err
        check(path, kind)


@pytest.mark.parametrize("kind", OPTIONS)
@pytest.mark.parametrize("file", ["stack.json", "dump.json"])
def test_while_the_files_of_a_step_are_written(
    kind: str, file: str, run: Any, probe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them at the step's end: the step keeps the records that it has in memory."""
    monkeypatch.setattr(sessions, "FLUSH_INTERVAL_RECORDS", 10_000)
    with FailingWrites(Path.cwd() / "clean") as writes:
        assert run(kind, "clean") == 0
    first = next(i for i, (_, path) in enumerate(writes.seen, 1) if "/step1/" in path and file in path)
    with FailingWrites(Path.cwd() / "run", interrupt, at=first, times=1):
        assert run(kind, "run") == 130, probe.err
    assert check(Path("run"), kind) == 2 and "probe recorded steps 0 to 1" in probe.err


class Interrupts:
    """Interrupts when the recorder's functions have been called so many times, and again a while later."""

    def __init__(self, *moments: int) -> None:
        self.count = 0
        self._moments = moments

    def __enter__(self) -> Interrupts:
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and ("probe_pytorch" in name or "plugins/recording/probe_recording" in name):
            self.count += 1
            if self.count in self._moments:
                interrupt()


@pytest.mark.parametrize("kind", OPTIONS)
@pytest.mark.parametrize("share", [5, pytest.param(400, marks=pytest.mark.slow)])
def test_at_any_moment(kind: str, share: int, run: Any, probe: Any) -> None:
    for path in ("first", "clean"):  # what is read once is read by the first
        with Interrupts() as seen:
            assert run(kind, path) == 0
    whole = 0
    for part in range(share):
        first = 1 + seen.count * part // share
        path = Path(f"run{part}")
        with Interrupts(first, first + 1 + 7 * part % 60):
            assert run(kind, str(path)) in (130, 0)
        assert "Traceback" not in probe.err, probe.err
        whole += check(path, kind)
    assert whole


def test_a_script_that_catches_the_interrupt_goes_on(run: Any) -> None:
    """The step in which it came is whole, and so are those behind it."""
    caught = "    try:\n        optimizer.step()\n    except KeyboardInterrupt:\n        pass"
    Path("train.py").write_text(Path("train.py").read_text().replace("    optimizer.step()", caught))
    with FailingWrites(Path.cwd() / "clean") as writes:
        assert run("packed", "clean") == 0
    names = {path.parts[1]: path.read_text().split('"data"')[1] for path in Path("clean").rglob("dump.json")}
    middle = max(i for i, (_, path) in enumerate(writes.seen, 1) if "/step1/" in path and "dump.json" in path)
    with FailingWrites(Path.cwd() / "run", interrupt, at=middle, times=1):
        assert run("packed", "run") == 0
    found = {path.parts[1]: path.read_text().split('"data"')[1] for path in Path("run").rglob("dump.json")}
    assert found.keys() == names.keys() and found["step1"] == names["step1"]


def test_interrupts_wait_and_come_once_the_block_is_left() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), defer_interrupts():
        interrupt()
        with defer_interrupts():
            interrupt()
        done.append(1)
    assert done == [1] and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_handlers_of_the_script_are_called_and_stay() -> None:
    called: list[int] = []

    def mine(number: int, _: FrameType | None) -> None:
        called.append(number)

    before = signal.signal(signal.SIGTERM, mine)
    try:
        with defer_interrupts():
            signal.raise_signal(signal.SIGTERM)
            assert called == []
        assert called == [signal.SIGTERM] and signal.getsignal(signal.SIGTERM) is mine
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with defer_interrupts():
            interrupt()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)
