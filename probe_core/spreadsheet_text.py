"""Text from strangers, made safe for spreadsheets."""

from __future__ import annotations

import re
from functools import lru_cache

_STARTS = "=+-@＝＋－＠％%\t\r"
_AFTER_SEMICOLON = re.compile(r";(?=[=+\-@＝＋－＠％%])")


def clean(text: str) -> str:
    """``text`` as valid Unicode: lone surrogates, which no file can hold, become U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


@lru_cache(maxsize=4096)
def neutralise(text: str) -> str:
    """``text`` that no spreadsheet takes for a formula.

    A text that begins like a formula, or holds such a beginning right after a semicolon (where
    some locales split cells), gets an apostrophe there. Numbers such as ``-inf`` stay as they are.
    NUL, which neither csv nor Excel can hold, becomes U+FFFD.
    """
    text = clean(text).replace("\0", "\ufffd")
    if text and text[0] in _STARTS and not _is_number(text):
        text = "'" + text
    return _AFTER_SEMICOLON.sub(";'", text) if ";" in text else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
