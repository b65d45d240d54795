"""Reading of JSON objects member by member, so that a file of any size takes the memory of one member.

The text is scanned as Latin-1, where each byte is a character: JSON's own characters are ASCII, so offsets
are exact, and each member is decoded as UTF-8 later. Bare ``NaN``, ``Infinity`` and ``-Infinity`` are
accepted, because all recorders write them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

TakeMembers = Callable[[str, int, int], int]
"""A function that reads consecutive members of an object.

It takes a text in Latin-1, the position of the name of a member, and the offset of the text in the file. It
returns the position of the name of the first member that it did not read.
"""

CHUNK_BYTES = 1 << 20
MAX_MEMBER_BYTES = 256 << 20

_BLANK = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


class JsonError(ValueError):
    """A JSON syntax error, with the offset in bytes at which it occurs."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(f"{message} at byte {at}")
        self.at = at


class JsonCursor:
    """A reader of one JSON file from front to back, which holds at most one member in memory."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._text = ""
        self._at = 0  # position in the text
        self._base = 0  # byte offset of the text's first character
        self._ended = False
        if file.read(3) != b"\xef\xbb\xbf":
            file.seek(0)
        else:
            self._base = 3

    @property
    def offset(self) -> int:
        """The offset of the next character in bytes."""
        return self._base + self._at

    def _read_chunk(self) -> None:
        """Drop the text that was read and append the next chunk, which doubles while a value continues."""
        unread = self._text[self._at :]
        if len(unread) > MAX_MEMBER_BYTES:
            raise JsonError(f"a single value of more than {MAX_MEMBER_BYTES >> 20} MiB", self.offset)
        data = self._file.read(max(CHUNK_BYTES, len(unread)))
        self._ended = not data
        self._base += self._at
        self._at = 0
        self._text = unread + data.decode("latin-1")

    def peek(self) -> str:
        """Return the next character other than white space; empty at the end of the file."""
        while True:
            match = _BLANK.match(self._text, self._at)
            assert match is not None
            self._at = match.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if self._ended:
                return ""
            self._read_chunk()

    def take(self, expected: str) -> None:
        """Read one of the characters in ``expected``."""
        character = self.peek()
        if not character:
            raise JsonError(f"the file ends where {expected!r} was expected", self.offset)
        if character not in expected:
            raise JsonError(f"{character!r} instead of {expected!r}", self.offset)
        self._at += 1

    def skip(self) -> tuple[int, int, Any]:
        """Read a value, and return the offsets of its first byte and of the byte after it, and the value."""
        self.peek()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if self._ended:
                    raise JsonError(self._explain(error), self._base + error.pos) from None
                self._read_chunk()
                continue
            except RecursionError:
                raise JsonError("values are nested too deeply", self.offset) from None
            except ValueError:
                raise JsonError("a number of too many digits", self.offset) from None
            if end == len(self._text) and not self._ended:
                self._read_chunk()  # a number may go on in the next chunk
                continue
            raw = self._text[self._at : end]
            if not raw.isascii():
                value = parse(raw.encode("latin-1"))
            start = self.offset
            self._at = end
            return start, self.offset, value

    def _explain(self, error: json.JSONDecodeError) -> str:
        cut_off = not self._text.rstrip().endswith("}")
        return "the file ends within a value" if cut_off else error.msg.removesuffix(" at")

    def read_key(self) -> str:
        """Read the name of a member."""
        if self.peek() != '"':
            raise JsonError("a name in quotes was expected", self.offset)
        return str(self.skip()[2])

    def iterate_members(self, take: TakeMembers | None = None) -> Iterator[str]:
        """Yield the names of an object's members; the caller must consume each value.

        Args:
            take: Function that reads members first, which are not yielded.
        """
        self.take("{")
        if self.peek() == "}":
            self.take("}")
            return
        while True:
            if take is not None and self.peek() == '"':
                self._at = take(self._text, self._at, self._base)
            key = self.read_key()
            self.take(":")
            yield key
            self.take(",}")
            if self._text[self._at - 1] == "}":
                return


def parse(data: bytes) -> Any:
    """Return the value in ``data``, UTF-8 that was scanned before; invalid bytes become U+FFFD."""
    return json.loads(data.decode("utf-8", "replace"))
