"""Scripts for ``probe run``."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import optimizer as optimizers

TRAIN = """\
    import sys
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 2)

        def forward(self, x):
            return self.down(F.gelu(self.up(x)))

    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(5):
        loss = model(torch.randn(3, 4)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(step, loss.item().hex())
"""


@pytest.fixture(autouse=True)
def in_a_place_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In an empty directory; what a script or its follower sets in the environment is not the next one's."""
    monkeypatch.chdir(tmp_path)
    environment, arguments, paths = dict(os.environ), sys.argv, sys.path.copy()
    hooks = dict(optimizers._global_optimizer_post_hooks)
    yield
    os.environ.clear()
    os.environ.update(environment)
    assert sys.argv is arguments and sys.path == paths
    assert torch._C._len_torch_function_stack() == 0
    assert dict(optimizers._global_optimizer_post_hooks) == hooks
    assert not torch.nn.modules.module._global_forward_pre_hooks


def script(code: str, name: str = "train.py") -> Path:
    """A script in the working directory."""
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(code))
    return path


def records(path: str | Path, step: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(path) / f"step{step}" / "rank" / "dump.json").read_text())
    return found


def names(path: str | Path, step: int = 0) -> list[str]:
    return list(records(path, step)["data"])


def filled_steps(path: str | Path) -> list[int]:
    """The steps that hold records."""
    numbers = sorted(int(found.name.removeprefix("step")) for found in Path(path).glob("step*"))
    return [number for number in numbers if names(path, number)]
