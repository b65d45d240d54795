"""Text from recorded files, made safe for spreadsheets."""

from __future__ import annotations

import re
from functools import lru_cache

from probe_core.safe_text import UNSAFE_CHARACTERS

_FORMULA_SIGNS = r"=+\-@%＝＋－＠％﹦﹢﹣﹫﹪−"
"""Characters that begin a formula, including their full-width and small forms."""
_BLANKS = (
    r"[\s\x00-\x20\x7f-\xa0\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    r"\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]*"
)
"""Characters that spreadsheets ignore at the beginning of a cell, or do not show."""
_FORMULA = re.compile(rf"[\t\r]|{_BLANKS}[{_FORMULA_SIGNS}]")
_AFTER_SEMICOLON = re.compile(rf";(?={_BLANKS}[{_FORMULA_SIGNS}])")


def replace_surrogates(text: str) -> str:
    """Return ``text`` as valid Unicode: U+FFFD replaces unpaired surrogates, which cannot be encoded."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


@lru_cache(maxsize=4096)
def neutralise(text: str) -> str:
    r"""Return ``text`` so that no spreadsheet runs it as a formula and no terminal as a command.

    An apostrophe is put before a formula at the start of the text or after a semicolon (where some locales
    split cells). Numbers such as ``-inf`` stay as they are. Control characters other than tab and newline,
    direction marks and zero-width characters are written as escapes such as ``\x1b``; NUL, which no table can
    hold, becomes U+FFFD.
    """
    text = replace_surrogates(text).replace("\0", "\ufffd")
    if _FORMULA.match(text) and not _is_number(text):
        text = "'" + text
    if ";" in text:
        text = _AFTER_SEMICOLON.sub(";'", text)
    return text if text.isascii() and text.isprintable() else UNSAFE_CHARACTERS.sub(_escape_match, text)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _escape_match(match: re.Match[str]) -> str:
    """Return the matched character as an escape."""
    return match[0].encode("unicode_escape", "surrogatepass").decode()
