"""Progress reporting through a context variable.

The code that reads and compares is many calls below the code that draws the progress bar, so the listener is
a context variable and not a parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Watch = Callable[[str, int, int], None]
"""A listener, called with the name of the work, the amount done, and the total amount."""

_watch: ContextVar[Watch | None] = ContextVar("probe_watch", default=None)


@contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """Report progress to ``watch`` while the block runs."""
    token = _watch.set(watch)
    try:
        yield
    finally:
        _watch.reset(token)


def tell(what: str, done: int, total: int) -> None:
    """Report that ``done`` of ``total`` units of ``what`` are done."""
    if (watch := _watch.get()) is not None:
        watch(what, done, total)
