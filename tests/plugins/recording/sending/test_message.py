"""Frames: what was encoded comes back, and bytes of strangers are refused before anything is done with them."""

from __future__ import annotations

import json
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from probe_recording.sending.message import (
    PREFIX,
    DamagedFrame,
    Frame,
    FrameError,
    FrameKind,
    FrameLimits,
    encode_call_head,
    encode_frame,
    get_counts,
    get_number,
    get_session,
    get_text,
    parse_call,
    parse_call_head,
    parse_frame_file,
    parse_prefix,
)
from support.measuring import PROPERTY

NAME = "Functional.relu.0.forward"
CALL = encode_call_head(7, 2, 1, NAME, '{"input_args": [{"type": "float", "value": -Infinity}]}')


def packed(kind: FrameKind, head: object, body: bytes = b"") -> bytes:
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    return b"".join(encode_frame(kind, text, [body] if body else []))


def test_a_call_comes_back() -> None:
    data = packed(FrameKind.CALL, CALL, b"some bytes")
    frame = parse_frame_file(data)
    call = parse_call(frame)
    assert (call.seq, call.step, call.rank, call.name) == (7, 2, 1, NAME)
    assert call.fields == {"input_args": [{"type": "float", "value": -math.inf}]}
    assert bytes(frame.body) == b"some bytes"
    assert data.index(b"some bytes") % 64 == 0


@given(st.sampled_from(FrameKind), st.dictionaries(st.text(), st.integers() | st.text()), st.binary())
@PROPERTY
def test_round_trip(kind: FrameKind, head: dict[str, object], body: bytes) -> None:
    frame = parse_frame_file(b"".join(encode_frame(kind, head, [body[:3], body[3:]])))
    assert (frame.kind, frame.head, bytes(frame.body)) == (kind, head, body)


def test_the_length_of_the_prefix_is_part_of_the_format() -> None:
    assert PREFIX.size == 28
    mark, kind, zero, head, body, _ = struct.unpack(">4sB3sIQQ", packed(FrameKind.END, {}, b"x")[:28])
    assert (mark, kind, zero, body) == (b"PRB1", 8, bytes(3), 1)
    assert (28 + head) % 64 == 0


@pytest.mark.parametrize("cut", [0, 1, 27, 28, 29, 100, -1])
def test_a_frame_that_was_cut_off(cut: int) -> None:
    data = packed(FrameKind.CALL, CALL, bytes(100))
    with pytest.raises(FrameError, match="cut off"):
        parse_frame_file(data[:cut])


def test_bytes_behind_the_frame_of_a_file() -> None:
    with pytest.raises(FrameError, match="cut off"):
        parse_frame_file(packed(FrameKind.END, {}) + b"x")


@pytest.mark.parametrize(
    ("head", "body", "message"),
    [
        ((16 << 20) + 1, 0, r"a head of 16,777,217 bytes; 16,777,216 are allowed"),
        (2, 2 << 30, r"a body of 2,147,483,648 bytes"),
        (2**32 - 1, 2**64 - 1, "a head of"),
    ],
)
def test_lengths_are_checked_before_the_rest_is_read(head: int, body: int, message: str) -> None:
    prefix = PREFIX.pack(b"PRB1", FrameKind.CALL, bytes(3), head, body, 0)
    with pytest.raises(FrameError, match=message):
        parse_prefix(prefix)


def test_limits_are_settable() -> None:
    data = packed(FrameKind.CALL, CALL, bytes(11))
    assert parse_frame_file(data, FrameLimits(body=11))
    with pytest.raises(FrameError, match="a body of 11 bytes; 10 are"):
        parse_frame_file(data, FrameLimits(body=10))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x80\x04\x95" + bytes(40), "does not begin as a frame"),
        (b"GET / HTTP/1.1\r\nHost: example\r\n\r\n", "does not begin as a frame"),
        (b"\x16\x03\x01" + bytes(40), "does not begin as a frame"),
        (PREFIX.pack(b"PRB1", 99, bytes(3), 2, 0, 0), "of the kind 99"),
        (PREFIX.pack(b"PRB1", 0, bytes(3), 2, 0, 0), "of the kind 0"),
        (PREFIX.pack(b"PRB1", 1, b"\0\1\0", 2, 0, 0), "leaves at zero"),
        (b"", "cut off after 0 bytes"),
    ],
)
def test_no_prefix_of_a_frame(data: bytes, message: str) -> None:
    with pytest.raises(FrameError, match=message):
        parse_prefix(data)


@pytest.mark.parametrize("place", [20, 28, 60, -1])
def test_a_wrong_checksum(place: int) -> None:
    data = bytearray(packed(FrameKind.CALL, CALL, bytes(100)))
    data[place] ^= 1
    with pytest.raises(DamagedFrame, match="checksum"):
        parse_frame_file(data)


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (b"[]", "not a JSON object"),
        (b"7", "not a JSON object"),
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"a": -Infinity}', "-Infinity is not JSON"),
        (b'{"rank": 1, "rank": 2}', "holds a name twice"),
        (b'{"a": {"b": 1, "b": 1}}', "holds a name twice"),
        (b"[" * 200_000, "not valid JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (b'{"\x1b[2J": 1}', "not valid JSON"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_hostile_heads(head: bytes, message: str) -> None:
    with pytest.raises(FrameError, match=message):
        parse_frame_file(packed(FrameKind.HELLO, head))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"seq": -1}, '"seq"'),
        ({"seq": True}, '"seq"'),
        ({"seq": 1.0}, '"seq"'),
        ({"seq": 1 << 53}, '"seq"'),
        ({"step": None}, '"step"'),
        ({"rank": "0"}, '"rank"'),
        ({"name": 3}, '"name"'),
        ({"name": "Functional.relu.0.backward"}, '"name"'),
        ({"name": "\x1b[2J.forward"}, '"name"'),
        ({"name": "a" * 5000 + ".forward"}, "5,008 characters"),
        ({"fields": []}, '"fields"'),
    ],
)
def test_wrong_fields_of_a_call(fields: dict[str, object], message: str) -> None:
    head = {"seq": 0, "step": 0, "rank": 0, "name": NAME, "fields": {}}
    assert parse_call(parse_frame_file(packed(FrameKind.CALL, head)))
    with pytest.raises(FrameError, match=message):
        parse_call(parse_frame_file(packed(FrameKind.CALL, {**head, **fields})))
    for name in fields:
        without = {key: value for key, value in head.items() if key != name}
        with pytest.raises(FrameError):
            parse_call(parse_frame_file(packed(FrameKind.CALL, without)))


def test_fields_of_other_heads() -> None:
    head = {"text": "a\x1b[2Jb", "counts": {"Functional.relu": 3}, "number": 4}
    assert get_text(head, "text") == "a\\x1b[2Jb"
    assert get_counts(head, "counts") == {"Functional.relu": 3}
    assert get_number(head, "number") == 4
    for wrong in ({"a": -1}, {"a": True}, [1], None):
        with pytest.raises(FrameError):
            get_counts({"counts": wrong}, "counts")
    with pytest.raises(FrameError, match='"text" is not a text'):
        get_text({}, "text")


@given(st.binary(max_size=200))
@PROPERTY
def test_rubbish_raises_nothing_else(data: bytes) -> None:
    for candidate in (data, b"PRB1\4\0\0\0" + data):
        with pytest.raises(FrameError):
            parse_frame_file(candidate)


def test_a_frame_holds_its_body_without_a_copy() -> None:
    body = bytearray(100)
    parts = encode_frame(FrameKind.CALL, CALL, [body])
    assert parts[1] is body
    data = b"".join(parts)
    frame: Frame = parse_frame_file(data)
    assert frame.body.obj is data


@pytest.mark.parametrize("value", ["[]", "{}", "0", '{"":0}'])
def test_frame_in_refuses_a_head_of_too_many_values(value: str) -> None:
    """The number of values is limited whatever they are, and what the format needs is within the limit."""
    tensor = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 3, 4], "Max": 1.0, "Min": 0.0,
              "Mean": 0.5, "Norm": 2.0, "requires_grad": False, "data_name": "Torch.cat.0.forward.input.0.1.pt"}  # fmt: skip
    largest = encode_call_head(0, 0, 0, NAME, json.dumps({"input_args": [[tensor] * 10_000], "output": [tensor]}))
    assert len(parse_call(parse_frame_file(packed(FrameKind.CALL, largest))).fields["input_args"][0]) == 10_000
    head = encode_call_head(0, 0, 0, NAME, f'{{"input_args": [{",".join([value] * (1 << 18))}]}}')
    with pytest.raises(FrameError, match=r"values; 262,144 are allowed"):
        parse_frame_file(packed(FrameKind.CALL, head))


def test_frame_in_refuses_a_number_of_too_many_digits() -> None:
    with pytest.raises(FrameError, match="5,000 digits"):
        parse_frame_file(packed(FrameKind.CALL, b'{"seq": ' + b"9" * 5000 + b"}"))


def test_call_in_returns_the_call_of_a_head() -> None:
    assert parse_call_head(CALL) == parse_call(parse_frame_file(packed(FrameKind.CALL, CALL)))


@pytest.mark.parametrize("session", ["", "5e" * 15, "5E" * 16, "../" + "5" * 29, "5e" * 16 + "\n", 7, None])
def test_session_in_refuses_other_texts(session: object) -> None:
    assert get_session({"session": "5e" * 16}) == "5e" * 16
    with pytest.raises(FrameError, match="32 hexadecimal digits"):
        get_session({"session": session})
