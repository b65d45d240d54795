"""A real bug: the gradient of ``mint.split`` followed by permute is wrong in MindSpore 2.10.0 on a CPU.

A program of three lines is recorded. The record must hold the wrong gradient that was computed.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

from mindspore import Tensor, mint  # noqa: E402
from support.on_mindspore.ms_recording import recording  # noqa: E402

X = np.arange(12, dtype=np.float32).reshape(2, 6)
C = np.arange(6, dtype=np.float32).reshape(3, 2)


def split_program(x: Tensor) -> Tensor:
    part = mint.split(x, 3, dim=-1)[0]
    return mint.sum(mint.mul(mint.permute(part, (1, 0)), Tensor(C)))


def test_the_bug_is_recorded_as_it_happens(tmp_path: Path) -> None:
    ms.runtime.launch_blocking()
    gradient = ms.grad(split_program)
    plain = gradient(Tensor(X)).asnumpy()
    with recording(tmp_path / "run", level="L1", task="tensor") as found:
        found.start()
        recorded = gradient(Tensor(X)).asnumpy()
        found.stop()
        found.step()
    assert np.array_equal(recorded, plain)  # looking does not mend it
    records = found.records()
    assert list(records) == [
        "Mint.split.0.forward", "Mint.permute.0.forward", "Mint.mul.0.forward", "Mint.sum.0.forward",
        "Mint.sum.0.backward", "Mint.mul.0.backward", "Mint.permute.0.backward", "Mint.split.0.backward",
    ]  # fmt: skip
    came_in, other = records["Mint.split.0.backward"]["input"]
    (went_out,) = records["Mint.split.0.backward"]["output"]
    assert np.array_equal(found.array(came_in), C.T) and other is None  # right until here
    assert np.array_equal(found.array(went_out), plain)
    right = np.concatenate([C.T, np.zeros((2, 3), np.float32)], -1)
    if ms.__version__ == "2.10.0":
        assert not np.array_equal(plain, right)
        assert plain[0].tolist() == [0, 1, 2, 0, 0, 0]
