"""Frames: the messages between a training that sends its calls and a receiver that checks them.

A frame is 28 bytes of prefix (the mark ``PRB1``, a kind, three zero bytes, the lengths of head and body and
their checksum, all big-endian), a head, which is a JSON object in UTF-8, and a body of bytes. The head of
a call may end with spaces, so that its body begins at a multiple of 64 bytes. In a shared directory a file
holds exactly one frame. The format is docs/formats.md#online-frames.

Nothing here opens a socket, and nothing that arrives is run: frames come from strangers, so lengths are
checked before memory is taken for them, and contents before they are used.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, NoReturn, Union

import xxhash

from probe_core.errors import make_printable
from probe_recording.values.leaves import quote

PROTOCOL = 1
MAGIC_BYTES = b"PRB1"
PREFIX = struct.Struct(">4sB3sIQQ")
ALIGNMENT_BYTES = 64
"""Bytes to a multiple of which the head is padded if there is a body."""

MAX_EXACT_INTEGER = (1 << 53) - 1
"""Largest sequence number, step and rank, which every JSON reader keeps exactly."""

MAX_NAME_LENGTH = 4096

MAX_JSON_VALUES = 1 << 18
"""Values in the JSON text of a head or of the header of a body; each takes about 100 bytes of memory.

The record of a tensor has about 25 values, so that a call may have 10,000 tensors."""
MAX_DIGITS = 4300
"""Digits of a whole number in a head; the time to read one grows with the square of its length."""

_SESSION = re.compile(r"[0-9a-f]{32}")

Buffer = Union[bytes, bytearray, memoryview]


class FrameKind(IntEnum):
    """Kinds of frames, each with the fields of its head.

    A training's sender begins with HELLO, goes on with CALL and TALLY and ends with END; a receiver answers.
    Verdicts are numbers of calls by status, each by API: ``{"error": {"Functional.softmax": 1}}``.

    ============== ======================================================================================
    HELLO          version, session (32 hex digits), rank, framework, versions (an object of texts), ranks
                   (those of the training that send; left out or empty if that is not known)
    WELCOME        version, most_body, window_bytes, window_calls
    REFUSED        text; neither end goes on with this connection
    CALL           seq, step, rank, name, fields; only its body is not empty
    DONE           seqs: these calls are judged and their rows written, or skipped; verdicts, if it has any
    AGAIN          place: this call arrived damaged, counted on this connection from 0
    TALLY          queued and dropped: numbers of calls by API so far
    END            the same; the sender has no more calls, and all are acknowledged
    ENDED          all calls of this sender are judged; verdicts
    STATUS         nothing
    STATUS_REPLY   whatever the receiver's status is
    ============== ======================================================================================
    """

    HELLO = 1
    WELCOME = 2
    REFUSED = 3
    CALL = 4
    DONE = 5
    AGAIN = 6
    TALLY = 7
    END = 8
    ENDED = 9
    STATUS = 10
    STATUS_REPLY = 11


class FrameLimits(NamedTuple):
    """Largest lengths of a frame that are accepted, in bytes."""

    head: int = 16 << 20
    body: int = 1 << 30


class FrameError(ValueError):
    """Bytes that are no frame of this protocol; the connection that they came from is of no further use."""

    def __init__(self, message: str) -> None:
        super().__init__(make_printable(message))


class DamagedFrame(FrameError):
    """A frame whose checksum does not fit its content; what follows it can be read."""


class Prefix(NamedTuple):
    """The checked first bytes of a frame.

    Attributes:
        kind: The kind of the frame.
        head: The length of the head, in bytes.
        body: The length of the body, in bytes.
        checksum: The 64-bit XXH3 hash over head and body.
    """

    kind: FrameKind
    head: int
    body: int
    checksum: int

    @property
    def size(self) -> int:
        """Bytes that follow the prefix."""
        return self.head + self.body


class Frame(NamedTuple):
    """A whole frame, its head parsed and its checksum confirmed."""

    kind: FrameKind
    head: dict[str, Any]
    body: memoryview


@dataclass(frozen=True, slots=True)
class SentCall:
    """One recorded forward call, as the head of a frame describes it.

    Attributes:
        seq: Its number among the calls of its session, from 0; a call that is sent again keeps it.
        step: The step of the training.
        rank: The rank of the process that made the call.
        name: The name of its record, such as ``Functional.linear.0.forward``.
        fields: The record, exactly as ``dump.json`` would hold it.
    """

    seq: int
    step: int
    rank: int
    name: str
    fields: dict[str, Any]


# -- writing ---------------------------------------------------------------------------------------


def encode_frame(kind: FrameKind, head: Mapping[str, Any] | bytes, body: Sequence[Buffer] = ()) -> list[Buffer]:
    """Return a frame as buffers to be written one after the other; the body is not copied.

    Args:
        kind: The kind of the frame.
        head: The JSON object, or its text in UTF-8.
        body: The parts of the body.
    """
    text = head if isinstance(head, bytes) else json.dumps(head, allow_nan=False).encode()
    if body:
        text += b" " * (-(PREFIX.size + len(text)) % ALIGNMENT_BYTES)
    size = sum(memoryview(part).nbytes for part in body)
    return [PREFIX.pack(MAGIC_BYTES, kind, bytes(3), len(text), size, compute_checksum((text, *body))) + text, *body]


def encode_call_head(seq: int, step: int, rank: int, name: str, fields: str) -> bytes:
    """Return the head of a call; ``fields`` is the JSON text of its record."""
    place = f'"seq": {seq}, "step": {step}, "rank": {rank}'
    return f'{{{place}, "name": {quote(name)}, "fields": {fields}}}'.encode()


def compute_checksum(parts: Iterable[Buffer]) -> int:
    """Return the 64-bit XXH3 hash (seed 0) over all parts."""
    state = xxhash.xxh3_64()
    for part in parts:
        state.update(part)
    return state.intdigest()


# -- reading ---------------------------------------------------------------------------------------


def parse_prefix(data: Buffer, limits: FrameLimits = FrameLimits()) -> Prefix:  # noqa: B008 - immutable
    """Return the checked prefix of a frame, before anything else of the frame is read.

    Args:
        data: The first ``PREFIX.size`` bytes of the frame.
        limits: The lengths that are accepted.

    Raises:
        FrameError: These are no such bytes, or the frame is longer than the limits.
    """
    if len(data) < PREFIX.size:
        raise FrameError(f"a frame was cut off after {len(data)} bytes")
    mark, number, reserved, head, body, checksum = PREFIX.unpack_from(data)
    if mark != MAGIC_BYTES:
        raise FrameError("what arrived does not begin as a frame of probe does")
    try:
        kind = FrameKind(number)
    except ValueError:
        raise FrameError(f"a frame is of the kind {number}, which version {PROTOCOL} does not have") from None
    if reserved != bytes(3):
        raise FrameError("a frame sets bytes that version 1 leaves at zero")
    for part, length, most in (("head", head, limits.head), ("body", body, limits.body)):
        if length > most:
            raise FrameError(f"a frame announces a {part} of {length:,} bytes; {most:,} are allowed")
    return Prefix(kind, head, body, checksum)


def parse_frame(prefix: Prefix, data: Buffer, max_values: int = MAX_JSON_VALUES) -> Frame:
    """Return a frame from its prefix and the ``prefix.size`` bytes that follow it.

    Args:
        prefix: The prefix.
        data: The bytes.
        max_values: Largest number of values in the head.

    Raises:
        DamagedFrame: The checksum does not match the content.
        FrameError: The head is not valid JSON, or has too many values.
    """
    content = memoryview(data)
    if content.nbytes != prefix.size:
        raise FrameError(f"a frame was cut off: {content.nbytes:,} of {prefix.size:,} bytes arrived")
    head = content[: prefix.head]
    if compute_checksum((content,)) != prefix.checksum:
        raise DamagedFrame("the checksum of a frame does not fit its content")
    return Frame(prefix.kind, _parse_json(prefix.kind, head, max_values), content[prefix.head :])


def parse_frame_file(content: Buffer, limits: FrameLimits = FrameLimits()) -> Frame:  # noqa: B008 - immutable
    """Return the one frame that a whole file holds.

    Raises:
        FrameError: The file holds none, a part of one, or more than one.
    """
    prefix = parse_prefix(content, limits)
    return parse_frame(prefix, memoryview(content)[PREFIX.size :])


def parse_call(frame: Frame) -> SentCall:
    """Return the call that a frame of the kind CALL describes.

    Raises:
        FrameError: A field of the head is missing or has a wrong value.
    """
    head = frame.head
    name, fields = head.get("name"), head.get("fields")
    if not isinstance(name, str) or not name.endswith(".forward") or not name.isprintable():
        raise FrameError(f'"name" of a call is not the name of a forward record: {name!r:.80}')
    if len(name) > MAX_NAME_LENGTH:
        raise FrameError(f'"name" of a call has {len(name):,} characters')
    if not isinstance(fields, dict):
        raise FrameError(f'"fields" of {name} is not a JSON object')
    seq, step, rank = (get_number(head, key) for key in ("seq", "step", "rank"))
    return SentCall(seq, step, rank, name, fields)


def parse_call_head(head: Buffer) -> SentCall:
    """Return the call that the head of a frame of the kind CALL describes.

    Raises:
        FrameError: The head is not valid JSON, or a field is missing or has a wrong value.
    """
    return parse_call(
        Frame(FrameKind.CALL, _parse_json(FrameKind.CALL, memoryview(head), MAX_JSON_VALUES), memoryview(b""))
    )


def get_number(head: Mapping[str, Any], key: str) -> int:
    """Return a field that must be a non-negative integer.

    Raises:
        FrameError: It is not.
    """
    value = head.get(key)
    if type(value) is not int or not 0 <= value <= MAX_EXACT_INTEGER:
        raise FrameError(f'"{key}" is not a non-negative integer: {value!r:.40}')
    return value


def get_numbers(head: Mapping[str, Any], key: str) -> list[int]:
    """Return a field that must be a list of non-negative integers; an empty list if it is left out.

    Raises:
        FrameError: It is not.
    """
    value = head.get(key, [])
    if not isinstance(value, list) or any(
        type(number) is not int or not 0 <= number <= MAX_EXACT_INTEGER for number in value
    ):
        raise FrameError(f'"{key}" is not a list of non-negative integers: {value!r:.40}')
    return value


def get_text(head: Mapping[str, Any], key: str, most: int = 400) -> str:
    """Return a field that must be a text, made printable and at most ``most`` characters long.

    Raises:
        FrameError: It is no text.
    """
    value = head.get(key)
    if not isinstance(value, str):
        raise FrameError(f'"{key}" is not a text: {value!r:.40}')
    return make_printable(value, most)


def get_session(head: Mapping[str, Any]) -> str:
    """Return the field ``session``, which must be 32 hexadecimal digits.

    Raises:
        FrameError: It is not.
    """
    value = head.get("session")
    if not isinstance(value, str) or _SESSION.fullmatch(value) is None:
        raise FrameError(f'"session" is not a text of 32 hexadecimal digits: {value!r:.80}')
    return value


def get_counts(head: Mapping[str, Any], key: str) -> dict[str, int]:
    """Return a field that must be an object of non-negative integers, such as calls by API.

    Raises:
        FrameError: It is not.
    """
    value = head.get(key)
    if not isinstance(value, dict):
        raise FrameError(f'"{key}" is not an object of numbers: {value!r:.40}')
    return {make_printable(name, 200): get_number(value, name) for name in value}


def _parse_json(kind: FrameKind, head: memoryview, max_values: int) -> dict[str, Any]:
    """Return the JSON object of a head; only records may hold NaN and infinities, as in ``dump.json``."""
    text = bytes(head)
    if (values := count_json_values(text)) > max_values:
        raise FrameError(f"the head of a frame has {values:,} values; {max_values:,} are allowed")
    try:
        value = json.loads(
            text.decode(),
            parse_int=_parse_integer,
            parse_constant=None if kind is FrameKind.CALL else _refuse,
            object_pairs_hook=_check_unique,
        )
    except (ValueError, RecursionError) as error:
        raise FrameError(f"the head of a frame is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise FrameError("the head of a frame is not a JSON object")
    return value


def count_json_values(text: Buffer, start: int = 0) -> int:
    """Return an upper bound of the number of values in a JSON text, without parsing it.

    Args:
        text: The text in UTF-8.
        start: The offset at which it begins.
    """
    data = text if isinstance(text, (bytes, bytearray)) else bytes(text)
    return 1 + sum(data.count(mark, start) for mark in (b"[", b"{", b","))


def _parse_integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a number has {len(digits):,} digits")
    return int(digits)


def _check_unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("an object holds a name twice")
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
