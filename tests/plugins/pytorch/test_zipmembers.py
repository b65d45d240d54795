"""The members of a zip file, read the short way, are those that ``zipfile`` finds; so are the refusals."""

from __future__ import annotations

import io
import mmap
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from probe_pytorch.zipmembers import read_members
from support.measuring import PROPERTY

END, LOCATOR, LARGE_END, ENTRY = 22, 20, 56, 46
"""Sizes of the records at the end of a file, and of a member's without its name."""

Found = dict[str, tuple[int, ...]]


def by_zipfile(content: bytes) -> Found | type[Exception]:
    """Return what zipfile says, or the exception that it raises."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            return {
                one.filename: (
                    one.flag_bits, one.compress_type, one.compress_size, one.file_size, one.header_offset
                )
                for one in file.infolist()
            }  # fmt: skip
    except Exception as error:
        return type(error)


def by_members(content: Any) -> Found | type[Exception]:
    try:
        return {name: tuple(member) for name, member in read_members(content).items()}
    except Exception as error:
        return type(error)


def agree(content: bytes) -> Found | type[Exception]:
    """Both say the same, in the same order; what they say."""
    found, expected = by_members(content), by_zipfile(content)
    assert found == expected
    assert isinstance(found, type) or list(found) == list(expected)  # type: ignore[arg-type]
    return found


def refused(content: bytes) -> bool:
    return isinstance(agree(content), type)


def archive(*contents: tuple[Any, bytes], comment: bytes = b"", method: int = zipfile.ZIP_STORED) -> bytes:
    """A zip by zipfile; members by name or by ZipInfo."""
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", method) as file:
        for name, content in contents:
            file.writestr(name, content)
        file.comment = comment
    return memory.getvalue()


def entry(name: str = "x/b", **fields: Any) -> zipfile.ZipInfo:
    found = zipfile.ZipInfo(name)
    for field, value in fields.items():
        setattr(found, field, value)
    return found


def patched(content: bytes, at: int, form: str, *values: Any) -> bytes:
    changed = bytearray(content)
    struct.pack_into(form, changed, at % len(content), *values)
    return bytes(changed)


def saved(value: Any) -> bytes:
    torch = pytest.importorskip("torch")
    memory = io.BytesIO()
    torch.save(value(torch), memory)
    return memory.getvalue()


PLAIN = archive(("x/data.pkl", b"N."), ("x/data/0", b"1234"), ("x/version", b"3\n"))


@pytest.fixture(scope="module")
def small() -> bytes:
    """A file of torch.save, which has ends of zip64."""
    return saved(lambda torch: torch.ones(3))


# -- files as they are written -----------------------------------------------------------------

SAVED: dict[str, Callable[[Any], Any]] = {
    "scalar": lambda torch: torch.tensor(1.5), "empty": lambda torch: torch.ones(0, 3),
    "bool": lambda torch: torch.ones(5, dtype=torch.bool), "int8": lambda torch: torch.ones(7, dtype=torch.int8),
    "bfloat16": lambda torch: torch.ones(9, dtype=torch.bfloat16), "float64": lambda torch: torch.ones(2, 3).double(),
    "complex": lambda torch: torch.ones(3) * 1j, "several": lambda torch: [torch.ones(n) for n in range(20)],
    "parameter": lambda torch: torch.nn.Parameter(torch.ones(3)), "large": lambda torch: torch.ones(100_000),
}  # fmt: skip


@pytest.mark.parametrize("kind", SAVED)
def test_files_of_torch_are_read_the_short_way(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = saved(SAVED[kind])
    expected = agree(content)
    assert isinstance(expected, dict) and any(name.endswith("/data.pkl") for name in expected)
    path = tmp_path / "x.pt"
    path.write_bytes(content)
    monkeypatch.delattr(zipfile, "ZipFile")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory:
        assert by_members(memory) == by_members(content) == expected


@pytest.mark.parametrize(
    ("content", "names"),
    [
        pytest.param(archive(), [], id="empty"),
        pytest.param(PLAIN, ["x/data.pkl", "x/data/0", "x/version"], id="plain"),
        pytest.param(archive(("b/b", b"1"), ("a", b"2"), ("c/b", b"33")).replace(b"c/b", b"b/b"), ["b/b", "a"], id="twice"),
        pytest.param(archive(("n" * 9000, b"1")), ["n" * 9000], id="long name"),
        pytest.param(archive(("é", b"1"), ("中/😀", b"2")), ["é", "中/😀"], id="names not in ASCII"),
        pytest.param(archive(("x/é", b"1")).replace(b"\xc3\xa9", b"\x82\xff"), None, id="no UTF-8"),
        pytest.param(archive(("a?b", b"1")).replace(b"a?b", b"a\0b"), ["a"], id="NUL in a name"),
        pytest.param(archive(("a?b", b"1")).replace(b"a?b", b"a\x82b"), ["aéb"], id="name in cp437"),
        pytest.param(archive(("a\\b", b"1"), ("../a", b"")), ["a\\b", "../a"], id="names of paths"),
        pytest.param(archive(("a", b"1" * 99), method=zipfile.ZIP_DEFLATED), ["a"], id="compressed"),
        pytest.param(archive(("a", b"1"), comment=b"hello"), ["a"], id="comment"),
        pytest.param(archive(("a", b"1"), comment=PLAIN), ["x/data.pkl", "x/data/0", "x/version"], id="zip as comment"),
        pytest.param(archive((entry(comment=b"hello"), b"1")), ["x/b"], id="comment of a member"),
        pytest.param(archive((entry(extra=b"\xca\xfe\2\0ab"), b"1")), ["x/b"], id="extra of a member"),
        pytest.param(archive((entry(extra=b"abc"), b"1")), ["x/b"], id="rest of an extra"),
        pytest.param(archive((entry(flag_bits=1), b"1")), ["x/b"], id="flags"),
        pytest.param(b"#!/bin/sh\n" + PLAIN, ["x/data.pkl", "x/data/0", "x/version"], id="prepended"),
        pytest.param(archive(("a", b"1")) + PLAIN, ["x/data.pkl", "x/data/0", "x/version"], id="two zips"),
        pytest.param(PLAIN + b"\0", None, id="appended NUL"),
        pytest.param(PLAIN + bytes(END), None, id="appended NULs"),
        pytest.param(b"", None, id="nothing"),
        pytest.param(b"PK\5\6", None, id="mark of an end"),
        pytest.param(b"x" * END, None, id="no zip"),
    ],
)  # fmt: skip
def test_other_zips(content: bytes, names: list[str] | None) -> None:
    found = agree(content)
    assert names is None or list(found) == names  # type: ignore[arg-type]


@pytest.mark.parametrize("before", [b"x", b"PK\3\4", bytes(100)])
def test_prepended_bytes_move_the_headers(small: bytes, before: bytes) -> None:
    plain, moved = agree(PLAIN), agree(before + PLAIN)
    assert isinstance(plain, dict) and isinstance(moved, dict)
    assert [one[4] + len(before) for one in plain.values()] == [one[4] for one in moved.values()]
    agree(before + small)


# -- ends that lie -----------------------------------------------------------------------------

# Offset from the end of the file, form, value: fields of the end, of the locator and of zip64's end.
LIES = {
    "count here": (-14, "<H", 1), "count": (-12, "<H", 99), "no members": (-14, "<HH", 0, 0), "more": (-14, "<HH", 9, 9),
    "length": (-10, "<I", 5), "length beyond": (-10, "<I", 2**31), "start": (-6, "<I", 1), "disk": (-18, "<H", 1),
    "start beyond": (-6, "<I", 2**32 - 1), "comment": (-2, "<H", 3), "mark": (-END, "<I", 7),
    "all for zip64": (-14, "<HHII", 0xFFFF, 0xFFFF, 2**32 - 1, 2**32 - 1),
}  # fmt: skip
LARGE = -END - LOCATOR - LARGE_END
LARGE_LIES = {
    "mark": (LARGE, "<I", 7), "size": (LARGE + 4, "<Q", 1), "disk": (LARGE + 16, "<I", 1),
    "first disk": (LARGE + 20, "<I", 3), "count here": (LARGE + 24, "<Q", 2**40), "count": (LARGE + 32, "<Q", 0),
    "counts": (LARGE + 24, "<QQ", 2**63, 2**63), "length": (LARGE + 40, "<Q", 2**63), "shorter": (LARGE + 40, "<Q", 1),
    "start": (LARGE + 48, "<Q", 2**64 - 1), "start 0": (LARGE + 48, "<Q", 0), "locator": (-END - LOCATOR, "<I", 7),
    "located": (-END - LOCATOR + 8, "<Q", 0), "located beyond": (-END - LOCATOR + 8, "<Q", 2**64 - 1),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_ends_that_lie(small: bytes, lie: str) -> None:
    for content in (PLAIN, small, archive()):
        agree(patched(content, *LIES[lie]))


@pytest.mark.parametrize("lie", LARGE_LIES)
def test_large_ends_that_lie(small: bytes, lie: str) -> None:
    agree(patched(small, *LARGE_LIES[lie]))
    agree(patched(b"before" + small, *LARGE_LIES[lie]))


@pytest.mark.parametrize("lie", [(-END - LOCATOR + 4, "<I", 1), (-END - LOCATOR + 16, "<I", 2)])
def test_several_disks(small: bytes, lie: tuple[Any, ...]) -> None:
    assert refused(patched(small, *lie))


def test_comment_that_imitates_a_locator() -> None:
    assert refused(archive((entry(comment=struct.pack("<4sIQI", b"PK\6\7", 0, 0, 2)), b"1")))


def test_version_to_come() -> None:
    content = archive(("x/b", b"1"))
    assert refused(patched(content, content.index(b"PK\1\2") + 6, "<B", 64))


def test_extra_that_is_cut_off() -> None:
    assert refused(archive((entry(extra=b"\xca\xfe\2\0ab"), b"1")).replace(b"\xca\xfe\2\0", b"\xca\xfe\3\0"))


# -- damage ------------------------------------------------------------------------------------


def directory(content: bytes) -> int:
    return zipfile.ZipFile(io.BytesIO(content)).start_dir


@pytest.mark.parametrize("kind", ["plain", "torch"])
def test_cut_off_at_every_byte(kind: str, small: bytes) -> None:
    """At the end and at the beginning."""
    content = small if kind == "torch" else PLAIN
    assert all(refused(content[:length]) for length in range(len(content)))
    for length in range(len(content)):
        agree(content[-length:])


@pytest.mark.parametrize("kind", ["plain", "torch", "noted"])
def test_every_byte_of_the_tail_wrong(kind: str, small: bytes) -> None:
    noted = archive((entry(comment=b"c", extra=b"\xca\xfe\1\0a"), b"1"), ("x/c", b""))
    content = {"plain": PLAIN, "torch": small, "noted": noted}[kind]
    for at in range(directory(content), len(content)):
        for value in {0, 1, 0x7F, 0x80, 0xFF, content[at] ^ 1, content[at] + 1 & 255, content[at] - 1 & 255}:
            agree(patched(content, at, "<B", value))


@PROPERTY
@given(st.lists(st.tuples(st.integers(1, 600), st.integers(0, 255)), min_size=1, max_size=4))
def test_several_bytes_of_the_tail_wrong(small: bytes, damage: list[tuple[int, int]]) -> None:
    content = small
    for back, value in damage:
        content = patched(content, -back, "<B", value)
    agree(content)


@pytest.mark.parametrize("cut", [1, END - 1, END, END + LOCATOR, 200, 20_000])
def test_maps_of_damaged_files(cut: int, tmp_path: Path) -> None:
    content = saved(SAVED["large"])[:-cut]
    path = tmp_path / "x.pt"
    path.write_bytes(content)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory:
        assert by_members(memory) == by_zipfile(content) == zipfile.BadZipFile
