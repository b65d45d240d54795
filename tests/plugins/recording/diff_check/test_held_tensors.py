"""The tensors of calls whose comparison has not ended, with a session whose statistics are on a device."""

from __future__ import annotations

import json
import threading
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from probe_recording.diff_check import held_tensors
from probe_recording.diff_check.call_judge import CallJudge
from probe_recording.diff_check.golden_run import read_golden_run
from probe_recording.diff_check.held_tensors import HeldTensors
from probe_recording.values.leaves import TensorLeaf
from probe_recording.values.tensor_store import Entry


class DeviceSession:
    """A session that knows statistics only after ``read_back``."""

    suffix = ".pt"

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.stored: dict[str, Any] = {}
        self.pending: list[tuple[TensorLeaf, float]] = []
        self.read_backs = 0

    @property
    def is_waiting(self) -> bool:
        return bool(self.pending)

    def read_back(self) -> None:
        self.read_backs += bool(self.pending)
        for leaf, value in self.pending:
            leaf.statistics = (value, value, value, value)
        self.pending.clear()

    def quiet(self) -> AbstractContextManager[None]:
        return nullcontext()

    def copy_of(self, tensor: Any) -> Any:
        return tensor.copy()

    def store_tensor(self, name: str, tensor: Any) -> str:
        self.stored[name] = tensor.copy()
        return name + self.suffix

    def record(self, held: HeldTensors, key: str, tensor: Any, *, may_change: bool = False) -> Entry:
        """Record a call that returns a tensor, as a call recorder does."""
        leaf = TensorLeaf("torch.Tensor", "torch.float64", list(tensor.shape), False)
        self.pending.append((leaf, float(tensor.max())))
        save = held.save_for(key, may_change)
        if save is not None:
            leaf.data_name = save(f"{key}.output.0", tensor)
        entry = Entry(key, {"output": [leaf]})
        held.add(entry, None)
        return entry


KEYS = [f"Torch.add.{number}.forward" for number in range(6)]


@pytest.fixture
def judge(tmp_path: Path) -> CallJudge:
    def leaf(value: float) -> str:
        return TensorLeaf("torch.Tensor", "torch.float64", [2], False, (value, value, value, value)).text()

    records = ", ".join(f'"{key}": {{"output": [{leaf(float(number))}]}}' for number, key in enumerate(KEYS))
    file = tmp_path / "step0" / "rank" / "dump.json"
    file.parent.mkdir(parents=True)
    file.write_text(f'{{"task": "statistics", "level": "L1", "framework": "pytorch", "data": {{{records}}}}}')
    judge = CallJudge(read_golden_run(tmp_path), 1)
    judge.begin_step(0, 0)
    return judge


def test_add_copies_tensors_until_their_statistics_are_read(judge: CallJudge) -> None:
    session = DeviceSession()
    held = HeldTensors(session, judge)  # type: ignore[arg-type]
    for number, key in enumerate(KEYS):
        tensor = np.full(2, 9.0 if number == 2 else float(number))
        session.record(held, key, tensor)
        tensor += 100  # the program changes it in place
    assert not session.stored and not session.read_backs
    held.finish([])
    assert {name: value.tolist() for name, value in session.stored.items()} == {f"{KEYS[2]}.output.0": [9.0, 9.0]}
    assert held._copied_bytes == 0 and not held._records and session.read_backs == 1


def test_finish_names_only_tensors_that_are_stored(judge: CallJudge) -> None:
    session = DeviceSession()
    held = HeldTensors(session, judge)  # type: ignore[arg-type]
    entries = [session.record(held, key, np.full(2, 7.0)) for key in KEYS]
    held.finish([])
    texts = [json.loads(f"{{{entry.text}}}")[entry.key]["output"][0] for entry in entries]
    assert [leaf.get("data_name") for leaf in texts] == [f"{KEYS[0]}.output.0.pt", *[None] * 5]
    assert all(leaf["Max"] == 7.0 for leaf in texts)


def test_add_reads_statistics_after_many_records(judge: CallJudge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_tensors, "MAX_UNREAD_RECORDS", 2)
    session = DeviceSession()
    held = HeldTensors(session, judge)  # type: ignore[arg-type]
    for number, key in enumerate(KEYS):
        session.record(held, key, np.full(2, float(number)))
    assert session.read_backs == 3 and held._copied_bytes == 0


def test_add_leaves_out_tensors_beyond_the_memory(judge: CallJudge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_tensors, "MAX_COPIED_BYTES", 20)
    session = DeviceSession()
    held = HeldTensors(session, judge)  # type: ignore[arg-type]
    for key in KEYS[:2]:
        assert held.save_for(key, True)(f"{key}.input.0", np.zeros(2)) is not None  # type: ignore[misc]
    assert held.save_for(KEYS[2], True)(f"{KEYS[2]}.input.0", np.zeros(2)) is None  # type: ignore[misc]
    assert held._records[KEYS[2]].left_out == {f"{KEYS[2]}.input.0"}
    held.take_back(KEYS[0])
    assert held.save_for(KEYS[2], True)(f"{KEYS[2]}.input.0", np.zeros(2)) is not None  # type: ignore[misc]


def test_save_for_holds_nothing_once_enough_calls_are_kept(judge: CallJudge) -> None:
    session = DeviceSession()
    held = HeldTensors(session, judge)  # type: ignore[arg-type]
    session.record(held, KEYS[0], np.full(2, 7.0))
    held.finish([])
    assert held.save_for(KEYS[1], False) is None
