"""Headers of ACL dumps, sound and hostile: read as they are, or refused with one sentence."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from probe_legacy.acl.dump import AclDump, parse_dump_name
from probe_legacy.acl.header import MAX_SECTIONS, parse_header, read_header
from probe_legacy.acl.wire import MAX_FIELDS, DamagedDump
from support.runs import acl_dumps as acl
from support.runs.acl_dumps import acl_dumps  # noqa: F401
from support.sampling import examples

MOST_MEMORY = 64 << 20
HUGE = (1 << 63, (1 << 64) - 1, 1 << 40)
"""Numbers that a field may hold and no file does; the second is -1 in the wire format."""


def with_length(header: bytes, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header + data


def section(number: int, *fields: bytes) -> bytes:
    return acl.entry(number, b"".join(fields))


SOUND = acl.dump(
    acl.tensor("input", b"12345678", 1, 2, (2,), (2,)),
    acl.tensor("output", b"abcd", 3, 3, (1, 1, 1, 1, 4), (1, 4, 1, 1), host_layout=0, groups=1),
    acl.raw("buffer", acl.entry(1, 0) + acl.entry(3, 3), b"xyz"),
    acl.raw("space", acl.entry(1, 5) + acl.entry(3, 2), b"!?"),
)


def test_every_field_of_a_header(tmp_path: Path) -> None:
    header = read_header(acl.write(tmp_path / "a", SOUND))
    assert (header.version, header.time, header.name) == ("2.0", 1675157077183551, "Add")
    one, two, three, four = header.sections
    assert (one.side, one.index, one.size, one.data_type, one.format) == ("input", 0, 8, 1, 2)
    assert (one.shape, one.host_shape, one.has_host_shape, one.host_format) == ((2,), (2,), True, None)
    assert (two.side, two.size, two.data_type, two.format, two.host_format) == ("output", 4, 3, 3, 0)
    assert (two.shape, two.host_shape, two.sub_format) == ((1, 1, 1, 1, 4), (1, 4, 1, 1), 1)
    assert [(s.side, s.kind, s.size) for s in (three, four)] == [("buffer", 0, 3), ("space", 5, 2)]
    assert header.end == header.size == len(SOUND)
    dump = AclDump(tmp_path / "a")
    assert [bytes(dump.read_data(s)) for s in header.sections] == [b"12345678", b"abcd", b"xyz", b"!?"]
    assert dump.problem == ""


def test_sections_lie_in_the_order_of_the_format_not_of_the_header(tmp_path: Path) -> None:
    content = acl.dump(acl.tensor("output", b"out"), acl.tensor("input", b"in"), acl.tensor("input", b"2nd"))
    dump = AclDump(acl.write(tmp_path / "a", content))
    found = {f"{s.side}.{s.index}": bytes(dump.read_data(s)) for s in dump.header.sections}
    assert found == {"input.0": b"in", "input.1": b"2nd", "output.0": b"out"}


def test_unknown_fields_of_every_kind_are_skipped() -> None:
    more = (
        acl.entry(99, 7) + acl.entry(98, b"x") + acl.varint(97 * 8 + 1) + b"8bytes!!" + acl.varint(96 * 8 + 5) + b"four"
    )
    header = parse_header(section(4, acl.entry(5, 4), more) + more, 0)
    assert [s.size for s in header.sections] == [4]


def test_sizes_of_a_shape_may_be_single() -> None:
    header = parse_header(section(4, acl.entry(3, acl.entry(1, 2) + acl.entry(1, 3))), 0)
    assert header.sections[0].shape == (2, 3)


HOSTILE = {
    "nothing": (b"", "has no header"),
    "a cut length": (b"\x04\0\0", "has no header"),
    "no header": (bytes(8) + b"abc", "has no header"),
    "the format of small devices": (
        b"ZZZZ" + bytes(60),
        "begins with 0x5a5a5a5a, as dumps of small devices do",
    ),
    "a header beyond the file": (
        struct.pack("<Q", 100) + b"abc",
        "promises a header of 100 bytes and holds 3",
    ),
    "a header of 2**63": (
        struct.pack("<Q", 1 << 63) + b"abc",
        "promises a header of 9223372036854775808 bytes",
    ),
    "a header of -1": (struct.pack("<q", -1) + b"abc", "promises a header of 18446744073709551615 bytes"),
    "a header that is too large": (
        struct.pack("<Q", (16 << 20) + 1) + bytes((16 << 20) + 1),
        "has a header of 16777217 bytes, more than any dump has",
    ),
    "zeros": (with_length(bytes(16)), "with the field number 0"),
    "a number without end": (with_length(b"\xff" * 8), "ends within a number"),
    "a number of 11 bytes": (with_length(b"\x08" + b"\xff" * 11), "a number of more than 64 bits"),
    "a number of 70 bits": (with_length(b"\x10" + b"\xff" * 9 + b"\x7f"), "a number of more than 64 bits"),
    "a field that is too long": (
        with_length(acl.varint(8 * 4 + 2) + acl.varint(99) + b"a"),
        "field 4 is longer",
    ),
    "a field of 2**63 bytes": (with_length(acl.varint(8 * 4 + 2) + acl.varint(1 << 63)), "field 4 is longer"),
    "a field of -1 bytes": (with_length(acl.varint(8 * 4 + 2) + acl.varint(-1)), "field 4 is longer"),
    "a cut number of 8 bytes": (with_length(acl.varint(8 * 4 + 1) + b"1234567"), "field 4 is longer"),
    "a cut number of 4 bytes": (with_length(acl.varint(8 * 4 + 5) + b"123"), "field 4 is longer"),
    "a group": (with_length(b"\x0b" * 1000), "a field of kind 3"),
    "the end of a group": (with_length(b"\x0c"), "a field of kind 4"),
    "an unknown kind": (with_length(b"\x0f"), "a field of kind 7"),
    "a field number that is too large": (with_length(acl.varint(1 << 32)), "field number 536870912"),
    "a version that is a number": (with_length(acl.entry(1, 3)), "text is a number"),
    "a time that is a text": (with_length(acl.entry(2, b"x")), "dump_time is no number"),
    "an output that is a number": (with_length(acl.entry(3, 3)), "output is a number"),
    "a name that is a number": (with_length(acl.entry(6, 3)), "text is a number"),
    "a size that is a text": (with_length(section(4, acl.entry(5, b"8"))), "size is no number"),
    "a data type that is a text": (with_length(section(3, acl.entry(1, b"8"))), "data_type is no number"),
    "a format that is a text": (with_length(section(3, acl.entry(2, b"8"))), "format is no number"),
    "a shape that is a number": (with_length(section(3, acl.entry(3, 8))), "shape is a number"),
    "a host shape that is a number": (with_length(section(3, acl.entry(7, 8))), "host_shape is a number"),
    "an original that is a number": (with_length(section(3, acl.entry(4, 8))), "original_op is a number"),
    "an original format that is a text": (
        with_length(section(3, acl.entry(4, acl.entry(4, b"8")))),
        "format is no number",
    ),
    "groups that are a text": (with_length(section(3, acl.entry(8, b"8"))), "sub_format is no number"),
    "a buffer's kind that is a text": (with_length(section(5, acl.entry(1, b"8"))), "kind is no number"),
    "65 dimensions": (
        with_length(section(4, acl.entry(3, acl.shape_message([1] * 65)))),
        "a shape of more than 64 dimensions",
    ),
    "a cut dimension": (with_length(section(4, acl.entry(3, acl.entry(1, b"\x80")))), "ends within a number"),
    "too many sections": (with_length(section(4) * (MAX_SECTIONS + 1)), "more than 2000 inputs and outputs"),
    "too many fields": (with_length(acl.entry(99, 1) * (MAX_FIELDS + 1)), "more than 50000 fields"),
    "no sections": (with_length(acl.entry(6, b"Add")), "a header without inputs and outputs"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_header_is_refused_with_one_sentence(tmp_path: Path, name: str) -> None:
    content, reason = HOSTILE[name]
    path = acl.write(tmp_path / acl.NAME, content)
    tracemalloc.start()
    try:
        with pytest.raises(DamagedDump) as caught:
            AclDump(path)
        assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY
    finally:
        tracemalloc.stop()
    assert reason in str(caught.value) and len(str(caught.value)) < 200 and "\n" not in str(caught.value)


def test_messages_nested_deeply_are_not_followed(tmp_path: Path) -> None:
    message = b""
    for _ in range(2000):
        message = acl.entry(4, message)
    header = read_header(acl.write(tmp_path / "a", with_length(message)))
    assert [s.size for s in header.sections] == [0]


@pytest.mark.parametrize("size", HUGE)
def test_sizes_beyond_the_file(tmp_path: Path, size: int) -> None:
    content = acl.dump(
        acl.tensor("input", b"abcd", 3, 2, (4,)),
        acl.tensor("input", b"", 3, 2, (4,), size=size),
        acl.tensor("output", b"x"),
    )
    dump = AclDump(acl.write(tmp_path / "a", content))
    assert dump.problem.startswith("is cut off: its header promises")
    whole, cut, after = dump.header.sections
    assert dump.read_array(whole, "host").array.tobytes() == b"abcd"
    for part in (cut, after):
        with pytest.raises(DamagedDump, match=f"ends before the {part.size} bytes of {part.side} {part.index}"):
            dump.read_array(part, "host")


@pytest.mark.parametrize("host", [None, (4,)])
@pytest.mark.parametrize(
    "shape",
    [*((size,) for size in HUGE), (1 << 32, 1 << 32), (0, 1 << 63), (1,) * 40, (5,), (), (3, 1)],
    ids=str,
)  # fmt: skip
def test_shapes_that_the_bytes_do_not_have(
    tmp_path: Path, shape: tuple[int, ...], host: tuple[int, ...] | None
) -> None:
    dump = AclDump(acl.write(tmp_path / "a", acl.dump(acl.tensor("input", b"12345678", 5, 2, shape, host))))
    placed = dump.read_array(dump.header.sections[0], "host")
    assert placed.array.dtype == np.int16 and placed.array.shape == (4,)
    assert placed.note.startswith("8 bytes are no int16 of shape [") and len(placed.note) < 250


@pytest.mark.parametrize("host", [*((size,) for size in HUGE), (1,) * 60, (0, 1 << 63)], ids=str)
def test_shapes_of_the_program_that_none_has(tmp_path: Path, host: tuple[int, ...]) -> None:
    for layout, shape in (
        (2, (4,)),
        (3, (1, 1, 1, 1, 4)),
        (29, (1, 1, 1, 4)),
        (4, (1, 1, 1, 4)),
        (32, (1, 1, 1, 1, 1, 4)),
    ):
        dump = AclDump(acl.write(tmp_path / "a", acl.dump(acl.tensor("input", b"12345678", 5, layout, shape, host))))
        placed = dump.read_array(dump.header.sections[0], "host")
        assert placed.array.shape == shape and placed.array.tobytes() == b"12345678"


def test_bytes_that_are_no_whole_values_are_kept(tmp_path: Path) -> None:
    dump = AclDump(acl.write(tmp_path / "a", acl.dump(acl.tensor("input", b"12345", 5, 2, (2,)))))
    placed = dump.read_array(dump.header.sections[0], "host")
    assert placed.array.dtype == np.uint8 and placed.array.tobytes() == b"12345"
    assert placed.note == "5 bytes are no int16 of shape [2]"


@pytest.mark.parametrize("number", [41, 255, *HUGE])
def test_unknown_data_types_and_layouts(tmp_path: Path, number: int) -> None:
    dump = AclDump(acl.write(tmp_path / "a", acl.dump(acl.tensor("input", b"1234", number, 2, (2,), (2,)))))
    placed = dump.read_array(dump.header.sections[0], "host")
    assert placed.array.tobytes() == b"1234" and placed.note == f"its data type {number} is not known"
    dump = AclDump(acl.write(tmp_path / "a", acl.dump(acl.tensor("input", b"1234", 3, number + 300, (4,), (2, 2)))))
    placed = dump.read_array(dump.header.sections[0], "host")
    assert placed.array.tolist() == list(b"1234") and "unknown layout" in placed.note


def test_a_file_that_is_cut_anywhere(tmp_path: Path) -> None:
    path = tmp_path / acl.NAME
    length = struct.unpack("<Q", SOUND[:8])[0] + 8
    for end in range(len(SOUND)):
        acl.write(path, SOUND[:end])
        if end < length:
            with pytest.raises(DamagedDump):
                AclDump(path)
            continue
        dump = AclDump(path)
        assert dump.problem == f"is cut off: its header promises {len(SOUND)} bytes and it has {end}"
        assert [dump.is_whole(s) for s in dump.header.sections].count(False) == sum(
            end < s.offset + s.size for s in dump.header.sections
        )
        assert not dump.is_whole(dump.header.sections[-1])


def test_a_header_that_is_cut_anywhere() -> None:
    """No cut makes another exception, and no cut header has a section more."""
    header = SOUND[8 : 8 + struct.unpack("<Q", SOUND[:8])[0]]
    whole = len(parse_header(header, 0).sections)
    for end in range(len(header)):
        try:
            assert len(parse_header(header[:end], 0).sections) <= whole
        except DamagedDump as error:
            assert "header" in str(error)


@settings(max_examples=examples(300), deadline=None)
@given(st.data())
def test_changed_bytes_of_a_header_make_no_other_exception(data: st.DataObject) -> None:
    header = bytearray(SOUND[8:])
    for _ in range(data.draw(st.integers(1, 6))):
        header[data.draw(st.integers(0, len(header) - 1))] = data.draw(st.integers(0, 255))
    try:
        parse_header(bytes(header), len(SOUND))
    except DamagedDump:
        return


def test_a_longer_file_is_read_and_said_to_be(tmp_path: Path) -> None:
    dump = AclDump(acl.write(tmp_path / "a", SOUND + b"123"))
    assert dump.problem == "has 3 bytes more than its header promises"
    assert bytes(dump.read_data(dump.header.sections[-1])) == b"!?"


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / acl.NAME)
    with pytest.raises(OSError, match="a named pipe"):
        AclDump(tmp_path / acl.NAME)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("Add.Add.45.0.1675157077183551", ("Add", "Add", "45", "0", "1675157077183551")),
        ("Add.Add.45.1675157077183551", ("Add", "Add", "45", "", "1675157077183551")),
        ("Add.a_b.4.0.1675157077183551.1.2.3.4", ("Add", "a_b", "4", "0", "1675157077183551")),
        ("Add.Add.45.0.1675157077183551.input.0.npy", None),
        ("12345678901234567890", None),
    ],
)
def test_names_of_files(name: str, parts: tuple[str, ...] | None) -> None:
    assert parse_dump_name(name) == parts


def test_the_dumps_of_another_encoder(acl_dumps: Path) -> None:
    paths = [path for path in (acl_dumps / "output").rglob("*") if path.is_file()]
    assert len(paths) == 8
    for path in paths:
        assert AclDump(path).problem == "" and AclDump(path).header.version == "2.0"
