"""Tensor files in memory: what is mapped and what is read, and what is said of files that change meanwhile."""

from __future__ import annotations

import json
import mmap
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from probe_recording.file_names import JOURNAL_FILE, PACKED_FILE
from probe_recording.reading import memory as reading
from probe_recording.reading.memory import SMALL_FILE, open_memory
from probe_recording.reading.npy import load_npy
from probe_recording.reading.packed import PackedTensors
from support.measuring import EasyGuard, mapping

from probe_core.errors import UnreadableTensor
from probe_core.files.mapped import MappedFile, find_mapped_file

NEVER_CUT = pytest.mark.skipif(sys.platform == "win32", reason="a mapped file cannot be cut off here")
COUNT = SMALL_FILE // 4
A_WHILE = 10**9
"""Nanoseconds that put a file's time of change visibly off."""


class FullGuard(EasyGuard):
    """A guard that has no room left."""

    def watch(self, memory: mmap.mmap) -> int:
        return -1


def file(directory: Path, size: int = 2 * SMALL_FILE) -> Path:
    path = directory / "file"
    path.write_bytes(bytes(range(256)) * (size // 256))
    return path


def packed(directory: Path, journal: bool = False) -> PackedTensors:
    """A packed file of two tensors, as it is while it is recorded where it has a journal."""
    array = np.ones(COUNT, np.float32).tobytes()
    header: dict[str, Any] = {
        name: {"dtype": "F32", "shape": [COUNT], "data_offsets": [at * len(array), (at + 1) * len(array)]}
        for at, name in enumerate("xy")
    }
    text = json.dumps(header).encode()
    head = len(text).to_bytes(8, "little") + text
    if journal:
        (directory / JOURNAL_FILE).write_text(json.dumps({"data_start": len(head), "header": header}))
        head = b" " * len(head)
    (directory / PACKED_FILE).write_bytes(head + array + array)
    return PackedTensors(directory)


def problem(array: np.ndarray[Any, Any]) -> str | None:
    memory = find_mapped_file(array)
    assert memory is not None
    return memory.find_problem()


def later(path: Path) -> None:
    """Have the file changed a while from now."""
    state = path.stat()
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns + A_WHILE))


def test_large_files_are_mapped_for_those_who_check_them(tmp_path: Path) -> None:
    """And read for all others: small ones, without a guard, and where it has no room."""
    path = file(tmp_path)
    with mapping(EasyGuard()):
        memory = open_memory(path)
        assert isinstance(memory, MappedFile) and memory.find_problem() is None
        assert memory[:] == path.read_bytes()
        assert isinstance(open_memory(file(tmp_path, SMALL_FILE)), bytes)
    path = file(tmp_path)
    for guard in (None, FullGuard()):
        with mapping(guard):
            assert open_memory(path) == path.read_bytes() or sys.platform == "win32"
    mapped_outside = open_memory(path)
    assert isinstance(mapped_outside, bytes) and mapped_outside == path.read_bytes()


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnreadableTensor, match="file is empty"):
        open_memory(tmp_path / "file")


def test_a_file_that_changes_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut off it ends too early; written to, nobody knows what was read."""
    read = reading.read

    def change(*arguments: Any) -> bytes:
        os.truncate(path, 100)
        return read(*arguments)

    def touch(*arguments: Any) -> bytes:
        later(path)
        return read(*arguments)

    path = file(tmp_path)
    monkeypatch.setattr(reading, "read", touch)
    with pytest.raises(UnreadableTensor, match="file was changed while it was read"):
        open_memory(path)
    monkeypatch.setattr(reading, "read", change)
    with pytest.raises(UnreadableTensor, match="file was cut off while it was read"):
        open_memory(path)


@NEVER_CUT
def test_what_is_said_of_mapped_files(tmp_path: Path) -> None:
    """Nothing of one that was replaced or removed: what was mapped is what it was."""
    path = file(tmp_path)
    with mapping(EasyGuard()):
        kept = open_memory(path)
        assert isinstance(kept, MappedFile)
        (tmp_path / "other").write_bytes(b"other")
        (tmp_path / "other").replace(path)
        assert kept.find_problem() is None
        path.unlink()
        assert kept.find_problem() is None
        memory = open_memory(file(tmp_path))
        assert isinstance(memory, MappedFile)
        later(path)
        assert memory.find_problem() == "file was changed while it was read"
        os.truncate(path, 5000)
        assert memory.find_problem() == "file was cut off while it was read"


@NEVER_CUT
def test_a_cut_npy_file_is_refused_before_it_is_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.ones(2 * COUNT))
    with mapping(EasyGuard()):
        array = load_npy(path)
        assert problem(array) is None
        os.truncate(path, 5000)
        assert problem(array) == "x.npy was cut off while it was read"
        with pytest.raises(UnreadableTensor, match="cut off"):
            load_npy(path)


@NEVER_CUT
@pytest.mark.parametrize("journal", [False, True])
def test_packed_files_that_are_read(tmp_path: Path, journal: bool) -> None:
    """Without a guard each tensor is read when it is asked for; one that is gone by then costs its row."""
    store = packed(tmp_path, journal)
    with mapping(None):
        np.testing.assert_array_equal(store.load("x"), np.ones(COUNT, np.float32))
        if not journal:
            later(tmp_path / PACKED_FILE)
            with pytest.raises(UnreadableTensor, match=f"{PACKED_FILE} was changed while it was read"):
                store.load("x")
        os.truncate(tmp_path / PACKED_FILE, 5000)
        for name in "xy":
            with pytest.raises(UnreadableTensor, match=f"{PACKED_FILE} was cut off while it was read"):
                store.load(name)


@NEVER_CUT
def test_a_packed_file_under_recording_grows(tmp_path: Path) -> None:
    """Neither this nor a write that was taken back is a problem; missing tensors are."""
    store = packed(tmp_path, journal=True)
    path = tmp_path / PACKED_FILE
    with path.open("ab") as growing:
        growing.write(bytes(SMALL_FILE))
    with mapping(EasyGuard()):
        array = store.load("x")
        size = path.stat().st_size
        with path.open("ab") as growing:
            growing.write(bytes(100))
        later(path)
        assert problem(array) is None
        os.truncate(path, size - SMALL_FILE)
        assert problem(array) is None
        os.truncate(path, size - SMALL_FILE - 1)
        assert problem(array) == f"{PACKED_FILE} was cut off while it was read"


@NEVER_CUT
def test_who_does_not_check_gets_a_copy_of_a_mapped_packed_file(tmp_path: Path) -> None:
    store = packed(tmp_path)
    with mapping(EasyGuard()):
        assert problem(store.load("x")) is None
    assert find_mapped_file(store.load("y")) is None
    later(tmp_path / PACKED_FILE)
    with pytest.raises(UnreadableTensor, match="was changed"):
        store.load("y")


@NEVER_CUT
def test_the_guard_forgets_mappings_that_are_gone(tmp_path: Path) -> None:
    """Its room is used again; with none left, files are read."""
    kernel = pytest.importorskip("probe_metrics._kernel")
    path = file(tmp_path)
    with mapping(kernel):
        for _ in range(10_000):
            assert isinstance(open_memory(path), MappedFile)
        with path.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as memory:
            numbers = []
            while (number := kernel.watch(memory)) >= 0:
                numbers.append(number)
            try:
                assert isinstance(open_memory(path), bytes)
            finally:
                for number in numbers:
                    kernel.unwatch(number)
        assert isinstance(open_memory(path), MappedFile)
    for number in (-1, len(numbers) + 10_000, 1 << 80):
        with pytest.raises((ValueError, OverflowError)):
            kernel.torn(number)
