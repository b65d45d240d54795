"""Which code does the heavy work: compiled, or Python with numpy where there is no compiler."""

from __future__ import annotations

import importlib
import os
from types import ModuleType

from probe_core.errors import UserError

ENGINES = ("compiled", "numpy")
VARIABLE = "PROBE_ENGINE"


def compiled(module: str) -> ModuleType | None:
    """The compiled ``module``, or None where Python and numpy do its work, with the same results.

    ``PROBE_ENGINE`` forces the one or the other; unset, what was built is taken.

    Raises:
        UserError: ``PROBE_ENGINE`` names no engine, or the compiled one where it was not built.
    """
    wanted = os.environ.get(VARIABLE, "")
    if wanted not in ("", *ENGINES):
        raise UserError(f'{VARIABLE} is "{wanted}", which is no engine.', "Unset it, or choose one:", ENGINES)
    if wanted == "numpy":
        return None
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if wanted:
            raise UserError(
                f"There is no compiled engine: {error}.",
                f"Install probe where there is a C++ compiler (gcc or clang), or unset {VARIABLE}: "
                "numpy gives the same numbers, more slowly.",
            ) from None
        return None


_threads = 0


def cores() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def threads() -> int:
    """How many threads this process may compute on."""
    return _threads or cores()


def use_threads(count: int) -> None:
    """From now on compute on ``count`` threads; 0 is as many as there are processors."""
    global _threads
    _threads = count
