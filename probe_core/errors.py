"""Errors with a message for the user, and texts that go into such messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from probe_core.safe_text import escape_invisible

MIN_SIMILARITY = 0.7
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
        return "\n".join(escape_invisible(line) for line in lines if line)


class Defect(Exception):
    """A fault of probe itself, such as a missing file of its installation."""


class UnreadableTensor(Exception):
    """A tensor file that is missing or damaged.

    Attributes:
        missing: True if the file does not exist.
    """

    def __init__(self, message: str, *, missing: bool = False) -> None:
        super().__init__(make_printable(message))
        self.missing = missing


def make_printable(text: str, limit: int = 400) -> str:
    """Return ``text`` in one safe line of a terminal, shortened to ``limit`` characters."""
    text = escape_invisible(text)
    return text if len(text) <= limit else f"{text[: limit - 20]} … {text[-17:]}"


def format_count(count: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is 1: ``2 ranks``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def format_list(items: Iterable[object], max_count: int = 20) -> str:
    """Return the first ``max_count`` items in one line, and the number of the others."""
    texts = [str(item) for item in items]
    rest = f" and {len(texts) - max_count} more" if len(texts) > max_count else ""
    return ", ".join(texts[:max_count]) + rest


def suggest_name(name: str, names: Iterable[str]) -> str | None:
    """Return the name in ``names`` that ``name`` likely misspells or shares a word with; else None."""
    words = {word for word in name.lower().split("_") if len(word) > 2}
    best, best_ratio = None, 0.0
    for candidate in names:
        ratio = difflib.SequenceMatcher(None, name.lower(), candidate.lower()).ratio()
        if ratio > best_ratio and (ratio >= MIN_SIMILARITY or words & set(candidate.lower().split("_"))):
            best, best_ratio = candidate, ratio
    return best


def describe_error(error: BaseException) -> str:
    """Return the type of an exception and the first line of its message."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # from a third-party class
        lines = []
    name = type(error).__name__
    return make_printable(f"{name}: {lines[0]}" if lines else name)


def find_nearest_names(name: str, names: Iterable[str], count: int = 3) -> list[str]:
    """Return the names in ``names`` that are most similar to ``name``, best first."""
    pool = list(dict.fromkeys(names))
    if len(pool) > 5000:  # for speed, compare only some, with equal beginnings first
        pool = sorted(pool, key=lambda candidate: candidate[:8] != name[:8])[:5000]
    return difflib.get_close_matches(name, pool, n=count, cutoff=0.4)
