"""Text from recorded files, made safe for terminals and for files that are printed there.

Names, dtypes, stack frames and values of a dump may hold anything: escape sequences that colour or control a
terminal, marks that reverse the reading direction, invisible characters.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

_HIDDEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Characters that count as printable but are invisible."""

UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff"
    "\U000e0000-\U000e007f]"
)
"""Control characters except tab and newline, direction marks, and zero-width characters."""

MOST_MARKS = 3
"""Largest number of combining marks on a character; more would cover the lines above and below."""


def safe(text: str, keep: str = "") -> str:
    r"""Return the text with all invisible characters as escapes, such as ``\x1b``.

    Args:
        text: Text that may come from a recorded file.
        keep: Invisible characters to keep, such as a newline.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(text, keep))


def _shown(text: str, keep: str) -> list[str]:
    shown: list[str] = []
    marks = 0
    for char in text:
        marks = marks + 1 if unicodedata.category(char) in ("Mn", "Me") else 0
        visible = char in keep or (char.isprintable() and marks <= MOST_MARKS and not _HIDDEN.match(char))
        shown.append(char if visible else char.encode("unicode_escape", "surrogatepass").decode())
    return shown


def escaped(match: re.Match[str]) -> str:
    """Return the matched character as an escape."""
    return match[0].encode("unicode_escape", "surrogatepass").decode()


def safe_json(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON that is safe to print and reads back as the same value.

    Raises:
        ValueError: A number is not finite, which JSON cannot express.
    """
    import json  # imported late, because listing commands does not need it

    text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char if len(char) == len(escape) else _units(char) for char, escape in zip(text, _shown(text, "\n"))
    )


def _units(char: str) -> str:
    """Return a character as JSON escapes it, in UTF-16."""
    data = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[i : i + 2].hex()}" for i in range(0, len(data), 2))
