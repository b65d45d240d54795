"""Calls of random functions with their call stacks; the results of the functions do not change."""

from __future__ import annotations

import json
import linecache
import os
import random
import sys
import threading
from collections.abc import Callable, Mapping
from types import CodeType, FrameType, MethodType
from typing import Any

MAX_STACKS = 5000
"""Largest number of call stacks of a function that are recorded."""
MAX_FRAMES = 100
"""Largest number of frames of a call stack; the innermost frames are recorded."""
PYTHON_FUNCTIONS = ("random", "randint", "uniform", "choice")
NUMPY_FUNCTIONS = ("rand", "randint", "choice", "normal")

StackKey = tuple[tuple[CodeType, int], ...]


class RecordedFunction:
    """A function that records its calls and returns what the original function returns.

    It equals the original function. So torch.compile recognizes both, even if it creates its table of functions
    while functions are replaced.

    Args:
        function: The original function.
        name: The name in the pack.
        log: The calls.
    """

    def __init__(self, function: Callable[..., Any], name: str, log: RandomLog) -> None:
        self._function, self._name, self._log = function, name, log
        self._is_compiling = get_compiling_test()
        self.__name__ = name.rpartition(".")[2]
        self.__doc__ = function.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the original function."""
        if not self._is_compiling() and self._log.is_active:  # compiled code has no frames
            self._log.add(self._name, sys._getframe(1))
        return self._function(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        """Return True for the original function as well."""
        return self is other or self._function is other

    def __hash__(self) -> int:
        return hash(self._function)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the original function."""
        return getattr(self._function, name)

    def __reduce__(self) -> Any:
        """Return the original function for pickling."""
        return _return_unchanged, (self._function,)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Return the method of an instance."""
        return self if instance is None else MethodType(self, instance)


def _return_unchanged(function: Any) -> Any:
    return function


class RandomLog:
    """The calls of patched random functions in this process.

    Attributes:
        is_active: True if calls are recorded.
    """

    def __init__(self) -> None:
        self.is_active = False
        self._counts: dict[str, dict[StackKey, int]] = {}
        self._patches: list[tuple[Any, str, Any, Any, bool]] = []
        self._lock = threading.RLock()  # a signal handler may also draw numbers
        os.register_at_fork(after_in_child=self._replace_lock)

    def start(self) -> None:
        """Record calls from now on."""
        self.is_active = True

    def patch(self, owner: Any, name: str, shown_name: str) -> None:
        """Replace a function of a module or class by one that records its calls, unless it was replaced.

        Args:
            owner: The module or class.
            name: The name of the function in ``owner``.
            shown_name: The name in the pack.
        """
        original = getattr(owner, name, None)
        if original is None or any(
            patched_owner is owner and patched_name == name for patched_owner, patched_name, *_ in self._patches
        ):
            return
        wrapper = RecordedFunction(original, shown_name, self)
        self._patches.append((owner, name, original, wrapper, name in vars(owner)))
        setattr(owner, name, wrapper)

    def patch_hosts(self) -> None:
        """Replace the functions of Python and NumPy."""
        import numpy as np

        for name in PYTHON_FUNCTIONS:
            self.patch(random, name, f"random.{name}")
        for name in NUMPY_FUNCTIONS:
            self.patch(np.random, name, f"np.random.{name}")

    def remove(self) -> None:
        """End recording, and restore the functions, except functions that other code replaced later."""
        self.is_active = False
        for owner, name, original, wrapper, is_defined_there in reversed(self._patches):
            if vars(owner).get(name) is not wrapper:
                continue
            if is_defined_there:
                setattr(owner, name, original)
            else:
                delattr(owner, name)
        self._patches.clear()
        self._counts.clear()

    def format_calls(self) -> str:
        """Return all calls as JSON, the content of a file in the pack."""
        with self._lock:
            counts = {name: dict(stacks) for name, stacks in self._counts.items()}
        return json.dumps(
            {
                name: [{"count": count, "stack": _format_stack(key)} for key, count in stacks.items()]
                for name, stacks in counts.items()
            },
            indent=4,
        )

    def add(self, name: str, frame: FrameType | None) -> None:
        """Count a call of a function from a frame and its callers."""
        frames: list[tuple[CodeType, int]] = []
        while frame is not None and len(frames) < MAX_FRAMES:
            frames.append((frame.f_code, frame.f_lineno))
            frame = frame.f_back
        key = tuple(frames)
        with self._lock:
            stacks = self._counts.setdefault(name, {})
            if key in stacks or len(stacks) < MAX_STACKS:
                stacks[key] = stacks.get(key, 0) + 1

    def _replace_lock(self) -> None:
        """Create a new lock in a forked child, because a thread of the parent may hold the copied lock."""
        self._lock = threading.RLock()


def get_compiling_test() -> Callable[[], bool]:
    """Return a function that tests whether torch compiles the code; torch replaces calls of it by their result."""
    compiler: Any = getattr(sys.modules.get("torch"), "compiler", None)
    return getattr(compiler, "is_compiling", None) or _is_never_compiling


def _is_never_compiling() -> bool:
    return False


def _format_stack(key: StackKey) -> list[str]:
    """Return the frames of a stack as texts, outermost first."""
    return [
        f"File {os.path.abspath(code.co_filename)}, line {line}, in {code.co_name}, "  # noqa: PTH100 - not resolved
        f"{linecache.getline(code.co_filename, line).strip()}"
        for code, line in reversed(key)
    ]


RANDOM_LOG = RandomLog()
"""The log of this process."""


def patch_functions(functions: Mapping[Any, tuple[str, tuple[str, ...]]]) -> None:
    """Patch functions of a framework.

    Args:
        functions: For each module or class, the prefix of the names in the pack, and the names of the functions.
    """
    for owner, (prefix, names) in functions.items():
        for name in names:
            RANDOM_LOG.patch(owner, name, f"{prefix}.{name}")
