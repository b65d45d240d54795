"""The rank of a process, and hooks of optimizers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from probe_recording.api import Process

from probe_core.errors import UserError


class Grouped(Process):
    def _group(self) -> tuple[int, int] | None:
        return 2, 4


@pytest.mark.parametrize(
    ("rank", "size", "label", "number", "count"),
    [
        ("", "", "rank", 0, 1),
        ("3", "", "rank", 0, 1),
        ("0", "1", "rank", 0, 1),
        ("3", "8", "rank3", 3, 8),
        ("x", "8", "rank", 0, 8),
    ],
)
def test_launchers_give_the_rank(
    rank: str, size: str, label: str, number: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", size)
    process = Process()
    assert (process.label, process.rank, process.process_count) == (label, number, count)


def test_the_process_group_takes_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "7")
    process = Grouped()
    assert (process.label, process.rank, process.process_count) == ("rank2", 2, 4)
    assert process.is_selected(frozenset()) and process.is_selected({2}) and not process.is_selected({7})


def test_a_framework_without_hooks_of_optimizers_is_reported() -> None:
    with pytest.raises(UserError, match="no hooks of optimizers"):
        Process().hook_optimizers(lambda: None)


def test_the_rank_is_that_of_an_initialized_process_group(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    group = SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda: 3, get_world_size=lambda: 8
    )

    class GroupProcess(Process):
        distributed = group

    assert (GroupProcess().rank, GroupProcess().process_count) == (3, 8)
    group.is_initialized = lambda: False
    assert (GroupProcess().rank, GroupProcess().process_count) == (0, 1)
