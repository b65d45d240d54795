"""What may go wrong through no fault of ours, said in one sentence with the way to mend it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from probe_core.safe_text import safe

ALIKE = 0.7
"""The least likeness of two names of which one may be a slip of the other."""


class UserError(Exception):
    """A mistake in the input: what is wrong, how to mend it, and the valid choices.

    The command line prints the three and exits with 2, without a traceback.
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
    """Something that is wrong with probe itself, such as a file that its installation lacks."""


class UnreadableTensor(Exception):
    """A tensor file that cannot be read as the tensor it claims to be.

    ``missing`` is True where there is no such file, which costs a row and nothing else.
    """

    def __init__(self, message: str, *, missing: bool = False) -> None:
        super().__init__(printable(message))
        self.missing = missing


def printable(text: str, limit: int = 400) -> str:
    """``text``, which may hold names from a stranger's file, on one line of a terminal, and no longer."""
    text = safe(text)
    return text if len(text) <= limit else f"{text[: limit - 20]} … {text[-17:]}"


def meant(name: str, known: Iterable[str]) -> str | None:
    """The name in ``known`` that ``name`` is likely a slip of: spelt alike, or with a word in common."""
    words = {word for word in name.lower().split("_") if len(word) > 2}
    best, likeness = None, 0.0
    for other in known:
        ratio = difflib.SequenceMatcher(None, name.lower(), other.lower()).ratio()
        if ratio > likeness and (ratio >= ALIKE or words & set(other.lower().split("_"))):
            best, likeness = other, ratio
    return best


def said(error: BaseException) -> str:
    """Return an exception as a few words: its type, and the first line of what it says."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # of a stranger's class
        lines = []
    name = type(error).__name__
    return printable(f"{name}: {lines[0]}" if lines else name)


def nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The names in ``known`` that look most like ``name``, best first."""
    pool = list(dict.fromkeys(known))
    if len(pool) > 5000:  # keep the look-up quick: names that begin alike come first
        pool = sorted(pool, key=lambda other: other[:8] != name[:8])[:5000]
    return difflib.get_close_matches(name, pool, n=count, cutoff=0.4)
