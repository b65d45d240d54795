"""Reading the packed store: what was packed comes back; what is damaged or hostile costs a row and no more."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from probe_recording.reading import packed
from probe_recording.reading.packed import PackedTensors
from probe_recording.reading.run import DumpRun
from support.measuring import PROPERTY, EasyGuard, mapping
from support.runs.recorded import forward, tensor, write_run, write_tensor_run

from probe_core.errors import UnreadableTensor
from probe_core.model import Kind, Value
from probe_core.store.files import JOURNAL_FILE, PACKED_FILE

NATIVE = {
    "F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16, "I64": np.int64,
    "I32": np.int32, "I16": np.int16, "I8": np.int8, "U64": np.uint64, "U32": np.uint32, "U16": np.uint16,
    "U8": np.uint8, "BOOL": np.bool_, "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu, "C64": np.complex64, "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
}  # fmt: skip
NOT_NATIVE = [
    "complex64",
    "complex128",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "float8_e4m3b11fnuz",
    "float8_e3m4",
]
CODES = {np.dtype(dtype): code for code, dtype in NATIVE.items()}
X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(autouse=True, scope="module", params=[EasyGuard(), None], ids=["mapped", "read"])
def in_memory(request: pytest.FixtureRequest) -> Iterator[None]:
    """Files are mapped, and read where nobody guards a mapping."""
    with mapping(request.param):
        yield


def header_of(tensors: dict[str, np.ndarray], **metadata: Any) -> tuple[dict[str, Any], bytes]:
    """The header and the data of a packed file; tensors that are no array with a code are stored as bytes."""
    header: dict[str, Any] = {}
    data = b""
    extra: dict[str, dict[str, Any]] = {"dtype": {}, "shape": {}}
    for name, array in tensors.items():
        code = CODES.get(array.dtype)
        begin, data = len(data), data + array.tobytes()
        if code is None:
            extra["dtype"][name], extra["shape"][name] = array.dtype.name, list(array.shape)
        header[name] = {
            "dtype": code or "U8",
            "shape": list(array.shape) if code else [array.nbytes],
            "data_offsets": [begin, len(data)],
        }
    texts = {key: json.dumps(value) for key, value in {**extra, **metadata}.items() if value}
    return {"__metadata__": texts, **header} if texts else header, data


def write(directory: Path, header: Any, data: bytes = b"", pad: int = 8) -> PackedTensors:
    """A packed file with ``header``, an object or its text."""
    directory.mkdir(parents=True, exist_ok=True)
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % pad)
    (directory / PACKED_FILE).write_bytes(len(text).to_bytes(8, "little") + text + data)
    return PackedTensors(directory)


def write_packed(directory: Path, tensors: dict[str, np.ndarray], **metadata: Any) -> PackedTensors:
    return write(directory, *header_of(tensors, **metadata))


def same(found: np.ndarray, array: np.ndarray) -> None:
    assert found.dtype == array.dtype and found.shape == array.shape
    assert found.tobytes() == array.tobytes()


def refuses(store: PackedTensors, match: str, name: str = "x") -> None:
    """Loading ends in the one exception that costs a row, on one line that names what is damaged."""
    with pytest.raises(UnreadableTensor, match=match) as caught:
        store.load(name)
    message = str(caught.value)
    assert not caught.value.missing
    assert "\n" not in message and len(message) < 300 and message.startswith(("tensors.", "the header", '"'))


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
    """What was handed out is still right after the pages behind it were dropped."""
    monkeypatch.setattr(packed, "KEPT_MAPPED", 10_000)
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


def journal(directory: Path, header: Any, start: Any) -> None:
    (directory / JOURNAL_FILE).write_text(json.dumps({"data_start": start, "header": header}))


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


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "json is not valid JSON"),
        (b"[1]", "json is not a JSON object"),
        (b'{"header": {}}', "no whole number"),
        (b'{"data_start": -1, "header": {}}', "no whole number"),
        (b'{"data_start": true, "header": {}}', "no whole number"),
        (b'{"data_start": 1e3, "header": {}}', "no whole number"),
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
        pytest.param(
            length(9005) + b'{"a":' + b"9" * 8999 + b"}", "not valid JSON", id="a number of 9000 digits"
        ),
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


def test_metadata_of_others_are_of_no_account(tmp_path: Path) -> None:
    header, data = header_of({"x": X})
    same(write(tmp_path / "a", {"__metadata__": {"format": "pt", "n": 1}, **header}, data).load("x"), X)
    same(write(tmp_path / "b", {"__metadata__": None, **header}, data).load("x"), X)


def entry(dtype: Any = "F32", shape: Any = (2, 3), offsets: Any = (0, 24)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


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
        pytest.param(entry(shape=(-2, -3)), "no whole number", id="negative sizes whose product is right"),
        pytest.param(entry(shape=(2.0, 3)), "no whole number", id="size a float"),
        pytest.param(entry(shape=(True, 6)), "no whole number", id="size a boolean"),
        pytest.param(entry(shape=(2, 4)), "more or fewer bytes", id="one column more"),
        pytest.param(entry(shape=()), "more or fewer bytes", id="scalar of six elements"),
        pytest.param(entry(shape=(2**70, 2**70)), "more or fewer bytes", id="beyond 64 bit"),
        pytest.param(entry(shape=(2**62, 4)), "more or fewer bytes", id="product that wraps to 0"),
        pytest.param(entry(shape=(int("9" * 4000),) * 32), "more or fewer bytes", id="digits without end"),
        pytest.param(entry(shape=(0, 2**70), offsets=(0, 0)), "no array", id="empty beyond 64 bit"),
        pytest.param(
            entry(shape=(0, 2**40, 2**40), offsets=(0, 0)), "no array", id="empty, product beyond 64 bit"
        ),
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
        (entry("U8", [24]), "complex64", [-3], "no whole number"),
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
    packed._dtype.cache_clear()
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(UnreadableTensor, match="x holds bfloat16, which needs the package ml_dtypes"):
        store.load("x")
    same(store.load("good"), X)


@PROPERTY
@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=4))
def test_damaged_bytes(tmp_path_factory: pytest.TempPathFactory, damage: list[tuple[int, int]]) -> None:
    """Any few bytes may be wrong: there is an array still, or a refusal."""
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


def value(data_name: str) -> Value:
    return Value(Kind.TENSOR, "torch.float32", "[2, 3]", (2, 3), data_name=data_name)


def packed_run(directory: Path, tensors: dict[str, np.ndarray], **metadata: Any) -> Path:
    """A PyTorch run of one call, packed: the first tensor is its output, those behind its inputs."""
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
    """A tensor that has a file of its own does not need it; of the others it is said, and not 'missing'."""
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


def test_damage_costs_rows_and_is_said_once(probe: Any, tmp_path: Path) -> None:
    target, golden = packed_run(tmp_path / "t", TENSORS), packed_run(tmp_path / "g", TENSORS)
    file = golden.parent / "dump_tensor_data" / PACKED_FILE
    file.write_bytes(file.read_bytes().replace(b'"BF16"', b'"BF61"'))
    assert probe("compare", target, golden, "-o", tmp_path / "o", "--format", "jsonl") == 2
    assert "1 tensor file(s) could not be read" in probe.err and 'element type "BF61"' in probe.err
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
