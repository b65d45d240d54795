"""The choice between compiled code and numpy, and the number of threads to compute on."""

from __future__ import annotations

import gc
import importlib
import os
from types import ModuleType

from probe_core.errors import UserError

ENGINES = ("compiled", "numpy")
ENGINE_VARIABLE = "PROBE_ENGINE"


def import_compiled(module: str) -> ModuleType | None:
    """Return the compiled ``module``, or None to use numpy, which computes the same results.

    The environment variable ``PROBE_ENGINE`` selects an engine. By default, compiled code is used if it is built.

    Raises:
        UserError: ``PROBE_ENGINE`` is not the name of an engine, or selects compiled code that is not built.
    """
    engine = os.environ.get(ENGINE_VARIABLE, "")
    if engine not in ("", *ENGINES):
        raise UserError(
            f'{ENGINE_VARIABLE} is "{engine}", which is not an engine.', "Unset it, or choose one:", ENGINES
        )
    if engine == "numpy":
        return None
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if engine:
            raise UserError(
                f"The compiled engine is not installed: {error}.",
                f"Install probe where there is a C++ compiler (gcc or clang), or unset {ENGINE_VARIABLE}: "
                "numpy gives the same numbers, but more slowly.",
            ) from None
        return None


_threads = 0


def count_cores() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def count_threads() -> int:
    """Return the number of threads that this process computes on."""
    return _threads or count_cores()


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
