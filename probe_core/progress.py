"""Progress reporting through a context variable.

The code that reads and compares is many calls below the code that draws the progress bar, so the listener is
a context variable and not a parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

ProgressListener = Callable[[str, int, int], None]
"""A listener, called with the name of the work, the amount done, and the total amount."""

_watch: ContextVar[ProgressListener | None] = ContextVar("probe_watch", default=None)


@contextmanager
def listen_to_progress(watch: ProgressListener) -> Iterator[None]:
    """Report progress to ``watch`` while the block runs."""
    token = _watch.set(watch)
    try:
        yield
    finally:
        _watch.reset(token)


def report_progress(work: str, done: int, total: int) -> None:
    """Report that ``done`` of ``total`` units of ``work`` are done."""
    if (watch := _watch.get()) is not None:
        watch(work, done, total)
