"""The search for records that overflowed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from probe_recording.api import Config, TensorLeaf
from probe_recording.run_directory.directory import StepDirectory
from probe_recording.sessions.framework_session import OverflowSearch
from support.runs.empty_session import EmptySession

KEY = "a.0.forward"


def make_fields(largest: float) -> dict[str, Any]:
    return {"output": [TensorLeaf("numpy.ndarray", "float32", [1], None, (largest, 0.0, 0.0, 0.0))]}


@pytest.fixture
def stored() -> list[str]:
    return []


@pytest.fixture
def search(tmp_path: Path, stored: list[str]) -> OverflowSearch:
    def store(name: str, tensor: Any) -> str | None:
        stored.append(name)
        return name

    session = EmptySession(Config(dump_path=tmp_path, shown_path=""), StepDirectory(tmp_path, 0, "rank"), "")
    return OverflowSearch(session, store, 2)


def test_only_tensors_of_records_that_overflowed_are_stored(search: OverflowSearch, stored: list[str]) -> None:
    assert search.hold(KEY, False, f"{KEY}.output.0", object()) == f"{KEY}.output.0.npy"
    assert not search.store_overflow(KEY, make_fields(1.0)) and not stored
    search.hold(KEY, False, f"{KEY}.output.0", object())
    assert search.store_overflow(KEY, make_fields(math.inf)) and stored == [f"{KEY}.output.0"]


def test_released_tensors_are_not_stored(search: OverflowSearch, stored: list[str]) -> None:
    search.hold(KEY, False, f"{KEY}.output.0", object())
    search.release(KEY)
    assert search.store_overflow(KEY, make_fields(math.nan)) and not stored


def test_the_last_overflow_ends_the_search(search: OverflowSearch) -> None:
    ended: list[bool] = []
    search.on_last = lambda: ended.append(True)
    search.count_down()
    assert not ended
    search.count_down()
    assert ended and not search.store_overflow(KEY, make_fields(math.inf))
