"""Packed tensor files with damaged headers, and within a run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from probe_recording.file_names import PACKED_FILE
from probe_recording.reading import entries
from probe_recording.reading.packed import PackedTensors
from probe_recording.reading.run import DumpRun
from support.measuring import PROPERTY
from support.runs.packed import (
    X,
    entry,
    header_of,
    in_memory,  # noqa: F401
    journal,
    refuses,
    same,
    value,
    write,
    write_packed,
)
from support.runs.recorded import forward, tensor, write_run, write_tensor_run

from probe_core.errors import UnreadableTensor

# -- damaged headers -------------------------------------------------------------------------------


def length(number: int) -> bytes:
    return number.to_bytes(8, "little")


@pytest.mark.parametrize(
    ("content", "match"),
    [
        pytest.param(b"", "is empty", id="empty"),
        pytest.param(b"\2\0\0", "cut off within its header", id="shorter than the length"),
        pytest.param(bytes(3), "cut off within its header", id="zeros, shorter than the length"),
        pytest.param(bytes(99), "has no header", id="head not written yet"),
        pytest.param(b" " * 99, "has no header", id="head kept blank"),
        pytest.param(length(100) + b"{}", "cut off within its header", id="header beyond the end"),
        pytest.param(length((256 << 20) + 1) + b"{}", "claims a header", id="header over the limit"),
        pytest.param(b"\xff" * 8 + b"{}", "claims a header", id="header of 16 EiB"),
        pytest.param(length(2) + b"{]", "not valid JSON", id="not JSON"),
        pytest.param(length(2) + b"  ", "not valid JSON", id="blank"),
        pytest.param(length(2) + b"[]", "not a JSON object", id="a list"),
        pytest.param(length(4) + b"null", "not a JSON object", id="null"),
        pytest.param(length(7) + b'{"a":1\xff', "not valid JSON", id="not UTF-8"),
        pytest.param(length(200_000) + b"[" * 200_000, "not valid JSON", id="brackets without end"),
        pytest.param(length(9) + b'{"a":NaN}', "not valid JSON", id="NaN"),
        pytest.param(length(15) + b'{"a":-Infinity}', "not valid JSON", id="infinity"),
        pytest.param(length(9005) + b'{"a":' + b"9" * 8999 + b"}", "not valid JSON", id="a number of 9000 digits"),
        pytest.param(b"PK\x03\x04" + b"\x14\0\0\0" + bytes(200), "claims a header", id="a zip"),
        pytest.param(length(20) + b'{"__metadata__": []}', "metadata are not", id="metadata a list"),
    ],
)
def test_a_damaged_head(tmp_path: Path, content: bytes, match: str) -> None:
    (tmp_path / PACKED_FILE).write_bytes(content)
    store = PackedTensors(tmp_path)
    refuses(store, match)
    assert "x" not in store and store.problem is not None


@pytest.mark.parametrize("key", ["alias", "dtype", "shape"])
@pytest.mark.parametrize("text", ["[]", "", "{", '{"x": NaN}', {}, None, 1])
def test_damaged_metadata(tmp_path: Path, key: str, text: Any) -> None:
    header, data = header_of({"x": X})
    refuses(write(tmp_path, {"__metadata__": {key: text}, **header}, data), "metadata")


def test_metadata_of_other_tools_are_ignored(tmp_path: Path) -> None:
    header, data = header_of({"x": X})
    same(write(tmp_path / "a", {"__metadata__": {"format": "pt", "n": 1}, **header}, data).load("x"), X)
    same(write(tmp_path / "b", {"__metadata__": None, **header}, data).load("x"), X)


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        pytest.param(None, "JSON object", id="null"),
        pytest.param([], "JSON object", id="a list"),
        pytest.param({}, "no element type", id="nothing said"),
        pytest.param(entry("F33"), 'element type "F33"', id="unknown dtype"),
        pytest.param(entry("float32"), "not known", id="numpy's name"),
        pytest.param(entry("Z\n" * 10**6), "not known", id="long dtype"),
        pytest.param(entry(["F32"]), "no element type", id="dtype a list"),
        pytest.param(entry("F64"), "more or fewer bytes", id="wider dtype"),
        pytest.param(entry("F16"), "more or fewer bytes", id="narrower dtype"),
        pytest.param(entry(shape=None), "no list of sizes", id="no shape"),
        pytest.param(entry(shape="23"), "no list of sizes", id="shape a text"),
        pytest.param(entry(shape=(-2, -3)), "negative or non-integer size", id="negative sizes whose product is right"),
        pytest.param(entry(shape=(2.0, 3)), "negative or non-integer size", id="size a float"),
        pytest.param(entry(shape=(True, 6)), "negative or non-integer size", id="size a boolean"),
        pytest.param(entry(shape=(2, 4)), "more or fewer bytes", id="one column more"),
        pytest.param(entry(shape=()), "more or fewer bytes", id="scalar of six elements"),
        pytest.param(entry(shape=(2**70, 2**70)), "more or fewer bytes", id="beyond 64 bit"),
        pytest.param(entry(shape=(2**62, 4)), "more or fewer bytes", id="product that wraps to 0"),
        pytest.param(entry(shape=(int("9" * 4000),) * 32), "more or fewer bytes", id="digits without end"),
        pytest.param(entry(shape=(0, 2**70), offsets=(0, 0)), "no array", id="empty beyond 64 bit"),
        pytest.param(entry(shape=(0, 2**40, 2**40), offsets=(0, 0)), "no array", id="empty, product beyond 64 bit"),
        pytest.param(entry(shape=(1,) * 31 + (2, 3)), "dimensions", id="too many dimensions"),
        pytest.param(entry(offsets=None), "pair of whole", id="no offsets"),
        pytest.param(entry(offsets=(0,)), "pair of whole", id="one offset"),
        pytest.param(entry(offsets=(0, 24, 48)), "pair of whole", id="three offsets"),
        pytest.param(entry(offsets=(0.0, 24.0)), "pair of whole", id="offsets floats"),
        pytest.param(entry(offsets=(False, 24)), "pair of whole", id="offset a boolean"),
        pytest.param(entry(offsets=(24, 0)), "ends before", id="ends before it begins"),
        pytest.param(entry(offsets=(-24, 0)), "begins before", id="begins in the header"),
        pytest.param(entry(offsets=(1, 25)), "beyond the end", id="one byte beyond the end"),
        pytest.param(entry(offsets=(2**64, 2**64 + 24)), "beyond the end", id="far beyond the end"),
    ],
)
def test_a_damaged_entry_costs_its_tensor(tmp_path: Path, fields: Any, match: str) -> None:
    store = write(tmp_path, {"x": fields, "good": entry()}, X.tobytes())
    refuses(store, match)
    same(store.load("good"), X)
    assert store.problem is None and "x" in store, "another file is not taken for it"


@pytest.mark.parametrize(
    ("fields", "dtype", "shape", "match"),
    [
        (entry("U8", [16]), "complex128", [1], "more or fewer bytes"),
        (entry("U8", [24]), "complex128", [1], "more or fewer bytes"),
        (entry("U8", [24]), "complex64", [-3], "negative or non-integer size"),
        (entry("U8", [24]), "complex64", None, "no list of sizes"),
        (entry("U8", [24]), "object", [3], "not known"),
        (entry("U8", [24]), "V8", [3], "not known"),
        (entry("U8", [24]), "__file__", [24], "not known"),
        (entry("U8", [24]), None, [24], "no element type"),
        (entry("U8", [2, 12]), "complex64", [3], "row of bytes"),
        (entry("F32", [6]), "complex64", [3], "row of bytes"),
    ],
)
def test_damaged_extended_entries(tmp_path: Path, fields: Any, dtype: Any, shape: Any, match: str) -> None:
    metadata = {"dtype": json.dumps({"x": dtype}), "shape": json.dumps({} if shape is None else {"x": shape})}
    store = write(tmp_path, {"__metadata__": metadata, "x": fields}, X.tobytes())
    refuses(store, match)


def test_cut_off_anywhere(tmp_path: Path) -> None:
    write_packed(tmp_path, {"x": X})
    whole = (tmp_path / PACKED_FILE).read_bytes()
    for end in range(len(whole)):
        (tmp_path / PACKED_FILE).write_bytes(whole[:end])
        refuses(PackedTensors(tmp_path), "cut off|empty")


def test_names_of_strangers_are_printable(tmp_path: Path) -> None:
    refuses(write(tmp_path, {"x\x1b[2J\n\ud800": {}}), r"x\\x1b\[2J\\n\\ud800 has no", "x\x1b[2J\n\ud800")


def test_without_ml_dtypes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The core does not depend on it: only the tensors that need it are lost."""
    store = write_packed(tmp_path, {"x": X.astype(ml_dtypes.bfloat16), "good": X})
    entries.find_dtype.cache_clear()
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(UnreadableTensor, match="x holds bfloat16, which needs the package ml_dtypes"):
        store.load("x")
    same(store.load("good"), X)


@PROPERTY
@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=4))
def test_damaged_bytes(tmp_path_factory: pytest.TempPathFactory, damage: list[tuple[int, int]]) -> None:
    """Files with a few wrong bytes give an array or a refusal."""
    directory = tmp_path_factory.getbasetemp() / "damaged"
    write_packed(directory, {"a": X, "c": np.ones(2, np.complex128)}, alias={"x": "a"})
    content = bytearray((directory / PACKED_FILE).read_bytes())
    for position, byte in damage:
        content[position % len(content)] = byte
    (directory / PACKED_FILE).write_bytes(content)
    store = PackedTensors(directory)
    for name in ("a", "c", "x"):
        try:
            assert store.load(name).nbytes <= len(content)
        except UnreadableTensor as error:
            assert str(error)


# -- in a run --------------------------------------------------------------------------------------


NAME = "Torch.exp.0.forward"


def packed_run(directory: Path, tensors: dict[str, np.ndarray], **metadata: Any) -> Path:
    """A packed PyTorch run of one call: the first tensor is its output, the others are its inputs."""
    names = [f"{NAME}.output.0", *(f"{NAME}.input.{number}" for number in range(9))]
    arrays = dict(zip(names, tensors.values()))
    leaves = [
        tensor(list(array.shape), dtype=f"torch.{array.dtype.name}", data_name=f"{name}.pt")
        for name, array in arrays.items()
    ]
    path = write_run(directory, {NAME: forward(*leaves[1:], output=leaves[:1])}, task="tensor")
    kept = {name: array for name, array in arrays.items() if name not in metadata.get("alias", {})}
    write_packed(directory / "dump_tensor_data", kept, **metadata)
    return path


def no_file(path: Path) -> np.ndarray:
    raise FileNotFoundError(path)


def own_file(path: str) -> np.ndarray:
    return np.full((2, 3), len(Path(path).name), np.float32)


def test_a_run_reads_what_is_packed_and_falls_back_to_files(tmp_path: Path) -> None:
    path = packed_run(tmp_path, {"x": X})
    (tmp_path / "dump_tensor_data" / "other.pt").touch()
    run = DumpRun(path, "pytorch", own_file)
    same(run.tensor(value(f"{NAME}.output.0.pt")), X)
    same(run.tensor(value("other.pt")), np.full((2, 3), 8, np.float32))
    with pytest.raises(UnreadableTensor, match=r"no gone\.pt, and none in tensors\.safetensors") as caught:
        run.tensor(value("gone.pt"))
    assert caught.value.missing
    run.close()


def test_a_run_that_is_not_packed(tmp_path: Path) -> None:
    run = DumpRun(write_run(tmp_path, {NAME: forward(tensor())}, task="tensor"), "pytorch", no_file)
    with pytest.raises(UnreadableTensor, match=r"^there is no gone\.pt$") as caught:
        run.tensor(value("gone.pt"))
    assert caught.value.missing


def test_a_run_whose_packed_file_is_damaged(tmp_path: Path) -> None:
    """Tensors with files of their own are read; the others are reported as damaged, not as missing."""
    path = packed_run(tmp_path, {"x": X})
    (tmp_path / "dump_tensor_data" / PACKED_FILE).write_bytes(b"\xff" * 99)
    (tmp_path / "dump_tensor_data" / "other.pt").touch()
    run = DumpRun(path, "pytorch", own_file)
    same(run.tensor(value("other.pt")), np.full((2, 3), 8, np.float32))
    with pytest.raises(UnreadableTensor, match="claims a header") as caught:
        run.tensor(value(f"{NAME}.output.0.pt"))
    assert not caught.value.missing


def test_tensors_outlive_the_run(tmp_path: Path) -> None:
    run = DumpRun(packed_run(tmp_path, {"x": X}), "pytorch", no_file)
    array = run.tensor(value(f"{NAME}.output.0.pt"))
    run.close()
    run.close()
    same(array, X)


TENSORS = {
    "out": X,
    "in0": X.astype(ml_dtypes.bfloat16),
    "in1": np.ones(4, np.complex64),
    "in2": X[:0],
    "in3": X,
}
ALIAS = {f"{NAME}.input.3": f"{NAME}.output.0"}


def test_packed_runs_are_compared(rows_of: Any, tmp_path: Path) -> None:
    target = packed_run(tmp_path / "t", TENSORS, alias=ALIAS)
    golden = packed_run(tmp_path / "g", {**TENSORS, "out": X + 1, "in3": X + 1}, alias=ALIAS)
    rows = {row["NPU Name"].removeprefix(f"{NAME}."): row for row in rows_of(target, golden)}
    assert [rows[f"input.{number}"]["Cosine"] for number in (0, 1)] == [1, 1]
    assert rows["input.2"]["Err_message"] == "This is empty data, can not compare."
    assert rows["output.0"]["MaxAbsErr"] == rows["input.3"]["MaxAbsErr"] == 1


def test_a_packed_run_compares_as_one_of_files(rows_of: Any, tmp_path: Path) -> None:
    """The same tensors, once packed and once in files: the rows are the same."""
    calls = {"Mint.add.0.forward": ([X, X + 1], [X * 2])}
    files = [write_tensor_run(tmp_path / f"f{side}", calls) for side in "tg"]
    runs = [write_tensor_run(tmp_path / f"p{side}", calls) for side in "tg"]
    for run in runs:
        directory = run.parent / "dump_tensor_data"
        found = {file.stem: np.load(file) for file in directory.iterdir()}
        for file in list(directory.iterdir()):
            file.unlink()
        write_packed(directory, found)
        run.write_text(run.read_text().replace(".npy", ".pt"))
    assert rows_of(*runs) == [json.loads(json.dumps(row).replace(".npy", ".pt")) for row in rows_of(*files)]


def test_damage_costs_rows_and_is_reported_once(probe: Any, tmp_path: Path) -> None:
    target, golden = packed_run(tmp_path / "t", TENSORS), packed_run(tmp_path / "g", TENSORS)
    file = golden.parent / "dump_tensor_data" / PACKED_FILE
    file.write_bytes(file.read_bytes().replace(b'"BF16"', b'"BF61"'))
    assert probe("compare", target, golden, "-o", tmp_path / "o", "--format", "jsonl") == 2
    assert "1 tensor file could not be read" in probe.err and 'element type "BF61"' in probe.err
    assert "Traceback" not in probe.err
    (result,) = (tmp_path / "o").glob("*.jsonl")
    assert [json.loads(line)["Cosine"] for line in result.read_text().splitlines()].count(1) >= 3


def test_a_killed_recording_is_compared(rows_of: Any, tmp_path: Path) -> None:
    target, golden = packed_run(tmp_path / "t", TENSORS), packed_run(tmp_path / "g", TENSORS)
    directory = golden.parent / "dump_tensor_data"
    content = bytearray((directory / PACKED_FILE).read_bytes())
    end = 8 + int.from_bytes(content[:8], "little")
    journal(directory, json.loads(content[8:end]), end)
    content[:end] = bytes(end)
    (directory / PACKED_FILE).write_bytes(content)
    assert [row["Cosine"] for row in rows_of(target, golden)].count(1) >= 3
