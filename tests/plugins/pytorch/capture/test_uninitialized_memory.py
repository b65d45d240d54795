"""Memory that was allocated without values: recorded as null until something is written into it."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_pytorch.capture.uninitialized_memory import MAX_STORAGES, UninitializedMemory
from support.runs.debugged import alone, once  # noqa: F401


def watched(memory: UninitializedMemory, tensor: torch.Tensor) -> torch.Tensor:
    memory.add_storage(tensor)
    return tensor


def test_uninitialized_memory_contains_views_until_something_is_written() -> None:
    memory = UninitializedMemory()
    buffer = watched(memory, torch.empty(8))
    parts = torch.split(buffer, [2, 6])
    inner = parts[1].view(2, 3).t()
    assert all(map(memory.is_uninitialized, (buffer, *parts, inner)))
    torch._foreach_copy_(list(parts), [torch.ones(2), torch.ones(6)])
    assert not any(map(memory.is_uninitialized, (buffer, *parts, inner)))


def test_uninitialized_memory_contains_no_other_tensors() -> None:
    memory = UninitializedMemory()
    memory.add_storage(torch.empty(8))
    with torch.inference_mode():
        memory.add_storage(torch.empty(8))
    sparse = torch.eye(3).to_sparse()
    for value in (torch.ones(8), sparse, None, 3, watched(memory, torch.empty(8, device="meta"))):
        assert not memory.is_uninitialized(value)
        assert memory.find_uninitialized([value]) == []


def test_uninitialized_memory_forgets_the_oldest_storages() -> None:
    memory = UninitializedMemory()
    tensors = [watched(memory, torch.empty(1)) for _ in range(MAX_STORAGES + 1)]
    assert [memory.is_uninitialized(tensor) for tensor in tensors[:2]] == [False, True]


def test_recorder_records_views_of_unfilled_memory_as_null(tmp_path: Path) -> None:
    def program() -> None:
        buffer = torch.empty(6)
        first, second = torch.split(buffer, [2, 4])
        torch.narrow(second, 0, 1, 2)
        first.copy_(torch.ones(2))
        torch.narrow(buffer, 0, 0, 2)

    data = once(tmp_path, program, task="tensor", level="L1").records()
    split, narrow, filled = (data[f"Torch.{name}.forward"] for name in ("split.0", "narrow.0", "narrow.1"))
    assert (split["input_args"][0], split["output"]) == (None, [None, None])
    assert (narrow["input_args"][0], narrow["output"]) == (None, [None])
    assert filled["output"][0]["Max"] == 1.0


def test_recorder_records_what_is_computed_from_unfilled_memory(tmp_path: Path) -> None:
    """A kernel that torch does not know may have filled the memory: only views of it mean nothing."""

    def program() -> None:
        buffer = torch.empty(4)
        ctypes.memset(buffer.data_ptr(), 0, 16)  # a write that torch does not count
        torch.narrow(buffer, 0, 0, 2)
        torch.exp(buffer)
        torch.narrow(buffer, 0, 0, 2)

    data = once(tmp_path, program, task="tensor", level="L1").records()
    assert data["Torch.narrow.0.forward"]["output"] == [None]
    assert data["Torch.exp.0.forward"]["input_args"][0]["Max"] == 0.0
    assert data["Torch.narrow.1.forward"]["output"][0]["Max"] == 0.0


@pytest.mark.parametrize(
    ("read", "is_still_watched"),
    [
        (torch.Tensor.item, False),
        (torch.Tensor.tolist, False),
        (torch.Tensor.__bool__, False),
        (torch.Tensor.size, True),
        (torch.Tensor.numel, True),
    ],
)
def test_uninitialized_memory_ends_at_a_call_that_reads_values(read: Any, is_still_watched: bool) -> None:
    memory = UninitializedMemory()
    number = watched(memory, torch.empty(1, dtype=torch.int64))
    memory.update_after_call(read.__name__, [number], read(number))
    assert memory.is_uninitialized(number) is is_still_watched
