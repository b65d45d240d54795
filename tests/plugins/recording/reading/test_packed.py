"""Packed tensor files: what was packed comes back, also of other writers and half-written."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from probe_recording.file_names import JOURNAL_FILE, PACKED_FILE
from probe_recording.reading import packed
from probe_recording.reading.packed import PackedTensors
from support.measuring import PROPERTY, EasyGuard, mapping
from support.runs.packed import (
    NATIVE,
    X,
    header_of,
    in_memory,  # noqa: F401
    journal,
    refuses,
    same,
    write,
    write_packed,
)

from probe_core.errors import UnreadableTensor

NOT_NATIVE = [
    "complex64",
    "complex128",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "float8_e4m3b11fnuz",
    "float8_e3m4",
]
# -- what was packed -------------------------------------------------------------------------------


@pytest.mark.parametrize("code", NATIVE)
def test_every_element_type(tmp_path: Path, code: str) -> None:
    array = np.arange(96, dtype=np.uint8).astype(np.bool_ if code == "BOOL" else np.uint8)
    array = array.view(NATIVE[code]).reshape(3, -1)
    store = write(
        tmp_path, {"x": {"dtype": code, "shape": list(array.shape), "data_offsets": [0, 96]}}, array.tobytes()
    )
    same(store.load("x"), array)


@pytest.mark.parametrize("dtype", NOT_NATIVE)
@pytest.mark.parametrize("shape", [(2, -1), (-1,)])
def test_element_types_that_safetensors_lacks(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    real = np.dtype(getattr(ml_dtypes, dtype, dtype))
    array = np.arange(64, dtype=np.uint8).view(real).reshape(shape)
    entry = {"dtype": "U8", "shape": [64], "data_offsets": [0, 64]}
    metadata = {"dtype": json.dumps({"x": dtype}), "shape": json.dumps({"x": list(array.shape)})}
    store = write(tmp_path, {"__metadata__": metadata, "x": entry}, array.tobytes())
    same(store.load("x"), array)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (0, 2, 5), (1,), (1, 1, 1), (2, 3, 4)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex128", "bool"])
def test_shapes(tmp_path: Path, shape: tuple[int, ...], dtype: str) -> None:
    array = np.ones(shape, getattr(ml_dtypes, dtype, dtype))
    store = write_packed(tmp_path, {"before": np.ones(3, np.int8), "x": array, "behind": X})
    same(store.load("x"), array)
    same(store.load("behind"), X)


def test_a_file_of_empty_tensors_alone(tmp_path: Path) -> None:
    same(write_packed(tmp_path, {"x": X[:0]}).load("x"), X[:0])


def test_is_a_read_only_view_of_one_mapping(tmp_path: Path) -> None:
    """Nothing is copied, and nothing can be written to a recording; an empty one is no exception."""
    store = write_packed(tmp_path, {"x": X, "y": X, "empty": X[:0]})
    with mapping(EasyGuard()):
        assert store.load("x").base is store.load("y").base is not None
    for name in ("x", "empty"):
        with pytest.raises(ValueError, match="read-only"):
            store.load(name)[...] = 1


def test_data_that_are_not_aligned(tmp_path: Path) -> None:
    store = write(tmp_path, *header_of({"odd": np.ones(1, np.int8), "x": X}), pad=1)
    same(store.load("x"), X)
    assert store.load("x").astype(np.float64).sum() == X.sum()


def test_an_alias_stands_for_its_entry(tmp_path: Path) -> None:
    tensors = {"a": X, "c": np.ones(3, np.complex128), "held": X + 1}
    store = write_packed(tmp_path, tensors, alias={"x": "a", "y": "a", "z": "c", "held": "a"})
    same(store.load("x"), X)
    same(store.load("y"), X)
    same(store.load("z"), tensors["c"])
    same(store.load("held"), X + 1)
    assert "x" in store and "w" not in store


@pytest.mark.parametrize("stored", ["gone", "y", "x", "__metadata__", 3, None, ["a"]])
def test_an_alias_of_no_entry_is_refused(tmp_path: Path, stored: Any) -> None:
    """Aliases of aliases are not followed, so that they cannot go round either."""
    store = write_packed(tmp_path, {"a": X}, alias={"y": "a", "x": stored})
    refuses(store, "x stands for a tensor that is not there")
    same(store.load("a"), X)


def test_overlapping_entries(tmp_path: Path) -> None:
    header, data = header_of({"a": X, "b": X})
    header["b"]["data_offsets"] = [0, 24]
    store = write(tmp_path, header, data[:24])
    same(store.load("b"), X)


def test_a_name_that_is_not_there(tmp_path: Path) -> None:
    store = write_packed(tmp_path, {"a": X})
    for name in ("x", "", "__metadata__"):
        assert name not in store
        with pytest.raises(UnreadableTensor, match="holds no") as caught:
            store.load(name)
        assert caught.value.missing


def test_pages_are_let_go_and_views_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays that were handed out are still right after the pages behind them were dropped."""
    monkeypatch.setattr(packed, "MAX_MAPPED_BYTES", 10_000)
    tensors = {f"t{i}": np.full(2000, i, np.float32) for i in range(20)}
    store = write_packed(tmp_path, tensors)
    views = {name: store.load(name) for name in tensors}
    for name, array in tensors.items():
        same(views[name], array)


def test_the_header_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a sound file and of a damaged one: each tensor asks, and there may be 100,000."""
    calls = []
    monkeypatch.setattr(packed, "_read", lambda path, read=packed._read: calls.append(path) or read(path))
    good, bad = write_packed(tmp_path / "a", {"x": X}), write(tmp_path / "b", b"[")
    for _ in range(3):
        good.load("x")
        refuses(bad, "not valid JSON")
    assert calls == [tmp_path / "a", tmp_path / "b"]


@PROPERTY
@given(st.dictionaries(st.text(st.characters(exclude_categories=())).filter(lambda n: n != "__metadata__"),
                       st.tuples(st.sampled_from([*NATIVE.values(), np.complex128]), st.lists(st.integers(0, 4), max_size=4))))  # fmt: skip
def test_any_tensors_come_back(tmp_path_factory: pytest.TempPathFactory, drawn: Any) -> None:
    tensors = {name: np.ones(shape, dtype) for name, (dtype, shape) in drawn.items()}
    store = write_packed(tmp_path_factory.getbasetemp() / "any", tensors)
    for name, array in tensors.items():
        same(store.load(name), array)


# -- other writers ---------------------------------------------------------------------------------


def test_the_file_of_the_safetensors_package(tmp_path: Path) -> None:
    numpy = pytest.importorskip("safetensors.numpy")
    tensors = {
        f"Torch.exp.0.forward.input.{code}": np.arange(8).astype(dtype).reshape(2, 4)
        for code, dtype in NATIVE.items()
        if np.dtype(dtype).kind in "biuf" and np.dtype(dtype).isbuiltin == 1
    }
    tensors |= {"scalar": np.array(2.5), "empty": np.ones((0, 3), np.int16)}
    numpy.save_file(tensors, tmp_path / PACKED_FILE, {"alias": '{"x": "scalar"}'})
    store = PackedTensors(tmp_path)
    for name, array in tensors.items():
        same(store.load(name), array)
    same(store.load("x"), tensors["scalar"])


def test_our_files_are_files_of_the_safetensors_package(tmp_path: Path) -> None:
    """The helper of these tests writes the real format."""
    numpy = pytest.importorskip("safetensors.numpy")
    tensors = {"a": X, "b": np.array(3), "c": np.ones(4, np.complex128)}
    write_packed(tmp_path, tensors)
    found = numpy.load_file(tmp_path / PACKED_FILE)
    same(found["a"], X)
    same(found["c"].view(np.complex128), tensors["c"])


# -- the journal -----------------------------------------------------------------------------------


@pytest.mark.parametrize("head", [b"", b" " * 64, b"\0" * 64, b"\xff" * 64, b"half of a header {"])
def test_a_recording_that_was_killed(tmp_path: Path, head: bytes) -> None:
    """The head of the file is not final, and what follows the last journal is of no account."""
    header, data = header_of({"a": X, "c": np.ones(2, np.complex64)}, alias={"x": "a"})
    (tmp_path / PACKED_FILE).write_bytes(head + data + b"half a tensor")
    journal(tmp_path, header, len(head))
    store = PackedTensors(tmp_path)
    same(store.load("x"), X)
    same(store.load("c"), np.ones(2, np.complex64))


def test_the_journal_is_preferred(tmp_path: Path) -> None:
    header, data = header_of({"x": X, "y": X + 1})
    store = write(tmp_path, header, data)
    start = (tmp_path / PACKED_FILE).stat().st_size - len(data)
    journal(tmp_path, {"x": header["y"]}, start)
    same(store.load("x"), X + 1)
    assert "y" not in store


def test_a_journal_that_its_file_outgrew(tmp_path: Path) -> None:
    """A completed copy took the file's place, data further back, and the journal was not yet removed."""
    header, data = header_of({"a": X + 1, "x": X})
    store = write(tmp_path, header, data, pad=512)
    journal(tmp_path, header, 64)
    same(store.load("x"), X)


def test_a_file_shorter_than_its_journal_says(tmp_path: Path) -> None:
    header, _ = header_of({"x": X})
    (tmp_path / PACKED_FILE).write_bytes(b" " * 63)
    journal(tmp_path, header, 64)
    refuses(PackedTensors(tmp_path), "ends before its data begin")


def test_data_that_did_not_reach_the_disk(tmp_path: Path) -> None:
    """After a crash of the machine the journal may know more than the file holds."""
    header, data = header_of({"a": X, "x": X})
    (tmp_path / PACKED_FILE).write_bytes(bytes(16) + data[:-1])
    journal(tmp_path, header, 16)
    store = PackedTensors(tmp_path)
    same(store.load("a"), X)
    refuses(store, "x reaches beyond the end of the file")


@pytest.mark.parametrize("content", [b"", bytes(8), b"x" * 20])
def test_a_file_that_cannot_be_read_is_closed(tmp_path: Path, content: bytes) -> None:
    (tmp_path / PACKED_FILE).write_bytes(content)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        refuses(PackedTensors(tmp_path), PACKED_FILE)
    assert not [one for one in caught if str(tmp_path) in str(one.message)]


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "json is not valid JSON"),
        (b"[1]", "json is not a JSON object"),
        (b'{"header": {}}', "not a non-negative integer"),
        (b'{"data_start": -1, "header": {}}', "not a non-negative integer"),
        (b'{"data_start": true, "header": {}}', "not a non-negative integer"),
        (b'{"data_start": 1e3, "header": {}}', "not a non-negative integer"),
        (b'{"data_start": 0, "header": []}', '"header" is not a JSON object'),
        (b'{"data_start": 0}', '"header" is not a JSON object'),
    ],
)
def test_a_damaged_journal(tmp_path: Path, content: bytes, match: str) -> None:
    store = write_packed(tmp_path, {"x": X})
    (tmp_path / JOURNAL_FILE).write_bytes(content)
    refuses(store, match)


@pytest.mark.parametrize("file", [PACKED_FILE, JOURNAL_FILE])
def test_links_that_lead_out(tmp_path: Path, file: str) -> None:
    header, data = header_of({"x": X})
    write(tmp_path / "run", header, data)
    journal(tmp_path / "run", header, 8 + len(json.dumps(header)))
    (tmp_path / "run" / file).rename(tmp_path / "secret")
    (tmp_path / "run" / file).symlink_to(tmp_path / "secret")
    refuses(PackedTensors(tmp_path / "run"), "points outside the run directory")


def test_a_link_that_stays_and_a_run_behind_a_link(tmp_path: Path) -> None:
    write_packed(tmp_path / "run", {"x": X})
    (tmp_path / "run" / PACKED_FILE).rename(tmp_path / "run" / "other")
    (tmp_path / "run" / PACKED_FILE).symlink_to("other")
    (tmp_path / "link").symlink_to(tmp_path / "run")
    same(PackedTensors(tmp_path / "link").load("x"), X)


@pytest.mark.parametrize("file", [PACKED_FILE, JOURNAL_FILE])
@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_what_is_no_file_is_not_opened(tmp_path: Path, file: str, make: Callable[[Path], None]) -> None:
    store = write_packed(tmp_path, {"x": X})
    (tmp_path / file).unlink(missing_ok=True)
    make(tmp_path / file)
    refuses(store, "is not a regular file")
