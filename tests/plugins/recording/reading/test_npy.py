"""Reading ``.npy``: what numpy wrote comes back; what is damaged or hostile is refused in one way."""

from __future__ import annotations

import mmap
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from probe_recording.reading.memory import SMALL_FILE
from probe_recording.reading.npy import load_npy
from support.measuring import PROPERTY, EasyGuard, mapping

from probe_core.errors import UnreadableTensor

DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128",
]  # fmt: skip


def saved(path: Path, array: np.ndarray[Any, Any]) -> Path:
    np.save(path, array)
    return path


def by_hand(path: Path, header: str, data: bytes = b"", version: tuple[int, int] = (1, 0)) -> Path:
    """A file whose header says what we like; padded as numpy pads it."""
    form = "<H" if version == (1, 0) else "<I"
    fixed = 8 + struct.calcsize(form)
    text = header.encode("latin1")
    text += b" " * (-(fixed + len(text) + 1) % 64) + b"\n"
    path.write_bytes(b"\x93NUMPY" + bytes(version) + struct.pack(form, len(text)) + text + data)
    return path


def header(descr: str = "'<f4'", shape: str = "(3,)", fortran: str = "False") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}"


# -- what numpy wrote --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_round_trip_of_every_dtype(tmp_path: Path, dtype: str) -> None:
    array = np.frombuffer(bytes(range(96)), np.uint8).astype(dtype).reshape(4, 24)
    found = load_npy(saved(tmp_path / "x.npy", array))
    assert found.dtype == array.dtype
    assert found.shape == array.shape
    assert found.tobytes() == array.tobytes()


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 4), (2, 3, 4), (1, 1, 1)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_shapes_and_orders(tmp_path: Path, shape: tuple[int, ...], order: Any) -> None:
    """A fortran file holds the same tensor: its elements are where the indices say."""
    array = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape).copy(order=order)
    found = load_npy(saved(tmp_path / "x.npy", array))
    assert found.shape == shape
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 5)])
def test_empty(tmp_path: Path, shape: tuple[int, ...]) -> None:
    """Nothing can be mapped of an empty array, which is no reason to fail."""
    found = load_npy(saved(tmp_path / "x.npy", np.empty(shape, np.int32)))
    assert found.shape == shape
    assert found.dtype == np.int32


def test_is_mapped_and_read_only(tmp_path: Path) -> None:
    """A big tensor must not be copied to be looked at, nor a recording be written to."""
    with mapping(EasyGuard()):
        found = load_npy(saved(tmp_path / "x.npy", np.arange(1.0 * SMALL_FILE)))
    assert isinstance(found.base, mmap.mmap)
    with mapping(None):
        copy = load_npy(tmp_path / "x.npy")
    assert isinstance(copy.base, bytes)
    np.testing.assert_array_equal(found, copy)
    for array in (found, copy):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_longer_header_of_version_2(tmp_path: Path) -> None:
    path = by_hand(tmp_path / "x.npy", header(), np.arange(3, dtype="<f4").tobytes(), (2, 0))
    assert load_npy(path).tolist() == [0, 1, 2]


def test_big_endian_values(tmp_path: Path) -> None:
    array = np.array([1.5, -2.25], ">f8")
    assert load_npy(saved(tmp_path / "x.npy", array)).astype("<f8").tolist() == [1.5, -2.25]


@PROPERTY
@given(hnp.arrays(st.sampled_from(DTYPES), hnp.array_shapes(min_dims=0, min_side=0, max_dims=5)), st.booleans())
def test_any_array_comes_back(tmp_path_factory: pytest.TempPathFactory, array: Any, fortran: bool) -> None:
    path = tmp_path_factory.getbasetemp() / "any.npy"
    np.save(path, np.asfortranarray(array) if fortran and array.ndim else array)
    found = load_npy(path)
    assert found.shape == array.shape
    assert found.dtype == array.dtype
    assert found.tobytes() == array.tobytes()


# -- what must be refused ----------------------------------------------------------------------


class Marker:
    """Pickles to a call that leaves a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_object_arrays_are_never_unpickled(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    array = np.empty(1, object)
    array[0] = Marker(marker)
    path = tmp_path / "x.npy"
    np.save(path, array, allow_pickle=True)
    with pytest.raises(UnreadableTensor, match="Python objects"):
        load_npy(path)
    assert not marker.exists()


def test_objects_inside_a_structure_are_refused(tmp_path: Path) -> None:
    path = by_hand(tmp_path / "x.npy", header("[('a', '<f4'), ('b', '|O')]"), bytes(64))
    with pytest.raises(UnreadableTensor, match="Python objects"):
        load_npy(path)


@pytest.mark.parametrize("shape", [(3,), (), (40, 5)])
def test_cut_off_anywhere(tmp_path: Path, shape: tuple[int, ...]) -> None:
    whole = saved(tmp_path / "x.npy", np.ones(shape)).read_bytes()
    cut = tmp_path / "cut.npy"
    for length in sorted({*range(0, len(whole), 16), len(whole) - 1}):
        cut.write_bytes(whole[:length])
        with pytest.raises(UnreadableTensor, match=r"cut\.npy"):
            load_npy(cut)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(header(shape="(4,)"), id="one element more than there is"),
        pytest.param(header(shape="(1000000000000,)"), id="far more than there is"),
        pytest.param(header(shape=f"({2**70},)"), id="beyond 64 bit"),
        pytest.param(header(shape="(-1, -3)"), id="negative sizes whose product is right"),
        pytest.param(header(shape="(-3,)"), id="negative size"),
        pytest.param(header(descr="'<f8'"), id="wider elements than there are"),
        pytest.param(header(shape="(3.0,)"), id="size that is no integer"),
        pytest.param(header(shape="3"), id="shape that is no tuple"),
        pytest.param(header(fortran="'no'"), id="order that is no boolean"),
        pytest.param(header(descr="'zzz'"), id="no such dtype"),
        pytest.param(header(descr="None"), id="dtype that is none"),
        pytest.param("[1, 2]", id="header is a list"),
        pytest.param("{'descr': '<f4'}", id="header lacks keys"),
        pytest.param("{[]: 1}", id="unhashable key"),
        pytest.param("\x00{}", id="null byte"),
        pytest.param("__import__('os').system('true')", id="header that is a call"),
        pytest.param(header(shape=f"({'1,' * 65})"), id="more dimensions than numpy has"),
        pytest.param(header(shape=f"(0, {2**70})"), id="empty, but beyond 64 bit"),
        pytest.param(header(shape="(True,)"), id="size that is a boolean"),
        pytest.param("{'descr': '<f4', 'shape': (3,", id="bracket never closed"),
        pytest.param("'''", id="text never closed"),
        pytest.param("(" * 5000, id="brackets without end"),
        pytest.param(header(descr="'|V0'", shape=f"({10**12},)"), id="elements of no size"),
    ],
)
def test_lying_header(tmp_path: Path, text: str) -> None:
    """The data are three float32; whatever else the header promises is refused, and never as a crash."""
    path = by_hand(tmp_path / "x.npy", text, np.ones(3, "<f4").tobytes())
    with pytest.raises(UnreadableTensor, match=r"x\.npy"):
        load_npy(path)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"PK\x03\x04" + bytes(200), id="a zip"),
        pytest.param(pickle.dumps([1, 2, 3]), id="a pickle"),
        pytest.param(b"\x93NUMPY", id="the magic alone"),
        pytest.param(b"\x93NUMPY\x01\x00\xff\xff{}", id="header length beyond the end"),
        pytest.param(b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}", id="header length of 4 GiB"),
        pytest.param(b"hello, world, this is a text and nothing else" * 9, id="a text"),
    ],
)
def test_not_an_npy(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    with pytest.raises(UnreadableTensor, match=r"x\.npy"):
        load_npy(path)


def test_unknown_version(tmp_path: Path) -> None:
    """A later version may mean anything by the same bytes."""
    path = by_hand(tmp_path / "x.npy", header(), bytes(12), (9, 9))
    with pytest.raises(UnreadableTensor):
        load_npy(path)


def test_message_is_one_line(tmp_path: Path) -> None:
    """It stands in a table of messages, so it may neither break the line nor fill the screen."""
    path = by_hand(tmp_path / "x.npy", "{'a\\nb': " + "1" * 4000 + "}", bytes(12))
    with pytest.raises(UnreadableTensor) as caught:
        load_npy(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_directory_and_missing_file_are_os_errors(tmp_path: Path) -> None:
    """The run tells a missing file from a damaged one by these."""
    with pytest.raises(FileNotFoundError):
        load_npy(tmp_path / "missing.npy")
    with pytest.raises(OSError):
        load_npy(tmp_path)


@PROPERTY
@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=4))
@pytest.mark.filterwarnings("ignore:Reading `.npy`:UserWarning", "ignore::SyntaxWarning")
def test_damaged_bytes(tmp_path_factory: pytest.TempPathFactory, damage: list[tuple[int, int]]) -> None:
    """Any few bytes may be wrong: there is an array still, or a refusal."""
    path = tmp_path_factory.getbasetemp() / "damaged.npy"
    content = bytearray(saved(path, np.arange(20, dtype=np.float32)).read_bytes())
    for position, byte in damage:
        content[position] = byte
    path.write_bytes(content)
    try:
        found = load_npy(path)
    except UnreadableTensor:
        return
    assert found.nbytes <= len(content)
