"""The choice between compiled code and numpy, and the number of threads to compute on."""

from __future__ import annotations

import gc
import importlib
import os
from types import ModuleType

from probe_core.errors import UserError

ENGINES = ("compiled", "numpy")
VARIABLE = "PROBE_ENGINE"


def compiled(module: str) -> ModuleType | None:
    """Return the compiled ``module``, or None to use numpy, which gives the same results.

    The environment variable ``PROBE_ENGINE`` forces one of both; by default, compiled code is used if built.

    Raises:
        UserError: ``PROBE_ENGINE`` is no engine, or asks for compiled code that was not built.
    """
    wanted = os.environ.get(VARIABLE, "")
    if wanted not in ("", *ENGINES):
        raise UserError(
            f'{VARIABLE} is "{wanted}", which is not an engine.', "Unset it, or choose one:", ENGINES
        )
    if wanted == "numpy":
        return None
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if wanted:
            raise UserError(
                f"The compiled engine is not installed: {error}.",
                f"Install probe where there is a C++ compiler (gcc or clang), or unset {VARIABLE}: "
                "numpy gives the same numbers, but more slowly.",
            ) from None
        return None


_threads = 0


def cores() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def threads() -> int:
    """Return the number of threads that this process computes on."""
    return _threads or cores()


def use_threads(count: int) -> None:
    """Set the number of threads to compute on; 0 for one per processor."""
    global _threads
    _threads = count


def tune_process() -> None:
    """Tune the garbage collector and OpenBLAS of a process that only compares.

    Rows form few reference cycles, so the collector may run rarely. Probe's metrics multiply no matrices, so
    OpenBLAS need not start threads, which would use CPU time while idle.
    """
    gc.set_threshold(200_000, 20, 100)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
