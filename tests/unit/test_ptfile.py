"""Reading ``.pt``: as torch reads it, without torch; and whatever else a file holds is refused, unrun."""

from __future__ import annotations

import collections
import io
import os
import pickle
import resource
import struct
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from helpers import PROPERTY
from hypothesis import example, given, settings
from hypothesis import strategies as st
from probe_pytorch.ptfile import LARGEST_EXPANDED, LARGEST_PICKLE, load_pt

from probe_core.errors import UnreadableTensor

BY_TORCH = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
    "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu",
]  # fmt: skip


# -- files by torch ----------------------------------------------------------------------------


def torch_tensor(dtype: str, count: int) -> Any:
    """``count`` elements of every kind of bits, nan and inf among them; booleans are 0 or 1."""
    torch = pytest.importorskip("torch")
    kind = getattr(torch, dtype)
    rng = np.random.default_rng(7)
    if dtype == "bool":
        return torch.from_numpy(rng.integers(0, 2, count).astype(bool))
    data = rng.integers(0, 256, max(1, count) * kind.itemsize, dtype=np.uint8)
    return torch.from_numpy(data).view(kind)[:count]


def bits_of_tensor(tensor: Any) -> bytes:
    """The elements in their order, as torch itself lays them out."""
    torch = pytest.importorskip("torch")
    plain = tensor.detach().resolve_conj().resolve_neg()
    plain = plain.clone(memory_format=torch.contiguous_format).reshape(-1)
    return bytes(plain.view(torch.uint8).numpy().tobytes()) if plain.numel() else b""


def agrees(path: Path, tensor: Any) -> None:
    """Save, read, and hold against what torch reads back."""
    torch = pytest.importorskip("torch")
    torch.save(tensor, path)
    again = torch.load(path, weights_only=True)
    found = load_pt(path)
    assert found.shape == tuple(again.shape)
    assert found.dtype.name == str(again.dtype).removeprefix("torch.")
    assert found.tobytes() == bits_of_tensor(again)


@pytest.mark.parametrize("dtype", BY_TORCH)
@pytest.mark.parametrize("shape", [(), (1,), (5,), (3, 4), (2, 3, 4)])
def test_every_dtype(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    agrees(tmp_path / "x.pt", torch_tensor(dtype, int(np.prod(shape))).reshape(shape))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool", "uint16"])
@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 5)])
def test_empty(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    agrees(tmp_path / "x.pt", torch_tensor(dtype, 0).reshape(shape))


VIEWS = {
    "transposed": lambda t: t.reshape(6, 10).t(),
    "permuted": lambda t: t.reshape(3, 4, 5).permute(2, 0, 1),
    "every third": lambda t: t[::3],
    "offset": lambda t: t[17:],
    "offset and step in two dimensions": lambda t: t.reshape(6, 10)[1::2, 3::4],
    "column": lambda t: t.reshape(6, 10)[:, 7],
    "one element of a bigger storage, 0-d": lambda t: t[41],
    "expanded": lambda t: t[3:4].expand(5, 4, 1),
    "expanded by broadcasting": lambda t: t.reshape(6, 10)[:, :1].expand(6, 10),
    "overlapping windows": lambda t: t.unfold(0, 8, 3),
    "empty view of something": lambda t: t[5:5],
    "new axes": lambda t: t[None, :, None],
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "uint32", "complex64"])
def test_views(tmp_path: Path, view: Any, dtype: str) -> None:
    """A view is saved with the whole of its storage; only its own elements may come back."""
    agrees(tmp_path / "x.pt", view(torch_tensor(dtype, 60)))


def test_conjugate_and_negative_views(tmp_path: Path) -> None:
    """These are saved as a flag beside the unchanged bytes."""
    torch = pytest.importorskip("torch")
    tensor = torch.tensor([1 + 2j, -0.0 - 0.5j, 3 + 0j])
    assert tensor.conj().is_conj() and tensor.conj().imag.is_neg()
    agrees(tmp_path / "conj.pt", tensor.conj())
    agrees(tmp_path / "neg.pt", tensor.conj().imag)
    agrees(tmp_path / "both.pt", torch._neg_view(tensor.conj()))
    assert load_pt(tmp_path / "conj.pt").tolist() == [1 - 2j, 0.5j, 3]
    assert load_pt(tmp_path / "neg.pt").tolist() == [-2, 0.5, 0]


def test_parameters_and_requires_grad(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    agrees(tmp_path / "a.pt", torch.nn.Parameter(torch.arange(6.0).reshape(2, 3)))
    agrees(tmp_path / "b.pt", torch.nn.Parameter(torch.arange(6.0).reshape(2, 3).t(), requires_grad=False))
    agrees(tmp_path / "c.pt", torch.arange(6.0).requires_grad_())
    agrees(tmp_path / "d.pt", torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16)))
    agrees(tmp_path / "e.pt", torch.nn.Parameter(torch.ones(3, dtype=torch.uint16), requires_grad=False))


def test_pickle_protocols(tmp_path: Path) -> None:
    """torch.save takes a protocol, and a recorder may have chosen another than 2."""
    torch = pytest.importorskip("torch")
    tensor = torch.arange(300.0).reshape(3, 100)
    for protocol in (2, 3, 4, 5):
        path = tmp_path / f"{protocol}.pt"
        torch.save(tensor, path, pickle_protocol=protocol)
        assert load_pt(path).tobytes() == bits_of_tensor(tensor)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda torch: [torch.ones(2)], id="list of tensors"),
        pytest.param(lambda torch: {"a": torch.ones(2)}, id="dict"),
        pytest.param(lambda torch: torch.nn.Linear(2, 2).state_dict(), id="state dict"),
        pytest.param(lambda torch: torch.nn.Linear(2, 2), id="module"),
        pytest.param(lambda torch: torch.eye(3).to_sparse(), id="sparse"),
        pytest.param(lambda torch: torch.empty(3, dtype=torch.complex32), id="dtype without numpy"),
        pytest.param(lambda torch: torch.Size([2, 3]), id="size"),
        pytest.param(lambda torch: torch.device("cpu"), id="device"),
        pytest.param(lambda torch: 3.5, id="number"),
    ],
)
@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_other_things_torch_saves(tmp_path: Path, make: Any) -> None:
    torch = pytest.importorskip("torch")
    torch.save(make(torch), tmp_path / "x.pt")
    with pytest.raises(UnreadableTensor, match=r"x\.pt"):
        load_pt(tmp_path / "x.pt")


def test_files_from_before_the_zip(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save(torch.ones(4), tmp_path / "x.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(UnreadableTensor, match=r"x\.pt"):
        load_pt(tmp_path / "x.pt")


@st.composite
def strided(draw: st.DrawFn) -> tuple[str, int, int, tuple[int, ...], tuple[int, ...]]:
    """A dtype, a storage's length, and an offset, a shape and strides that stay within it."""
    dtype = draw(st.sampled_from(BY_TORCH))
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=4)))
    strides = tuple(draw(st.integers(0, 7)) for _ in shape)
    offset = draw(st.integers(0, 9))
    reach = offset + sum((size - 1) * stride for size, stride in zip(shape, strides) if size)
    return dtype, reach + 1 + draw(st.integers(0, 4)), offset, shape, strides


@PROPERTY
@given(strided())
def test_any_strides(tmp_path_factory: pytest.TempPathFactory, outline: Any) -> None:
    dtype, count, offset, shape, strides = outline
    tensor = torch_tensor(dtype, count).as_strided(shape, strides, offset)
    agrees(tmp_path_factory.getbasetemp() / "any.pt", tensor)


# -- files by hand -----------------------------------------------------------------------------

V2 = b"ctorch._utils\n_rebuild_tensor_v2\n"
PARAMETER = b"ctorch._utils\n_rebuild_parameter\n"
HOOKS = b"ccollections\nOrderedDict\n)R"
ONES = np.ones(6, "<f4").tobytes()


def data(value: Any) -> bytes:
    """The instructions that push plain data."""
    return pickle.dumps(value, 2)[2:-1]


def storage(kind: bytes = b"ctorch\nFloatStorage\n", key: Any = "0", tag: Any = "storage") -> bytes:
    return b"(" + data(tag) + kind + data(key) + data("cpu") + data(6) + b"tQ"


def tensor(
    offset: Any = 0, shape: Any = (2, 3), strides: Any = (3, 1), place: bytes = b"", rest: bytes = b""
) -> bytes:
    """The instructions that describe a tensor, without the first and the last."""
    return V2 + b"(" + (place or storage()) + data(offset) + data(shape) + data(strides) + b"\x89" + HOOKS \
        + rest + b"tR"  # fmt: skip


def program(body: bytes) -> bytes:
    return b"\x80\x02" + body + b"."


def archive(
    path: Path,
    described: bytes,
    storages: Mapping[str, bytes] | None = None,
    byteorder: bytes = b"little",
    compression: int = zipfile.ZIP_STORED,
    compress_only: str = "",
) -> Path:
    """A file as torch.save lays it out."""
    members = {"data.pkl": described, "byteorder": byteorder, "version": b"3\n"}
    members |= {f"data/{key}": content for key, content in (storages or {"0": ONES}).items()}
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            how = compression if name.startswith(compress_only) else zipfile.ZIP_STORED
            file.writestr(f"x/{name}", content, how)
    return path


def refuses(path: Path, match: str | None = None) -> str:
    """Reading ends in the one exception that costs a row and nothing else; its message."""
    with pytest.raises(UnreadableTensor, match=match) as caught:
        load_pt(path)
    assert path.name in str(caught.value)
    return str(caught.value)


def test_by_hand_is_as_by_torch(tmp_path: Path) -> None:
    """The files below are refused for what is wrong with them, not for how they are made."""
    path = archive(tmp_path / "x.pt", program(tensor()))
    assert load_pt(path).tolist() == [[1, 1, 1], [1, 1, 1]]
    torch = pytest.importorskip("torch")
    assert torch.load(path, weights_only=True).tolist() == [[1, 1, 1], [1, 1, 1]]


def test_is_a_read_only_view(tmp_path: Path) -> None:
    found = load_pt(archive(tmp_path / "x.pt", program(tensor())))
    assert not found.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        found[0, 0] = 2


def test_stays_readable_when_the_file_is_gone(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.pt", program(tensor()))
    found = load_pt(path)
    path.unlink()
    assert found.sum() == 6


class Command:
    """Pickles to a call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", range(6))
def test_a_system_call_is_named_and_not_made(tmp_path: Path, protocol: int) -> None:
    marker = tmp_path / "marker"
    attack = pickle.dumps(Command(os.system, f"touch {marker}"), protocol)
    pickle.loads(attack)
    assert marker.exists(), "the attack would work on a reader that unpickles"
    marker.unlink()
    refuses(archive(tmp_path / "x.pt", attack), f"{os.system.__module__}.system")
    assert not marker.exists()


@pytest.mark.parametrize("protocol", [2, 4])
def test_eval_is_named_and_not_made(tmp_path: Path, protocol: int) -> None:
    marker = tmp_path / "marker"
    attack = pickle.dumps(Command(eval, f"open({str(marker)!r}, 'w')"), protocol)
    refuses(archive(tmp_path / "x.pt", attack), r"builtin\w*\.eval|__builtin__\.eval")
    assert not marker.exists()


def test_a_call_hidden_among_the_hooks(tmp_path: Path) -> None:
    """A good tensor, with the call where torch keeps backward hooks."""
    marker = tmp_path / "marker"
    attack = tensor(rest=pickle.dumps(Command(os.system, f"touch {marker}"), 2)[2:-1])
    refuses(archive(tmp_path / "x.pt", program(attack)), "system")
    assert not marker.exists()


@pytest.mark.parametrize(
    "name",
    [
        b"ctorch.storage\n_load_from_bytes\n",
        b"ctorch._utils\n_import_dotted_name\n",
        b"ctorch\nload\n",
        b"ccollections\nnamedtuple\n",
    ],
)
def test_functions_of_known_modules_are_not_called(tmp_path: Path, name: bytes) -> None:
    """A storage's class lies in module torch, and so do functions that load code."""
    called = name.split(b"\n")[1].decode()
    refuses(archive(tmp_path / "x.pt", program(name + data(("x",)) + b"R")), called)


@pytest.mark.parametrize(
    "code", [b"i", b"o", b"\x81", b"\x92", b"P", b"\x82", b"\x84", b"I", b"\x00", b"\xff"]
)
def test_instructions_no_tensor_needs(tmp_path: Path, code: bytes) -> None:
    """INST, OBJ and NEWOBJ make objects, EXT looks names up; the message says which one it was."""
    message = refuses(archive(tmp_path / "x.pt", program(b"(" + V2 + b")" + code)), "instruction")
    assert repr(code) in message


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(tensor(shape=(2, 4)), id="shape reaches beyond the storage"),
        pytest.param(tensor(offset=1), id="offset moves the end beyond the storage"),
        pytest.param(tensor(strides=(4, 1)), id="strides reach beyond the storage"),
        pytest.param(tensor(shape=(2**62, 2**62)), id="count beyond 64 bit"),
        pytest.param(tensor(shape=(2**600,), strides=(0,)), id="size of 600 bit"),
        pytest.param(tensor(shape=(1,), strides=(2**62,)), id="stride that overflows as bytes"),
        pytest.param(tensor(shape=(0, 2**70)), id="empty, but beyond 64 bit"),
        pytest.param(tensor(offset=2**70), id="offset beyond 64 bit"),
        pytest.param(tensor(shape=(-2, -3)), id="negative sizes whose product is right"),
        pytest.param(tensor(shape=(-1,), strides=(1,)), id="negative size"),
        pytest.param(tensor(offset=5, strides=(-3, -1)), id="negative strides"),
        pytest.param(tensor(offset=-1), id="negative offset"),
        pytest.param(tensor(shape=(2.0, 3)), id="size that is no integer"),
        pytest.param(tensor(shape=(True, 3)), id="size that is a boolean"),
        pytest.param(tensor(shape=("2", 3)), id="size that is a text"),
        pytest.param(tensor(shape=None), id="no shape"),
        pytest.param(tensor(shape="23"), id="shape that is a text"),
        pytest.param(tensor(strides=(1,)), id="fewer strides than sizes"),
        pytest.param(tensor(shape=(1,) * 33, strides=(1,) * 33), id="33 dimensions"),
        pytest.param(tensor(shape=(2 * LARGEST_EXPANDED,), strides=(0,)), id="a bomb of stride 0"),
        pytest.param(tensor(place=storage(key="1")), id="storage that is not there"),
        pytest.param(tensor(place=storage(key="../0")), id="storage elsewhere"),
        pytest.param(tensor(place=storage(key=0)), id="key that is no text"),
        pytest.param(tensor(place=storage(tag="module")), id="persistent id of something else"),
        pytest.param(tensor(place=storage(b"ctorch\nQInt8Storage\n")), id="storage of unknown type"),
        pytest.param(tensor(place=storage(data("FloatStorage"))), id="storage type as a text"),
        pytest.param(tensor(place=data("0") + b"Q"), id="persistent id as a text"),
        pytest.param(tensor(place=data(None)), id="no storage"),
        pytest.param(tensor(place=storage(b"ctorch\nDoubleStorage\n"), shape=(4,), strides=(1,)), id="too few"),
        pytest.param(V2 + data(()) + b"R", id="tensor without arguments"),
        pytest.param(V2 + data(None) + b"R", id="arguments that are none"),
        pytest.param(PARAMETER + b"N\x85R", id="parameter of nothing"),
        pytest.param(PARAMETER + b")R", id="parameter without arguments"),
        pytest.param(PARAMETER * 50_000 + b"N" + b"\x85R" * 50_000, id="parameters without end"),
        pytest.param(b"ctorch._utils\n_rebuild_tensor_v3\n" + b"("
                     + storage(b"ctorch.storage\nUntypedStorage\n") + data(0) + data((2,)) + data((1,))
                     + b"\x89" + HOOKS + b"ctorch\nquint8\ntR", id="v3 of an unknown dtype"),
        pytest.param(V2, id="the function alone"),
        pytest.param(HOOKS, id="an empty dict"),
        pytest.param(b"N", id="nothing"),
        pytest.param(b"(", id="a mark"),
        pytest.param(b"]" + b"q\x00h\x00a", id="a list that holds itself"),
        pytest.param(b"R", id="a call of nothing"),
        pytest.param(b"h\x07", id="memory never written"),
        pytest.param(b"}]Ns", id="a key that cannot be one"),
        pytest.param(b"t", id="a tuple without a mark"),
        pytest.param(b"\x87", id="a tuple of too few"),
        pytest.param(b"X\xff\xff\xff\xffab", id="a text longer than the file"),
        pytest.param(b"\x8c\x02\xff\xff", id="a text that is no UTF-8"),
        pytest.param(b"ctorch", id="a name without an end"),
        pytest.param(b"", id="no instruction"),
    ],
)  # fmt: skip
def test_descriptions_of_no_tensor(tmp_path: Path, body: bytes) -> None:
    refuses(archive(tmp_path / "x.pt", program(body)))


def test_description_without_an_end(tmp_path: Path) -> None:
    refuses(archive(tmp_path / "x.pt", program(tensor())[:-1]), "cut off")


def test_storage_of_no_whole_elements(tmp_path: Path) -> None:
    refuses(archive(tmp_path / "x.pt", program(tensor()), {"0": ONES + b"x"}), "whole number")


def test_description_larger_than_any(tmp_path: Path) -> None:
    """Interpreting it would take memory in proportion."""
    padded = b"\x80\x02" + b"N" * LARGEST_PICKLE + tensor() + b"."
    refuses(archive(tmp_path / "x.pt", padded), "description takes")


@pytest.mark.parametrize("member", ["data.pkl", "data/0"])
@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_compressed_members(tmp_path: Path, member: str, method: int) -> None:
    """A zip bomb needs compression, torch.save never does."""
    path = archive(tmp_path / "x.pt", program(tensor()), None, b"little", method, member)
    refuses(path, "compressed")


@pytest.mark.parametrize(
    ("members", "match"),
    [
        pytest.param({}, "x.pt", id="no member"),
        pytest.param({"x/version": b"3"}, "data.pkl", id="no description"),
        pytest.param({"data.pkl": program(tensor())}, "data.pkl", id="description at the root"),
        pytest.param({"x/data.pkl": program(tensor())}, "data/0", id="no storage"),
        pytest.param(
            {"x/data.pkl": program(tensor()), "y/data.pkl": b"N."}, "data.pkl", id="two descriptions"
        ),
        pytest.param({"x/data.pkl": program(tensor()), "y/data/0": ONES}, "data/0", id="storage of another"),
        pytest.param({"x/data.pkl": b"", "x/data/0": ONES}, "cut off", id="empty description"),
    ],
)
def test_members_that_are_missing(tmp_path: Path, members: dict[str, bytes], match: str) -> None:
    path = tmp_path / "x.pt"
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
    refuses(path, match)


def directory_entry(content: bytes, name: bytes) -> int:
    """Where the zip's directory speaks of ``name``."""
    at = content.index(b"PK\x01\x02")
    while content[at + 46 : at + 46 + len(name)] != name:
        at = content.index(b"PK\x01\x02", at + 1)
    return at


@pytest.mark.parametrize(
    ("form", "offset", "numbers"),
    [
        pytest.param("<II", 20, (2**31, 2**31), id="both sizes beyond the file"),
        pytest.param("<I", 24, (4,), id="sizes that contradict each other"),
        pytest.param("<I", 42, (2,), id="begins elsewhere"),
        pytest.param("<I", 42, (2**31,), id="begins beyond the file"),
        pytest.param("<H", 8, (1,), id="encrypted"),
        pytest.param("<H", 10, (99,), id="compressed by an unknown method"),
    ],
)
@pytest.mark.parametrize("member", [b"x/data.pkl", b"x/data/0"])
def test_directories_that_lie(
    tmp_path: Path, member: bytes, form: str, offset: int, numbers: tuple[int, ...]
) -> None:
    path = archive(tmp_path / "x.pt", program(tensor()))
    content = bytearray(path.read_bytes())
    struct.pack_into(form, content, directory_entry(bytes(content), member) + offset, *numbers)
    path.write_bytes(content)
    refuses(path)


def test_cut_off_anywhere(tmp_path: Path) -> None:
    whole = archive(tmp_path / "x.pt", program(tensor())).read_bytes()
    cut = tmp_path / "cut.pt"
    for length in sorted({*range(0, len(whole), 64), len(whole) - 1}):
        cut.write_bytes(whole[:length])
        refuses(cut)


def test_cut_off_anywhere_by_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    buffer = io.BytesIO()
    torch.save(torch.ones(200), buffer)
    whole = buffer.getvalue()
    cut = tmp_path / "cut.pt"
    for length in range(0, len(whole), 64):
        cut.write_bytes(whole[:length])
        refuses(cut)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\0", id="one byte"),
        pytest.param(bytes(4096), id="zeros"),
        pytest.param(b"PK\x03\x04" + bytes(100), id="the head of a zip"),
        pytest.param(b"PK\x05\x06" + bytes(18), id="an empty zip"),
        pytest.param(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.", id="torch before 1.6"),
        pytest.param(b"\x93NUMPY\x01\x00", id="an npy"),
        pytest.param(b"hello, world " * 50, id="a text"),
    ],
)
def test_no_zip(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.pt"
    path.write_bytes(content)
    refuses(path)


def test_directory_and_missing_file_are_os_errors(tmp_path: Path) -> None:
    """The run tells a missing file from a damaged one by these."""
    with pytest.raises(FileNotFoundError):
        load_pt(tmp_path / "missing.pt")
    with pytest.raises(OSError):
        load_pt(tmp_path)


# -- byte order --------------------------------------------------------------------------------

BIG = [
    (b"FloatStorage", np.float32), (b"DoubleStorage", np.float64), (b"HalfStorage", np.float16),
    (b"BFloat16Storage", ml_dtypes.bfloat16), (b"LongStorage", np.int64), (b"CharStorage", np.int8),
    (b"BoolStorage", np.bool_), (b"ComplexFloatStorage", np.complex64),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "dtype"), BIG, ids=[kind.decode() for kind, _ in BIG])
def test_files_of_big_endian_machines(tmp_path: Path, kind: bytes, dtype: Any) -> None:
    """They say so in a member of their own; the values are the same."""
    expected = np.arange(6).astype(dtype)
    swapped = expected.tobytes()
    width = 4 if dtype is np.complex64 else expected.itemsize
    swapped = b"".join(swapped[at : at + width][::-1] for at in range(0, len(swapped), width))
    described = program(tensor(shape=(6,), strides=(1,), place=storage(b"ctorch\n" + kind + b"\n")))
    found = load_pt(archive(tmp_path / "x.pt", described, {"0": swapped}, b"big"))
    assert found.astype(np.complex128).tolist() == expected.astype(np.complex128).tolist()


def test_byte_order_that_is_none(tmp_path: Path) -> None:
    """To guess would be to measure noise."""
    refuses(archive(tmp_path / "x.pt", program(tensor()), None, b"middle"))


# -- what the message may say ------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(tensor(place=storage(key="\x1b[2J\x07")), id="key with an escape sequence"),
        pytest.param(tensor(place=storage(key="\ud800")), id="key that is no text"),
        pytest.param(tensor(place=storage(key="9" * 100_000)), id="key of 100 000 letters"),
        pytest.param(b"cos\x1b[2J\nsystem\n", id="module with an escape sequence"),
        pytest.param(b"c" + b"o" * 100_000 + b"\nsystem\n", id="module of 100 000 letters"),
        pytest.param(data("o\ns") + data("\u202egnp.exe") + b"\x93", id="name that reads backwards"),
        pytest.param(tensor(shape=(2**2000,) * 30, strides=(1,) * 30), id="shape of 18 000 digits"),
    ],
)
def test_messages_are_short_and_printable(tmp_path: Path, body: bytes) -> None:
    """The message is printed: a file must not steer the terminal, break the line or flood the log."""
    message = refuses(archive(tmp_path / "x.pt", program(body)))
    assert message.isprintable()
    assert len(message) < 1000


NEST = b")" + b"q\x00h\x00\x86" * 40


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(NEST + b")R", id="as a function"),
        pytest.param(NEST + NEST + b"\x93", id="as a name"),
        pytest.param(b"}" + NEST + b"Ns", id="as a key"),
        pytest.param(tensor(place=NEST), id="as a storage"),
        pytest.param(tensor(place=NEST + b"Q"), id="as a persistent id"),
    ],
)
def test_a_pair_of_pairs_of_pairs(tmp_path: Path, body: bytes) -> None:
    """Forty pairs, each of the one before twice: to print or to hash it would take 2**40 steps."""
    path = archive(tmp_path / "x.pt", program(body))
    script = f"""
        import pathlib
        from probe_core.errors import UnreadableTensor
        from probe_pytorch.ptfile import load_pt
        try:
            load_pt(pathlib.Path({str(path)!r}))
        except UnreadableTensor as error:
            print("refused:", str(error)[:300])
    """

    def little_memory() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))

    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        preexec_fn=little_memory, capture_output=True, text=True, timeout=4,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.stdout.startswith("refused:"), done.stderr
    assert "MemoryError" not in done.stdout


# -- fuzzing -----------------------------------------------------------------------------------

FRAGMENTS = [
    V2, PARAMETER, HOOKS, storage(), tensor(), tensor(shape=(2**40,)), NEST[:13], b"ctorch._utils\n_rebuild_tensor_v3\n",
    b"ctorch\nfloat32\n", b"ctorch\n", b"cos\nsystem\n", data("storage"), data("x"), data((1, 2)), data(-1), data(3.5),
    *(bytes([code]) for code in b"(N\x88\x89)}]KMJ\x8aGX\x8cc\x93qr\x94hjt\x85\x86\x87RQsuaeb.\x80\x95"),
]  # fmt: skip


def reads_or_refuses(path: Path) -> None:
    try:
        found = load_pt(path)
    except UnreadableTensor:
        return
    assert isinstance(found, np.ndarray)


@settings(PROPERTY, max_examples=400)
@given(st.binary(max_size=80))
@example(b"")
@example(b".")
def test_random_description(tmp_path_factory: pytest.TempPathFactory, described: bytes) -> None:
    reads_or_refuses(archive(tmp_path_factory.getbasetemp() / "fuzz.pt", described))


@settings(PROPERTY, max_examples=800)
@given(st.lists(st.sampled_from(FRAGMENTS) | st.binary(min_size=1, max_size=3), max_size=30).map(b"".join))
def test_random_instructions(tmp_path_factory: pytest.TempPathFactory, body: bytes) -> None:
    """Pieces of true descriptions in any order come further than random bytes do."""
    reads_or_refuses(archive(tmp_path_factory.getbasetemp() / "fuzz.pt", program(body)))


@settings(PROPERTY, max_examples=800)
@given(st.lists(st.tuples(st.integers(0, 800), st.integers(0, 255)), min_size=1, max_size=4))
def test_damaged_bytes(tmp_path_factory: pytest.TempPathFactory, damage: list[tuple[int, int]]) -> None:
    """Any few bytes of the file may be wrong, its directory's among them."""
    path = archive(tmp_path_factory.getbasetemp() / "fuzz.pt", program(tensor()))
    content = bytearray(path.read_bytes())
    for position, byte in damage:
        content[position % len(content)] = byte
    path.write_bytes(content)
    reads_or_refuses(path)


def test_unknown_attributes_are_dropped(tmp_path: Path) -> None:
    """BUILD sets attributes of what was made; on an OrderedDict of hooks that is harmless and ignored."""
    state = pickle.dumps(collections.OrderedDict(), 2)[2:-1] + b"}b"
    assert load_pt(archive(tmp_path / "x.pt", program(tensor(rest=state)))).shape == (2, 3)
