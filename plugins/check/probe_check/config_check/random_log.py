"""Calls of random functions with their call stacks. The functions return what they return without it."""

from __future__ import annotations

import json
import linecache
import os
import random
import sys
import threading
from collections.abc import Callable, Mapping
from functools import wraps
from types import CodeType, FrameType
from typing import Any

MAX_STACKS = 5000
"""Largest number of call stacks of a function that are recorded."""
MAX_FRAMES = 100
"""Largest number of frames of a call stack; the innermost ones are recorded."""
PYTHON_FUNCTIONS = ("random", "randint", "uniform", "choice")
NUMPY_FUNCTIONS = ("rand", "randint", "choice", "normal")

StackKey = tuple[tuple[CodeType, int], ...]


class RandomLog:
    """The calls of patched random functions in this process."""

    def __init__(self) -> None:
        self._is_active = False
        self._counts: dict[str, dict[StackKey, int]] = {}
        self._patches: list[tuple[Any, str, Any, Any]] = []
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._forget_lock)

    def start(self) -> None:
        """Record calls from now on."""
        self._is_active = True

    def patch(self, home: Any, name: str, shown: str) -> None:
        """Replace a function of a module or class by one that records its calls, unless it was replaced.

        Args:
            home: The module or class.
            name: The name of the function there.
            shown: The name in the pack.
        """
        original = getattr(home, name, None)
        if original is None or any(one is home and own == name for one, own, *_ in self._patches):
            return
        wrapper = self._recorded(original, shown)
        setattr(home, name, wrapper)
        self._patches.append((home, name, original, wrapper))

    def patch_hosts(self) -> None:
        """Replace the functions of Python and NumPy."""
        import numpy as np

        for name in PYTHON_FUNCTIONS:
            self.patch(random, name, f"random.{name}")
        for name in NUMPY_FUNCTIONS:
            self.patch(np.random, name, f"np.random.{name}")

    def remove(self) -> None:
        """End recording, and restore the functions, except those that something else replaced since."""
        self._is_active = False
        for home, name, original, wrapper in reversed(self._patches):
            if getattr(home, name, None) is not wrapper:
                continue
            delattr(home, name)
            if getattr(home, name, None) is not original:  # an inherited method needs no attribute of its own
                setattr(home, name, original)
        self._patches.clear()
        self._counts.clear()

    def text(self) -> str:
        """Return the content of the member of the pack."""
        with self._lock:
            counts = {name: dict(stacks) for name, stacks in self._counts.items()}
        return json.dumps(
            {
                name: [{"count": count, "stack": _lines(key)} for key, count in stacks.items()]
                for name, stacks in counts.items()
            },
            indent=4,
        )

    def _recorded(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._is_active and not _is_compiling():
                self._add(name, sys._getframe(1))
            return function(*args, **kwargs)

        return call

    def _add(self, name: str, frame: FrameType | None) -> None:
        frames: list[tuple[CodeType, int]] = []
        while frame is not None and len(frames) < MAX_FRAMES:
            frames.append((frame.f_code, frame.f_lineno))
            frame = frame.f_back
        key = tuple(frames)
        with self._lock:
            stacks = self._counts.setdefault(name, {})
            if key in stacks or len(stacks) < MAX_STACKS:
                stacks[key] = stacks.get(key, 0) + 1

    def _forget_lock(self) -> None:
        """Make a new lock in a forked child, whose copy may be held by a thread of the parent."""
        self._lock = threading.Lock()


def _is_compiling() -> bool:
    """Return True while torch compiles a function, which cannot look at frames."""
    compiler: Any = getattr(sys.modules.get("torch"), "compiler", None)
    return compiler is not None and getattr(compiler, "is_compiling", bool)()


def _lines(key: StackKey) -> list[str]:
    """Return the frames of a stack as texts, outermost first."""
    return [
        f"File {os.path.abspath(code.co_filename)}, line {line}, in {code.co_name}, "  # noqa: PTH100 - not resolved
        f"{linecache.getline(code.co_filename, line).strip()}"
        for code, line in reversed(key)
    ]


LOG = RandomLog()
"""The calls of this process."""


def extra_patches(functions: Mapping[Any, tuple[str, tuple[str, ...]]]) -> None:
    """Patch functions of a framework: homes, with the prefix of the shown names and the names."""
    for home, (prefix, names) in functions.items():
        for name in names:
            LOG.patch(home, name, f"{prefix}.{name}")
