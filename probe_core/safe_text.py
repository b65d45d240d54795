"""Text from strangers, made safe for terminals and for files that people print there.

Names, dtypes, stack frames and values of a dump are whatever its author wrote: escape sequences that colour,
retitle or answer for a terminal, marks that reverse the reading direction, characters without a shape.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

_HIDDEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Characters that count as printable and show nothing."""

UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff"
    "\U000e0000-\U000e007f]"
)
"""Control characters but tab and newline, marks of direction, and what has no width."""

MOST_MARKS = 3
"""Combining marks on one character; more of them cover the lines above and below."""


def safe(text: str, keep: str = "") -> str:
    r"""Return the text with everything that is not plainly visible as an escape, such as ``\x1b``.

    Args:
        text: Text that may hold names of a dump.
        keep: Characters that stay although they are not visible, such as a newline.
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


def escaped(found: re.Match[str]) -> str:
    """Return the one character of a match as an escape."""
    return found[0].encode("unicode_escape", "surrogatepass").decode()


def safe_json(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON that is safe to print and reads back as the same value.

    Raises:
        ValueError: A number is not finite, which JSON cannot hold.
    """
    import json  # here, for the command line imports this file and listing its commands writes none

    text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char if len(char) == len(found) else _units(char) for char, found in zip(text, _shown(text, "\n"))
    )


def _units(char: str) -> str:
    """A character as JSON escapes it, in UTF-16."""
    data = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[i : i + 2].hex()}" for i in range(0, len(data), 2))
