"""How far long work is: told by whoever does it, heard by whoever asked to.

What reads and what compares lies far below what draws a bar, with plugins between; so the listener is
not handed down but set around the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Watch = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and how much there is."""

_watch: ContextVar[Watch | None] = ContextVar("probe_watch", default=None)


@contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """While the block runs, ``watch`` is told of progress."""
    token = _watch.set(watch)
    try:
        yield
    finally:
        _watch.reset(token)


def tell(what: str, done: int, total: int) -> None:
    """Say how far ``what`` is."""
    watch = _watch.get()
    if watch is not None:
        watch(what, done, total)
