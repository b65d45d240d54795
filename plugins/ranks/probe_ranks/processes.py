"""Start and end of worker processes, and the environment that they share with their parent."""

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
from multiprocessing import resource_tracker, util
from multiprocessing.util import Finalize
from typing import Any

from probe_core.files.atomic import create_private_directory

MAX_TEMPORARY_PATH_LENGTH = 56
"""Longest path of the temporary directory in characters. The fork server puts a socket into it, whose path is
limited to about a hundred."""


def choose_start_method() -> str:
    """Return the way to start processes: forked from a server, which is quick, or each from nothing."""
    can_fork = hasattr(os, "fork") and len(tempfile.gettempdir()) <= MAX_TEMPORARY_PATH_LENGTH
    return "forkserver" if can_fork else "spawn"


def mark_temporary_directory() -> None:
    """Let multiprocessing keep its socket in a directory whose name contains this process's number.

    The directory is removed when the process ends. If the process is killed, the next probe process can
    recognise and remove it, which it could not with multiprocessing's own name.
    """
    settings = getattr(multiprocessing.current_process(), "_config", None)  # read by its get_temp_dir
    if settings is not None and settings.get("tempdir") is None:
        home = create_private_directory()
        Finalize(None, shutil.rmtree, args=(home,), kwargs={"ignore_errors": True}, exitpriority=-100)
        settings["tempdir"] = str(home)


ISOLATION_FLAGS = ("-P",) if sys.version_info >= (3, 11) else ("-I",)
"""Options of an interpreter that keep the working directory off its import path.

Python 3.10 has no ``-P``. Its ``-I`` also ignores ``PYTHONPATH`` and the packages of the user until the
process receives the import path of its parent.
"""


@contextmanager
def isolate_start() -> Iterator[None]:
    """Keep processes that start in the block from importing the main script or the working directory.

    multiprocessing starts its processes, its fork server and its resource tracker by ``python -c``, which
    puts the working directory first on the import path. ``probe compare .`` would then run the file
    ``struct.py`` of a stranger. A started process receives the import path of this process instead. A script
    needs no ``if __name__ == "__main__"`` around calls that start processes.
    """
    main = sys.modules["__main__"]
    names = ("__file__", "__spec__")
    hidden: dict[str, Any] = {name: main.__dict__[name] for name in names if name in main.__dict__}
    for name in hidden:
        del main.__dict__[name]
    main.__spec__ = None
    with _isolate_interpreters():
        try:
            yield
        finally:
            main.__dict__.update(hidden)


_isolation_lock = threading.RLock()


@contextmanager
def _isolate_interpreters() -> Iterator[None]:
    """Add ``ISOLATION_FLAGS`` to the command lines that multiprocessing makes in the block, in any thread."""
    with _isolation_lock:
        flags_of_this_interpreter: Any = util._args_from_interpreter_flags  # type: ignore[attr-defined]
        util._args_from_interpreter_flags = lambda: [*flags_of_this_interpreter(), *ISOLATION_FLAGS]  # type: ignore[attr-defined]
        try:
            yield
        finally:
            util._args_from_interpreter_flags = flags_of_this_interpreter  # type: ignore[attr-defined]


def start_resource_tracker() -> None:
    """Start multiprocessing's resource tracker, unless it runs.

    Call this before ``hold_interrupts``, because starting the tracker unblocks Ctrl-C.
    """
    with isolate_start():
        resource_tracker.ensure_running()


@contextmanager
def hold_interrupts() -> Iterator[None]:
    """Delay Ctrl-C until the end of the block; it stays blocked in processes that start in the block."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def collect_variables() -> dict[str, str]:
    """Return the environment variables of probe with their present values."""
    return {name: text for name, text in os.environ.items() if name.startswith("PROBE_")}


# -- in a new process ------------------------------------------------------------------------------


def replace_variables(variables: Mapping[str, str]) -> None:
    """Replace probe's environment variables, which are outdated in processes forked from the server."""
    for name in collect_variables():
        del os.environ[name]
    os.environ.update(variables)


def unblock_interrupts() -> None:
    """Accept Ctrl-C again in a process that started within ``hold_interrupts``."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def end_with_parent() -> None:
    """End this process when its parent ends, even if the parent is killed.

    A thread waits for the parent. On Linux the kernel also sends a signal, because a library that hangs may
    hold the interpreter's lock, so that no Python thread runs.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    if sys.platform == "linux":
        import fcntl

        pipe = parent.sentinel  # the parent keeps its end open while it lives, and writes nothing
        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
    threading.Thread(target=_end_after, args=(parent,), name="probe-parent", daemon=True).start()


def _end_after(parent: Any) -> None:
    parent.join()
    os._exit(1)
