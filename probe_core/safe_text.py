"""Text from recorded files, made safe for terminals and for files that are printed there.

Names, dtypes, stack frames and values of a dump may hold anything: escape sequences that color or control a
terminal, marks that reverse the reading direction, invisible characters.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

_HIDDEN_CHARACTERS = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Characters that count as printable but are invisible."""

UNSAFE_CHARACTERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff"
    "\U000e0000-\U000e007f]"
)
"""Control characters except tab and newline, direction marks, and zero-width characters."""

MAX_COMBINING_MARKS = 3
"""Largest number of combining marks on a character; more would cover the lines above and below."""


def escape_invisible(text: str, keep: str = "") -> str:
    r"""Return the text with all invisible characters as escapes, such as ``\x1b``.

    Args:
        text: Text that may come from a recorded file.
        keep: Invisible characters to keep, such as a newline.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape_characters(text, keep))


def _escape_characters(text: str, keep: str) -> list[str]:
    pieces: list[str] = []
    marks = 0
    for char in text:
        marks = marks + 1 if unicodedata.category(char) in ("Mn", "Me") else 0
        is_visible = char in keep or (
            char.isprintable() and marks <= MAX_COMBINING_MARKS and not _HIDDEN_CHARACTERS.match(char)
        )
        pieces.append(char if is_visible else char.encode("unicode_escape", "surrogatepass").decode())
    return pieces


def format_safe_json(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON that is safe to print and reads back as the same value.

    Raises:
        ValueError: A number is not finite, which JSON cannot express.
    """
    import json  # imported late, because listing commands does not need it

    text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char if len(char) == len(escape) else _escape_utf16(char)
        for char, escape in zip(text, _escape_characters(text, "\n"))
    )


def _escape_utf16(char: str) -> str:
    """Return a character as JSON escapes it, in UTF-16."""
    data = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[i : i + 2].hex()}" for i in range(0, len(data), 2))
