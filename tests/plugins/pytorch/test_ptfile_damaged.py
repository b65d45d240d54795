"""Damaged and hostile ``.pt`` files: refused in a message fit to print, and nothing in them is run."""

from __future__ import annotations

import io
import os
import pickle
import resource
import struct
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from probe_pytorch.ptfile import MAX_EXPANDED_ELEMENTS, MAX_PICKLE_BYTES, load_pt
from support.measuring import PROPERTY
from support.runs.pt_builder import HOOKS, ONES, PARAMETER, V2, archive, data, program, storage, tensor
from support.sampling import examples

from probe_core.errors import UnreadableTensor


def refuses(path: Path, match: str | None = None) -> str:
    """Reading ends in the one exception that costs a row and nothing else; its message."""
    with pytest.raises(UnreadableTensor, match=match) as caught:
        load_pt(path)
    assert path.name in str(caught.value)
    return str(caught.value)


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


@pytest.mark.parametrize("code", [b"i", b"o", b"\x81", b"\x92", b"P", b"\x82", b"\x84", b"I", b"\x00", b"\xff"])
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
        pytest.param(tensor(shape=(2 * MAX_EXPANDED_ELEMENTS,), strides=(0,)), id="a bomb of stride 0"),
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
    padded = b"\x80\x02" + b"N" * MAX_PICKLE_BYTES + tensor() + b"."
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
        pytest.param({"x/data.pkl": program(tensor()), "y/data.pkl": b"N."}, "data.pkl", id="two descriptions"),
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
    """Return the place of ``name`` in the zip's directory."""
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
def test_directories_that_lie(tmp_path: Path, member: bytes, form: str, offset: int, numbers: tuple[int, ...]) -> None:
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


@settings(PROPERTY, max_examples=examples(400))
@given(st.binary(max_size=80))
@example(b"")
@example(b".")
def test_random_description(tmp_path_factory: pytest.TempPathFactory, described: bytes) -> None:
    reads_or_refuses(archive(tmp_path_factory.getbasetemp() / "fuzz.pt", described))


@settings(PROPERTY, max_examples=examples(800))
@given(st.lists(st.sampled_from(FRAGMENTS) | st.binary(min_size=1, max_size=3), max_size=30).map(b"".join))
def test_random_instructions(tmp_path_factory: pytest.TempPathFactory, body: bytes) -> None:
    """Pieces of true descriptions in any order come further than random bytes do."""
    reads_or_refuses(archive(tmp_path_factory.getbasetemp() / "fuzz.pt", program(body)))


@settings(PROPERTY, max_examples=examples(800))
@given(st.lists(st.tuples(st.integers(0, 800), st.integers(0, 255)), min_size=1, max_size=4))
def test_damaged_bytes(tmp_path_factory: pytest.TempPathFactory, damage: list[tuple[int, int]]) -> None:
    """Any few bytes of the file may be wrong, its directory's among them."""
    path = archive(tmp_path_factory.getbasetemp() / "fuzz.pt", program(tensor()))
    content = bytearray(path.read_bytes())
    for position, byte in damage:
        content[position % len(content)] = byte
    path.write_bytes(content)
    reads_or_refuses(path)
