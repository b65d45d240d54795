"""Processes that compare calls: the same rows as without, and a process that dies costs its call only."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from probe_pytorch import DispatchCheck
from probe_pytorch.dispatch_check.operators import SkipReason
from torch import nn


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def steps(directory: Path, processes: int, memory: str = "2GiB", *, kills: bool = False) -> DispatchCheck:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(net.parameters(), 0.1, foreach=True)
    with DispatchCheck(directory, processes=processes, memory=memory) as check:
        for number in range(2):
            optimizer.zero_grad()
            net(torch.randn(4, 8)).square().mean().backward()
            optimizer.step()
            if kills and number == 0:
                assert check._pool is not None
                for worker in check._pool._processes._workers:
                    os.kill(worker._process.pid, signal.SIGKILL)
    return check


def test_processes_write_the_same_files(tmp_path: Path) -> None:
    alone, helped = steps(tmp_path / "0", 0), steps(tmp_path / "1", 1, "1MiB")
    assert helped.counts == alone.counts and helped.findings == ()
    for one, other in ((alone.result, helped.result), (alone.details, helped.details)):
        assert one is not None and other is not None and one.read_bytes() == other.read_bytes()


def test_a_process_that_dies_costs_its_call_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check = steps(tmp_path, 1, kills=True)
    lost = check.counts.count_skipped(SkipReason.LOST)
    assert 0 < lost <= 2 and check.counts.compared > 20
    assert "killed (signal 9)" in capsys.readouterr().err


def test_an_interrupt_ends_the_processes_at_once(tmp_path: Path) -> None:
    check = DispatchCheck(tmp_path, processes=1)
    with pytest.raises(KeyboardInterrupt), check:
        for _ in range(20):
            torch.ones(3) + 1
        assert check._pool is not None
        (process,) = [worker._process for worker in check._pool._processes._workers]
        raise KeyboardInterrupt
    assert process._closed
    assert check.counts.compared + check.counts.count_skipped(SkipReason.LOST) == 40
