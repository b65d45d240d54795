"""The packed signs of a step, written, read, and damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from probe_watch.grad_probe.names import format_direction_file_name, get_packed_path
from probe_watch.grad_probe.packed import PackedSigns, PackedWriter

from probe_core.errors import UnreadableTensor

ARRAYS: dict[str, Any] = {
    "weight": np.arange(15).reshape(3, 5) % 3 == 0,
    "whole": np.ones(16, bool),
    "scalar": np.array(True),
    "empty": np.zeros((0, 4), bool),
    "a/b é\n": np.array([False, True]),
}


def written(directory: Path, arrays: dict[str, Any] = ARRAYS, listed: dict[str, Any] | None = None) -> Path:
    shapes = {name: array.shape for name, array in (listed or arrays).items()}
    writer = PackedWriter(directory, 3, shapes)
    for name, array in arrays.items():
        writer.add(name, array)
    writer.commit()
    return get_packed_path(directory, 3)


def unpacked(signs: PackedSigns, name: str) -> Any:
    shape, bits = signs.load(name)
    count = int(np.prod(shape))
    return np.unpackbits(bits, count=count, bitorder="little").astype(bool).reshape(shape)


def test_signs_are_read_as_they_were_written(tmp_path: Path) -> None:
    signs = PackedSigns(written(tmp_path))
    for name, array in ARRAYS.items():
        assert name in signs and np.array_equal(unpacked(signs, name), array)
        assert unpacked(signs, name).shape == array.shape
    assert "other" not in signs
    assert [path.name for path in tmp_path.iterdir()] == ["grad_directions_3.safetensors"]


def test_the_file_is_a_safetensors_file(tmp_path: Path) -> None:
    load_file = pytest.importorskip("safetensors.numpy").load_file
    loaded = load_file(written(tmp_path))
    assert loaded.keys() == ARRAYS.keys()
    assert loaded["weight"].tolist() == np.packbits(ARRAYS["weight"], bitorder="little").tolist()


def test_a_gradient_that_was_not_measured_has_no_entry(tmp_path: Path) -> None:
    first = {"weight": ARRAYS["weight"]}
    signs = PackedSigns(written(tmp_path, first, ARRAYS))
    assert "weight" in signs and "whole" not in signs
    assert np.array_equal(unpacked(signs, "weight"), ARRAYS["weight"])


def test_an_unfinished_file_is_removed(tmp_path: Path) -> None:
    writer = PackedWriter(tmp_path, 0, {"a": (2,)})
    writer.add("a", np.ones(2, bool))
    writer.discard()
    assert not list(tmp_path.iterdir())


def test_a_file_that_was_cut_off_anywhere_is_refused_or_read_in_part(tmp_path: Path) -> None:
    path = written(tmp_path)
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        try:
            signs = PackedSigns(path)
        except UnreadableTensor:
            continue
        for name, array in ARRAYS.items():
            try:
                assert np.array_equal(unpacked(signs, name), array)
            except UnreadableTensor as error:
                assert "cut off" in str(error)


def with_header(tmp_path: Path, header: Any) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path = get_packed_path(tmp_path, 3)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"\xff" * 4)
    return path


META = {"format": "probe-gradient-signs", "version": "1", "shapes": '{"a": [9]}'}
ENTRY = {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"[" * 100_000,
        b"\xff\xfe",
        [],
        {},
        {"a": ENTRY},
        {"__metadata__": []},
        {"__metadata__": {**META, "format": "other"}},
        {"__metadata__": {**META, "version": "2"}},
        {"__metadata__": {**META, "shapes": "[]"}},
        {"__metadata__": {**META, "shapes": 3}},
    ],
)
def test_a_wrong_header_is_refused(header: Any, tmp_path: Path) -> None:
    with pytest.raises(UnreadableTensor, match="is damaged"):
        PackedSigns(with_header(tmp_path, header))


@pytest.mark.parametrize(
    ("entry", "shape"),
    [
        (None, [9]),
        (3, [9]),
        ({**ENTRY, "dtype": "F32"}, [9]),
        ({**ENTRY, "data_offsets": [0]}, [9]),
        ({**ENTRY, "data_offsets": [0, 2, 4]}, [9]),
        ({**ENTRY, "data_offsets": ["0", "2"]}, [9]),
        ({**ENTRY, "data_offsets": [0.0, 2.0]}, [9]),
        ({**ENTRY, "data_offsets": [-2, 0]}, [9]),
        ({**ENTRY, "data_offsets": [2, 0]}, [9]),
        ({**ENTRY, "data_offsets": [0, 3]}, [9]),
        ({**ENTRY, "data_offsets": [3, 5]}, [9]),
        (ENTRY, None),
        (ENTRY, [-9]),
        (ENTRY, [True, 9]),
        (ENTRY, [9.0]),
        (ENTRY, [1] * 32 + [9]),
        (ENTRY, [2**62, 2**62]),
    ],
)
def test_a_wrong_entry_is_refused(entry: Any, shape: Any, tmp_path: Path) -> None:
    metadata = {**META, "shapes": json.dumps({"a": shape} if shape else {})}
    signs = PackedSigns(with_header(tmp_path, {"__metadata__": metadata, "a": entry}))
    with pytest.raises(UnreadableTensor, match=r"damaged: the entry of a is wrong|cut off within"):
        signs.load("a")


def test_file_names_are_unique_and_short() -> None:
    names = ["a", "a/b", "a%2Fb", "a_b", "..", "x" * 300, "x" * 301, "é" * 200, "\ud800"]
    files = [format_direction_file_name(name) for name in names]
    assert len({*files}) == len(names) and files[:2] == ["a.npy", "a%2Fb.npy"]
    assert all(len(file.encode()) <= 255 and "/" not in file and file.endswith(".npy") for file in files)
