"""Blocks of code that ``probe_mindspore.record`` records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

from probe_mindspore import record  # noqa: E402
from support.on_mindspore.ms_net import Net, batch, training  # noqa: E402


def read_records(path: Path, step: int) -> dict[str, Any]:
    return json.loads((path / f"step{step}" / "rank" / "dump.json").read_text())["data"]


def train(steps: int) -> list[Any]:
    ms.set_seed(1)
    net = Net()
    net.set_train()
    step = training(net)
    for _ in range(steps):
        step(*batch(0))
    return [parameter.asnumpy() for parameter in net.trainable_params()]


def test_a_block_is_a_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = train(1)
    block = record(tmp_path / "run", level="L1")
    with block:
        values = train(1)
    with block:
        train(1)
    assert all(np.array_equal(a, b) for a, b in zip(values, expected))
    for step in (0, 1):
        assert any(
            name.startswith(("Mint", "Functional", "Primitive")) for name in read_records(tmp_path / "run", step)
        )
    assert f"into {tmp_path / 'run'}" in capsys.readouterr().err


def test_an_exception_in_a_block_leaves_its_records(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="mine"), record(tmp_path / "run", level="L1"):
        ms.mint.abs(ms.Tensor([1.0, -2.0]))
        raise RuntimeError("mine")
    assert list(read_records(tmp_path / "run", 0)) == ["Mint.abs.0.forward"]
