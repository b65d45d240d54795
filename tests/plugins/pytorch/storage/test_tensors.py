"""Tensors on disk: what was saved comes back to the bit, whenever one looks and whatever it was called."""

from __future__ import annotations

import json
import math
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from probe_pytorch import compat_files
from probe_pytorch.ptfile import load_pt
from probe_pytorch.storage.tensors import (
    INITIAL_HEADER_BYTES,
    MAX_NAME_LENGTH,
    DelayedStore,
    FileStore,
    PackedStore,
)
from probe_recording.file_names import JOURNAL_FILE, PACKED_FILE
from probe_recording.reading.packed import PackedTensors
from support.measuring import PROPERTY
from support.sampling import examples

from probe_core.errors import UnreadableTensor

BASE = torch.arange(-6, 6, dtype=torch.float64).reshape(3, 4) / 3
PLAIN = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "uint16",
         "uint32", "uint64", "float8_e4m3fn", "float8_e5m2")  # fmt: skip
OTHER = ("complex64", "complex128", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
DTYPES = [name for name in (*PLAIN, *OTHER) if hasattr(torch, name)]

VIEWS: dict[str, Callable[[], torch.Tensor]] = {
    "0-d": lambda: torch.tensor(-0.0),
    "empty": lambda: torch.empty(0, 3),
    "one": lambda: torch.tensor([math.nan]),
    "transposed": lambda: BASE.t(),
    "a column": lambda: BASE[:, 1],
    "expanded": lambda: BASE[:, :1].expand(3, 5),
    "a slice": lambda: BASE[1:],
    "channels last": lambda: torch.arange(120.0).reshape(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
    "conjugate": lambda: torch.tensor([1 + 2j, 3 - 4j]).conj(),
    "imaginary part": lambda: torch.tensor([1 + 2j, 3 - 4j]).conj().imag,
    "negative": lambda: torch._neg_view(torch.tensor([1.0, 2.0])),  # type: ignore[attr-defined]
    "needs a gradient": lambda: BASE.clone().requires_grad_(),
    "of a graph": lambda: BASE.clone().requires_grad_() * 2,
    "parameter": lambda: torch.nn.Parameter(torch.ones(2)),
    "nan with a payload": lambda: torch.tensor([0x7FC00001, -0x3FFFFF], dtype=torch.int32).view(torch.float32),
}
SAMPLES: dict[str, Callable[[], torch.Tensor]] = {
    **VIEWS,
    **{name: lambda name=name: BASE.abs().to(getattr(torch, name)) for name in DTYPES},  # type: ignore[misc]
}
every_sample = pytest.mark.parametrize("make", SAMPLES.values(), ids=SAMPLES)


def elements(tensor: torch.Tensor) -> bytes:
    """The elements in row-major order, by way of Python's own numbers where there is nothing to trust."""
    tensor = tensor.detach()
    if tensor.is_conj() or tensor.is_neg():
        kind = {torch.complex64: "c8", torch.float32: "f4"}[tensor.dtype]
        return np.array(tensor.tolist(), kind).tobytes()
    plain = torch.empty(tensor.shape, dtype=tensor.dtype)
    plain.copy_(tensor)
    return plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# -- a file each -----------------------------------------------------------------------------------------


@every_sample
def test_files_hold_equal_bits(make: Callable[[], torch.Tensor], tmp_path: Path) -> None:
    tensor = make()
    store = FileStore(tmp_path / "t")
    assert store.save("x", tensor) == "x.pt"
    store.flush()
    store.close()
    if compat_files.convert_to_savable(tensor) is not tensor:  # torch.load of this torch, too, lacks the dtype
        array = load_pt(tmp_path / "t" / "x.pt")
        assert (f"torch.{array.dtype}", array.shape) == (str(tensor.dtype), tensor.shape)
        assert array.tobytes() == elements(tensor)
        return
    found = torch.load(tmp_path / "t" / "x.pt", weights_only=True)
    assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape)
    assert elements(found) == elements(tensor)
    assert not found.requires_grad and found.is_contiguous()
    assert type(found) is torch.Tensor


def test_probe_reads_the_files(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    for name in ("float32", "bfloat16", "int64", "bool", "complex64"):
        tensor = SAMPLES[name]()
        path = tmp_path / str(store.save(name, tensor))
        assert load_pt(path).tobytes() == elements(tensor)


def test_a_part_of_a_large_storage_is_saved_alone(tmp_path: Path) -> None:
    large = torch.rand(1 << 20)
    store = FileStore(tmp_path)
    store.save("part", large[5:9])
    store.save("all", large)
    assert (tmp_path / "part.pt").stat().st_size < 8192
    assert (tmp_path / "all.pt").stat().st_size > large.numel() * 4
    assert torch.equal(torch.load(tmp_path / "part.pt"), large[5:9])


def test_what_was_saved_does_not_change_any_more(tmp_path: Path) -> None:
    tensor = torch.zeros(3)
    FileStore(tmp_path).save("x", tensor)
    tensor.add_(1)
    assert torch.equal(torch.load(tmp_path / "x.pt"), torch.zeros(3))


def test_saving_leaves_the_tensor_alone(tmp_path: Path) -> None:
    tensor = torch.rand(3, 4, requires_grad=True)
    view = tensor.t() * 2
    before = view.detach().clone(), view._version, view.grad_fn, view.stride()
    for store in (
        FileStore(tmp_path / "a"),
        PackedStore(tmp_path / "b"),
        DelayedStore(FileStore(tmp_path / "c")),
    ):
        store.save("x", view)
        store.close()
    assert torch.equal(view.detach(), before[0])
    assert (view._version, view.grad_fn, view.stride()) == before[1:]


@pytest.mark.parametrize("name", ["a" * (MAX_NAME_LENGTH - 3), "ä" * 126], ids=["ascii", "not ascii"])
def test_the_longest_name(name: str, tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    assert store.save(name, torch.ones(1)) == f"{name}.pt"
    assert store.save(f"{name}a", torch.ones(1)) is None
    assert [path.name for path in tmp_path.iterdir()] == [f"{name}.pt"]


@pytest.mark.parametrize("name", ["a/b", "../a", "a\\b", "/etc/a", "a\0b", "a/../../b"])
def test_a_name_leads_nowhere_else(name: str, tmp_path: Path) -> None:
    file = FileStore(tmp_path / "t").save(name, torch.ones(1))
    assert [path.name for path in (tmp_path / "t").iterdir()] == [file]
    assert [path.name for path in tmp_path.iterdir()] == ["t"]
    assert torch.equal(torch.load(tmp_path / "t" / str(file)), torch.ones(1))


def test_a_name_saved_again_is_replaced(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    store.save("x", torch.ones(100))
    store.save("x", torch.zeros(1))
    assert torch.equal(torch.load(tmp_path / "x.pt"), torch.zeros(1))


def test_a_file_that_could_not_be_written_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 10 of the house: a temporary name, then rename."""

    def half(tensor: torch.Tensor, file: Any) -> None:
        file.write(b"PK")
        raise OSError(28, "No space left on device")

    store = FileStore(tmp_path)
    store.save("x", torch.zeros(1))
    monkeypatch.setattr(torch, "save", half)
    for name in ("x", "y"):
        with pytest.raises(OSError):
            store.save(name, torch.ones(1))
    assert torch.equal(torch.load(tmp_path / "x.pt"), torch.zeros(1))
    assert not (tmp_path / "y.pt").exists()


def test_others_may_not_read_or_write(tmp_path: Path) -> None:
    FileStore(tmp_path / "files").save("x", torch.ones(1))
    packed = PackedStore(tmp_path / "packed", room=64)
    packed.save("x", torch.ones(1))
    packed.flush()
    assert mode_of(tmp_path / "packed" / JOURNAL_FILE) == 0o640
    packed.close()  # by way of a copy, for the room is small
    for path in (tmp_path / "files" / "x.pt", tmp_path / "packed" / PACKED_FILE):
        assert mode_of(path) == 0o640
    for path in (tmp_path / "files", tmp_path / "packed"):
        assert mode_of(path) & 0o027 == 0


# -- all in one file -------------------------------------------------------------------------------------


def read_back(directory: Path, name: str) -> tuple[str, tuple[int, ...], bytes]:
    array = PackedTensors(directory).load(name)
    return array.dtype.name, array.shape, array.tobytes()


def as_saved(tensor: torch.Tensor) -> tuple[str, tuple[int, ...], bytes]:
    return str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), elements(tensor)


def header_of(directory: Path) -> dict[str, Any]:
    data = (directory / PACKED_FILE).read_bytes()
    return json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])  # type: ignore[no-any-return]


@every_sample
def test_the_packed_file_holds_equal_bits(make: Callable[[], torch.Tensor], tmp_path: Path) -> None:
    tensor = make()
    store = PackedStore(tmp_path)
    store.save("odd", torch.ones(3, dtype=torch.uint8))  # what follows lies at no round place
    assert store.save("x", tensor) == "x.pt"
    store.flush()
    assert read_back(tmp_path, "x") == as_saved(tensor)
    store.close()
    assert read_back(tmp_path, "x") == as_saved(tensor)
    assert read_back(tmp_path, "odd") == ("uint8", (3,), b"\1\1\1")


@pytest.mark.parametrize("room", [0, 64, INITIAL_HEADER_BYTES])
def test_others_read_the_packed_file(room: int, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    store = PackedStore(tmp_path, room)
    tensors = {name: SAMPLES[name]() for name in DTYPES if name in PLAIN} | {n: f() for n, f in VIEWS.items()}
    for name, tensor in tensors.items():
        store.save(name, tensor)
    store.close()
    found = safetensors.load_file(tmp_path / PACKED_FILE)
    assert sorted(found) == sorted(tensors)
    for name in tensors:
        if tensors[name].dtype is not torch.complex64:  # bytes, to others
            assert as_saved(found[name]) == as_saved(tensors[name]), name
    assert header_of(tmp_path)["__metadata__"]["format"] == "pt"


def test_the_names_of_the_packed_store_stay() -> None:
    assert (JOURNAL_FILE, PACKED_FILE) == ("tensors.index.json", "tensors.safetensors")


def test_what_can_be_read_and_when(tmp_path: Path) -> None:
    """Nothing before the first flush; then what was flushed, also by a process that was killed; then all."""
    store = PackedStore(tmp_path / "t")
    store.save("a", torch.ones(3))
    assert PackedTensors(tmp_path / "t").problem is not None
    store.flush()
    store.save("b", torch.zeros(1 << 19))  # larger than the buffer: part of it is in the file already
    assert read_back(tmp_path / "t", "a") == as_saved(torch.ones(3))
    with pytest.raises(UnreadableTensor, match="holds no b"):
        PackedTensors(tmp_path / "t").load("b")
    shutil.copytree(tmp_path / "t", tmp_path / "killed")
    store.close()
    assert sorted(path.name for path in (tmp_path / "t").iterdir()) == [PACKED_FILE]
    assert read_back(tmp_path / "t", "b") == as_saved(torch.zeros(1 << 19))
    assert read_back(tmp_path / "killed", "a") == as_saved(torch.ones(3))


@pytest.mark.parametrize("names", [1, 40, 4000])
@pytest.mark.parametrize("room", [0, 1, 64, 1000, INITIAL_HEADER_BYTES])
def test_a_header_that_outgrows_its_room(room: int, names: int, tmp_path: Path) -> None:
    store = PackedStore(tmp_path, room)
    for number in range(names):
        store.save(f"Functional.linear.{number}.forward.input.0", torch.tensor([number, -number]))
        if number % 1500 == 700:
            store.flush()
    size = store.header_size
    store.close()
    found = PackedTensors(tmp_path)
    for number in range(names):
        array = found.load(f"Functional.linear.{number}.forward.input.0")
        assert array.tolist() == [number, -number]
    assert sorted(path.name for path in tmp_path.iterdir()) == [PACKED_FILE]
    length = int.from_bytes((tmp_path / PACKED_FILE).read_bytes()[:8], "little")
    assert (length + 8) % 64 == 0
    assert length + 8 >= size
    assert length + 8 <= max(room, size) + 64


def test_the_size_of_the_header_is_room_enough(tmp_path: Path) -> None:
    sizes = []
    for number, room in enumerate((64, 0)):
        store = PackedStore(tmp_path / str(number), room or sizes[0])
        for name in range(100):
            store.save(f"ä{name}", torch.tensor([name], dtype=torch.complex64))
        sizes.append(store.header_size)
        before = (tmp_path / str(number) / PACKED_FILE).stat().st_ino
        store.close()
        copied = (tmp_path / str(number) / PACKED_FILE).stat().st_ino != before
        assert copied is (room == 64)
    assert sizes[0] == sizes[1]


def test_equal_bytes_are_stored_once(tmp_path: Path) -> None:
    store = PackedStore(tmp_path)
    tensor = torch.rand(1000)
    for name in ("a", "b", "c"):
        store.save(name, tensor if name != "b" else tensor.clone())
    store.close()
    assert header_of(tmp_path)["a"]["data_offsets"] == [0, 4000]
    assert json.loads(header_of(tmp_path)["__metadata__"]["alias"]) == {"b": "a", "c": "a"}
    assert (tmp_path / PACKED_FILE).stat().st_size == INITIAL_HEADER_BYTES + 4000
    for name in ("a", "b", "c"):
        assert read_back(tmp_path, name) == as_saved(tensor)


def test_equal_bytes_of_another_kind_are_another_tensor(tmp_path: Path) -> None:
    tensor = torch.arange(6, dtype=torch.int32)
    others = [tensor, tensor.reshape(2, 3), tensor.reshape(3, 2), tensor.view(torch.float32), tensor.view(torch.uint8),
              torch.tensor([0.0]), torch.tensor([-0.0]), torch.tensor(0.0), torch.empty(0), torch.empty(0, 2),
              torch.empty(0, dtype=torch.int8)]  # fmt: skip
    store = PackedStore(tmp_path)
    for number, other in enumerate(others):
        store.save(str(number), other)
    store.close()
    assert "alias" not in header_of(tmp_path)["__metadata__"]
    for number, other in enumerate(others):
        assert read_back(tmp_path, str(number)) == as_saved(other)


def test_a_name_saved_twice_is_the_newest(tmp_path: Path) -> None:
    """Tensors that were stored as the same before keep their values."""
    old, new = torch.ones(3), torch.zeros(2, dtype=torch.complex64)
    store = PackedStore(tmp_path)
    store.save("x", old)
    store.save("same", old)
    store.save("x", new)
    store.save("later", old)
    store.save("again", new)
    store.save("x", old)
    store.close()
    expected = {"x": old, "same": old, "later": old, "again": new}
    for name, tensor in expected.items():
        assert read_back(tmp_path, name) == as_saved(tensor), name


CONTENT = [torch.tensor([float(i)] * (i + 1), dtype=d) for i in range(2) for d in (torch.float32, torch.complex64)]
STEPS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c", "d"]), st.sampled_from([*range(len(CONTENT)), None])),
    max_size=14,
)


@settings(PROPERTY, max_examples=examples(60))
@given(STEPS, st.sampled_from([0, 64, 4096]))
def test_names_hold_what_was_saved_last(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int | None]], room: int
) -> None:
    """None flushes: at that moment a reader finds the same."""
    directory = tmp_path_factory.mktemp("packed")
    store = PackedStore(directory, room)
    expected: dict[str, torch.Tensor] = {}

    def check() -> None:
        found = PackedTensors(directory)
        for name, tensor in expected.items():
            array = found.load(name)
            assert (array.dtype.name, array.tobytes()) == (as_saved(tensor)[0], elements(tensor)), name

    for name, content in steps:
        if content is None:
            store.flush()
            check()
        else:
            store.save(name, CONTENT[content])
            expected[name] = CONTENT[content]
    store.close()
    check()


def test_names_that_look_like_renamed_ones(tmp_path: Path) -> None:
    store = PackedStore(tmp_path)
    store.save("y", torch.zeros(1))
    store.save("x~0", torch.zeros(1))  # an alias of y
    store.save("x", torch.ones(1))
    store.save("x", torch.full((1,), 2.0))  # the first x is renamed x~0
    store.close()
    assert read_back(tmp_path, "x~0") == as_saved(torch.zeros(1))


class Full:
    """A file whose first write after ``after`` bytes does not fit."""

    def __init__(self, file: Any, after: int) -> None:
        self._file = file
        self._left: int | None = after

    def write(self, data: Any) -> int:
        data = bytes(data)
        if self._left is not None and len(data) > self._left:
            self._file.write(data[: self._left])
            self._left = None
            raise OSError(28, "No space left on device")
        return int(self._file.write(data))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def full_once(store: PackedStore, after: int) -> None:
    store._file = Full(store._file, after)  # type: ignore[assignment]


@pytest.mark.parametrize("room", [0, INITIAL_HEADER_BYTES])
def test_a_write_that_failed_costs_that_tensor(room: int, tmp_path: Path) -> None:
    store = PackedStore(tmp_path, room)
    store.save("a", torch.zeros(4))
    full_once(store, 5)
    with pytest.raises(OSError):
        store.save("b", torch.ones(4))
    store.save("c", torch.full((4,), 2.0))
    store.close()
    assert read_back(tmp_path, "a") == as_saved(torch.zeros(4))
    assert read_back(tmp_path, "c") == as_saved(torch.full((4,), 2.0))


def test_what_failed_is_stored_when_it_comes_again(tmp_path: Path) -> None:
    store = PackedStore(tmp_path)
    full_once(store, 0)
    with pytest.raises(OSError):
        store.save("b", torch.ones(4))
    store.save("c", torch.ones(4))
    store.close()
    assert read_back(tmp_path, "c") == as_saved(torch.ones(4))


def test_closing_twice_and_reopening(tmp_path: Path) -> None:
    store = PackedStore(tmp_path)
    store.save("a", torch.ones(1))
    store.close()
    before = (tmp_path / PACKED_FILE).read_bytes()
    store.close()
    assert (tmp_path / PACKED_FILE).read_bytes() == before
    (tmp_path / JOURNAL_FILE).write_text("{}")  # of a run that was killed
    again = PackedStore(tmp_path)
    assert not (tmp_path / JOURNAL_FILE).exists()
    again.save("b", torch.zeros(1))
    again.close()
    assert "a" not in PackedTensors(tmp_path) and "b" in PackedTensors(tmp_path)


def test_an_empty_store(tmp_path: Path) -> None:
    PackedStore(tmp_path).close()
    assert PackedTensors(tmp_path).problem is None
    assert "x" not in PackedTensors(tmp_path)


def test_the_same_tensors_make_the_same_bytes(tmp_path: Path) -> None:
    for number in range(2):
        for store in (PackedStore(tmp_path / f"p{number}"), FileStore(tmp_path / f"f{number}")):
            for name, make in list(SAMPLES.items())[:6]:
                store.save(name, make())
            store.close()
    for kind in "pf":
        first, second = ([p.read_bytes() for p in sorted((tmp_path / f"{kind}{n}").iterdir())] for n in range(2))
        assert first == second and first


def test_values_of_other_packages_dtypes(tmp_path: Path) -> None:
    """Dtypes that numpy lacks come as types of ml_dtypes, with the right numbers."""
    store = PackedStore(tmp_path)
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2fnuz"):
        if hasattr(torch, name):
            tensor = torch.tensor([1.5, -2.0, 0.25]).to(getattr(torch, name))
            store.save(name, tensor)
            store.flush()
            array = PackedTensors(tmp_path).load(name)
            assert array.dtype == getattr(ml_dtypes, name)
            assert array.astype(np.float64).tolist() == [1.5, -2.0, 0.25]
    store.close()


# -- later -----------------------------------------------------------------------------------------------


class Recorded:
    """A store that remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def save(self, name: str, tensor: torch.Tensor) -> str | None:
        self.told.append((name, tensor.tolist()))
        return self.name_of(name)

    def name_of(self, name: str) -> str | None:
        return f"{name}.pt"

    def flush(self) -> None:
        self.told.append("flush")

    def close(self) -> None:
        self.told.append("close")


def test_delayed_tensors_are_copies_that_are_stored_at_the_flush() -> None:
    inner = Recorded()
    store = DelayedStore(inner)
    tensor = torch.tensor([1.0], requires_grad=True)
    assert store.save("a", tensor) == "a.pt"
    assert store.save("b", torch.tensor([5.0])) == "b.pt"
    with torch.no_grad():
        tensor.add_(1)
    assert store.save("c", tensor) == "c.pt"
    assert inner.told == []
    store.flush()
    assert inner.told == [("a", [1.0]), ("b", [5.0]), ("c", [2.0]), "flush"]
    store.flush()
    assert inner.told[4:] == ["flush"]  # nothing is stored twice, nothing is kept
    store.save("d", torch.tensor([3.0]))
    store.close()
    assert inner.told[5:] == [("d", [3.0]), "flush", "close"]


def test_a_delayed_name_is_the_newest() -> None:
    inner = Recorded()
    store = DelayedStore(inner)
    store.save("a", torch.tensor([1.0]))
    store.save("a", torch.tensor([2.0]))
    store.close()
    assert inner.told[-3:] == [("a", [2.0]), "flush", "close"]


def test_a_delayed_name_that_is_too_long(tmp_path: Path) -> None:
    store = DelayedStore(FileStore(tmp_path))
    assert store.save("a" * 252, torch.ones(1)) == "a" * 252 + ".pt"
    assert store.save("a" * 253, torch.ones(1)) is None
    store.close()
    assert [path.name for path in tmp_path.iterdir()] == ["a" * 252 + ".pt"]


@pytest.mark.parametrize("name", ["ä" * 130, "a/b"], ids=["too long in bytes", "with a slash"])
def test_a_delayed_name_is_that_of_the_file(name: str, tmp_path: Path) -> None:
    store = DelayedStore(FileStore(tmp_path))
    file = store.save(name, torch.ones(1))
    store.close()
    assert [path.name for path in tmp_path.iterdir()] == ([file] if file else [])


@pytest.mark.parametrize("inner", [FileStore, PackedStore])
def test_delayed_tensors_come_back(inner: Callable[[Path], Any], tmp_path: Path) -> None:
    store = DelayedStore(inner(tmp_path))
    for name, make in SAMPLES.items():
        store.save(name, make())
    store.close()
    for name, make in SAMPLES.items():
        if inner is PackedStore:
            assert read_back(tmp_path, name) == as_saved(make())
        else:
            assert as_saved(torch.load(tmp_path / f"{name}.pt")) == as_saved(make())


def test_a_flush_after_the_last_tensor_writes_the_index_once(tmp_path: Path) -> None:
    store = PackedStore(tmp_path)
    store.save("a", torch.ones(2))
    store.flush()
    index = tmp_path / JOURNAL_FILE
    first = json.loads(index.read_text())
    index.unlink()
    store.flush()
    assert not index.exists()
    store.save("b", torch.zeros(2))
    store.flush()
    second = json.loads(index.read_text())
    assert first["data_start"] == second["data_start"]
    assert [set(text["header"]) for text in (first, second)] == [
        {"__metadata__", "a"},
        {"__metadata__", "a", "b"},
    ]
    store.close()
