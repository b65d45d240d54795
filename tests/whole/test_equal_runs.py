"""Two equal runs of a script agree, whatever kinds of values the script uses."""

from __future__ import annotations

import ctypes
import itertools
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support.runs.answered import compared
from support.runs.debugged import alone, once  # noqa: F401
from torch.nn import functional as F

from probe_core.model.answers import Outcome

GARBAGE = itertools.count(1)
"""Contents of fresh memory, different each time."""


def arrays() -> None:
    x = torch.linspace(-1, 1, 6).reshape(2, 3)
    for array in (x.numpy(), x.t().numpy(), x.relu().__array__()):
        F.relu(torch.from_numpy(array))
    x.tolist()
    x.sum().item()


def nested() -> None:
    for layout in (torch.jagged, torch.strided):
        F.relu(torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=layout) * 2)


def sparse() -> None:
    torch.sparse.mm(torch.eye(3).to_sparse() * 2, torch.ones(3, 2)).sum()


def unfilled() -> None:
    """Split a buffer before the parts are copied into it, as FSDP2 does."""
    buffer = torch.empty(6)
    ctypes.memset(buffer.data_ptr(), next(GARBAGE), 24)
    parts = torch.split(buffer, [2, 4])
    torch._foreach_copy_(list(parts), [torch.ones(2), torch.zeros(4)])
    torch.cos(buffer)


@pytest.mark.parametrize("task", ["tensor", "statistics"])
@pytest.mark.parametrize("script", [arrays, nested, sparse, unfilled], ids=lambda value: value.__name__)
def test_equal_runs_agree(tmp_path: Path, script: Callable[[], None], task: str) -> None:
    runs = []
    for name in ("target", "golden"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            runs.append(once(tmp_path / name, script, task=task, level="L1").directory())
    answer = compared(tmp_path, *runs).answer
    assert answer is not None
    assert (answer.outcome, answer.causes) == (Outcome.AGREE, ()), answer.sentence
