"""Read a JSON object member by member, so that a file of any size costs the memory of one member.

The text is scanned as Latin-1, where one character is one byte: JSON's own characters are ASCII,
so structure and offsets are exact, and a member is decoded as UTF-8 only once it is cut out.
Bare ``NaN``, ``Infinity`` and ``-Infinity`` are accepted, for every recorder writes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from probe_core.errors import UserError
from probe_core.files.given import read_given

CHUNK = 1 << 20
LARGEST_MEMBER = 256 << 20

_BLANK = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


class JsonError(ValueError):
    """Text that is no JSON, with the byte at which it stops being so."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(f"{message} at byte {at}")
        self.at = at


class JsonCursor:
    """Walks one JSON file from front to back, holding no more than a member of it."""

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
        """Byte offset of the next character."""
        return self._base + self._at

    def _more(self) -> None:
        """Drop what was consumed and append the next chunk, doubling while one value goes on."""
        kept = self._text[self._at :]
        if len(kept) > LARGEST_MEMBER:
            raise JsonError(f"a single value of more than {LARGEST_MEMBER >> 20} MiB", self.offset)
        data = self._file.read(max(CHUNK, len(kept)))
        self._ended = not data
        self._base += self._at
        self._at = 0
        self._text = kept + data.decode("latin-1")

    def peek(self) -> str:
        """The next character that is no blank, or an empty text at the end of the file."""
        while True:
            found = _BLANK.match(self._text, self._at)
            assert found is not None
            self._at = found.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if self._ended:
                return ""
            self._more()

    def take(self, expected: str) -> None:
        """Step over one of the characters ``expected``."""
        found = self.peek()
        if not found:
            raise JsonError(f"the file ends where {expected!r} was expected", self.offset)
        if found not in expected:
            raise JsonError(f"{found!r} stands where {expected!r} was expected", self.offset)
        self._at += 1

    def skip(self) -> tuple[int, int, Any]:
        """Step over one value: its first byte, the byte behind it, and the value."""
        self.peek()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if self._ended:
                    raise JsonError(self._explain(error), self._base + error.pos) from None
                self._more()
                continue
            except RecursionError:
                raise JsonError("values are nested too deeply", self.offset) from None
            except ValueError:
                raise JsonError("a number of too many digits", self.offset) from None
            if end == len(self._text) and not self._ended:
                self._more()  # a number may go on in the next chunk
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

    def key(self) -> str:
        """Step over a member's name."""
        if self.peek() != '"':
            raise JsonError("a name in quotes was expected", self.offset)
        return str(self.skip()[2])

    def members(self) -> Iterator[str]:
        """Yield the names of an object's members; the caller must consume each value."""
        self.take("{")
        if self.peek() == "}":
            self.take("}")
            return
        while True:
            key = self.key()
            self.take(":")
            yield key
            self.take(",}")
            if self._text[self._at - 1] == "}":
                return


def parse(data: bytes) -> Any:
    """The value in ``data``, a piece of UTF-8 that was scanned before; stray bytes become U+FFFD."""
    return json.loads(data.decode("utf-8", "replace"))


def load_object(path: Path, what: str) -> dict[str, Any]:
    """The whole JSON object in the small file ``path``; ``what`` names it in messages."""
    try:
        data = read_given(path)
    except (OSError, ValueError) as error:  # ValueError: a path that no file can have
        raise UserError(
            f"The {what} {path} cannot be read: {getattr(error, 'strerror', None) or 'no such path'}.",
            "Check the path and its permissions.",
        ) from None
    if not data.strip():
        raise UserError(f"The {what} {path} is empty.", f"Give a {what} that holds a JSON object.")
    text = data.decode("utf-8-sig", "replace")
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        at = len(text[: error.pos].encode("utf-8"))
        problem = f"{error.msg.removesuffix(' at')} at byte {at}"
    except RecursionError:
        problem = "values are nested too deeply"
    except ValueError:
        problem = "a number has too many digits"
    else:
        problem = ""
    if problem:
        raise UserError(
            f"The {what} {path} is not valid JSON: {problem}.", "Mend the file, or write it again."
        )
    if not isinstance(value, dict):
        raise UserError(
            f"The {what} {path} holds {_kind(value)} where an object was expected.",
            'It must begin with "{".',
        )
    return value


def _kind(value: object) -> str:
    names = {list: "a list", str: "a text", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")
