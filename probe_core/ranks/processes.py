"""What all our worker processes share: how they start, what they take from their parent, how they end."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.util import Finalize
from typing import Any

from probe_core.files.atomic import private_directory

LONGEST_DIRECTORY = 56
"""Characters of the temporary directory in which the server that processes are forked from finds room for its
socket, whose path may have some hundred."""


def start_method() -> str:
    """How processes start here: forked from a server, which is quick, or else each from nothing."""
    can_fork = hasattr(os, "fork") and len(tempfile.gettempdir()) <= LONGEST_DIRECTORY
    return "forkserver" if can_fork else "spawn"


def mark_temporary() -> None:
    """Have multiprocessing keep its socket in a directory whose name says which process it belongs to.

    That directory goes with the process; where it is killed, the next of our processes removes it. A name of
    multiprocessing's own choice says nothing, so nobody could.
    """
    settings = getattr(multiprocessing.current_process(), "_config", None)  # where its get_temp_dir looks
    if settings is not None and settings.get("tempdir") is None:
        home = private_directory()
        Finalize(None, shutil.rmtree, args=(home,), kwargs={"ignore_errors": True}, exitpriority=-100)
        settings["tempdir"] = str(home)


@contextmanager
def hidden_main() -> Iterator[None]:
    """Processes that start meanwhile do not import the script that started them.

    So a script may use them without the guard that Python asks of those that start processes.
    """
    main = sys.modules["__main__"]
    names = ("__file__", "__spec__")
    hidden: dict[str, Any] = {name: main.__dict__[name] for name in names if name in main.__dict__}
    for name in hidden:
        del main.__dict__[name]
    main.__spec__ = None
    try:
        yield
    finally:
        main.__dict__.update(hidden)


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Ctrl-C waits until the block is left. A process that starts meanwhile holds it for good."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def our_variables() -> dict[str, str]:
    """Our variables in the environment as they are now."""
    return {name: text for name, text in os.environ.items() if name.startswith("PROBE_")}


# -- in a new process ------------------------------------------------------------------------------


def take_variables(variables: Mapping[str, str]) -> None:
    """Have ``variables`` and no others of ours; the server that we were forked from may have had others."""
    for name in our_variables():
        del os.environ[name]
    os.environ.update(variables)


def let_interrupts_in() -> None:
    """Undo what ``interrupts_held`` left in a process that started meanwhile."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def end_with_parent() -> None:
    """From now on end when the parent does: killed, it leaves its workers waiting for ever.

    A thread sees to it, and on Linux the kernel as well: a library that is stuck may hold the
    interpreter's lock, so that no thread of Python's ever runs.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    if sys.platform == "linux":
        import fcntl

        pipe = parent.sentinel  # open at the parent's end for as long as it lives; nothing is written to it
        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
    threading.Thread(target=_end_after, args=(parent,), name="probe-parent", daemon=True).start()


def _end_after(parent: Any) -> None:
    parent.join()
    os._exit(1)
