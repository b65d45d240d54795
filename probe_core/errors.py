"""Errors with a message for the user, and texts that go into such messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from probe_core.safe_text import safe

ALIKE = 0.7
"""Smallest similarity, from 0 to 1, at which a name counts as a misspelling of another."""


class UserError(Exception):
    """An error that the user can correct.

    The command line prints it without a traceback and exits with 2.

    Args:
        what: A sentence on what is wrong.
        fix: A sentence on how to correct it.
        choices: The valid values, if they can be listed.
    """

    def __init__(self, what: str, fix: str, choices: Sequence[str] = ()) -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix
        self.choices = tuple(choices)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.what, self.fix, self.choices)

    def __str__(self) -> str:
        lines = [self.what, self.fix, *(f"  {choice}" for choice in self.choices)]
        return "\n".join(safe(line) for line in lines if line)


class Defect(Exception):
    """A fault of probe itself, such as a missing file of its installation."""


class UnreadableTensor(Exception):
    """A tensor file that is missing or damaged.

    Attributes:
        missing: True if the file does not exist.
    """

    def __init__(self, message: str, *, missing: bool = False) -> None:
        super().__init__(printable(message))
        self.missing = missing


def printable(text: str, limit: int = 400) -> str:
    """Return ``text`` in one safe line of a terminal, shortened to ``limit`` characters."""
    text = safe(text)
    return text if len(text) <= limit else f"{text[: limit - 20]} … {text[-17:]}"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is 1: ``2 ranks``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def some(items: Iterable[object], most: int = 20) -> str:
    """Return the first ``most`` items in one line, and the number of the others."""
    texts = [str(item) for item in items]
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


def meant(name: str, known: Iterable[str]) -> str | None:
    """Return the name in ``known`` that ``name`` likely misspells or shares a word with; else None."""
    words = {word for word in name.lower().split("_") if len(word) > 2}
    best, best_ratio = None, 0.0
    for other in known:
        ratio = difflib.SequenceMatcher(None, name.lower(), other.lower()).ratio()
        if ratio > best_ratio and (ratio >= ALIKE or words & set(other.lower().split("_"))):
            best, best_ratio = other, ratio
    return best


def said(error: BaseException) -> str:
    """Return the type of an exception and the first line of its message."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # from a third-party class
        lines = []
    name = type(error).__name__
    return printable(f"{name}: {lines[0]}" if lines else name)


def nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """Return the names in ``known`` that are most similar to ``name``, best first."""
    pool = list(dict.fromkeys(known))
    if len(pool) > 5000:  # for speed, compare only some, with equal beginnings first
        pool = sorted(pool, key=lambda other: other[:8] != name[:8])[:5000]
    return difflib.get_close_matches(name, pool, n=count, cutoff=0.4)
