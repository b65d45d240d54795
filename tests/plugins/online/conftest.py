"""Calls of a training that tests of receivers send."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from support.runs.faulty import Truth, bare, rows_in, trained
from support.runs.inprocess import receiving
from support.runs.recording import recording
from support.runs.sent import call_frames
from torch.nn import functional as F

WRONG = "Functional.softmax.2"
"""The call whose output is that of another."""


@pytest.fixture(scope="session")
def frames(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """Frames of the calls of a training step, one of them with a wrong output."""
    path = tmp_path_factory.mktemp("recorded")
    with recording(path, task="tensor", level="L1", step=[0]) as found:
        found.start()
        torch.manual_seed(1)
        x = torch.randn(6, 8)
        for _ in range(4):
            y = torch.matmul(x, torch.randn(8, 8))
            y = F.softmax(y, dim=-1)
            x = F.relu(torch.mul(y, 3.0) - 0.2)
        found.stop()
    dump = found.directory() / "dump.json"
    _spoil(dump)
    return list(call_frames(dump))


def _spoil(dump: Path) -> None:
    document = json.loads(dump.read_text())
    other = document["data"]["Torch.matmul.2.forward"]["output"]
    document["data"][f"{WRONG}.forward"]["output"] = other
    dump.write_text(json.dumps(document))


@pytest.fixture(scope="session")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Truth:
    """The training of the tests of faults, without a fault."""
    path = tmp_path_factory.mktemp("truth")
    with receiving(path / "out") as end:
        trained(path / "run", port=end.address[1])
    return Truth(bare(), rows_in(path / "out"))
