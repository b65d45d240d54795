"""Work of a worker process: compute the calls that it is sent again, and measure what was recorded."""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from probe_precheck import (
    BACKWARD,
    FORWARD,
    Call,
    Recomputed,
    Replayer,
    RunnerOptions,
    described_leaves,
    one_line,
    runner_of,
)

from probe_core.errors import UserError
from probe_core.plugins.manager import Manager
from probe_explain.yardstick import Measured, measure

MEMORY = "there was not enough memory to compute it"
MALLOC = {-4: 0, -1: (1 << 31) - 1}
"""Settings of ``mallopt``: M_MMAP_MAX, no block is mapped by itself; M_TRIM_THRESHOLD, 2 GiB stay at hand."""


@dataclass(frozen=True, slots=True)
class Explained:
    """Result of computing a call again.

    Attributes:
        name: The name of the call, without its direction.
        forward: The measured results, or the reason why there are none.
        backward: The same of its backward; None if the run recorded none.
        lost: True if the call took its process with it.
    """

    name: str
    forward: tuple[Measured, ...] | str
    backward: tuple[Measured, ...] | str | None = None
    lost: bool = False

    @property
    def directions(self) -> dict[str, tuple[Measured, ...] | str]:
        """Results or reasons of the directions that were recorded, by name."""
        found = {FORWARD: self.forward}
        return found if self.backward is None else {**found, BACKWARD: self.backward}


@dataclass(frozen=True, slots=True)
class Replaying:
    """Setup of a worker process; it can be pickled.

    Attributes:
        framework: The framework of the run.
        options: The options of the runner.
    """

    framework: str
    options: RunnerOptions

    def __call__(self, slot: int) -> Callable[[Call], Explained]:
        """Return the function that computes a call again.

        Raises:
            UserError: The framework is not installed, or its runner cannot compute calls again.
        """
        runner = replayer_of(Manager(), self.framework)
        keep_freed_memory()
        runner.open(self.options)

        def run(call: Call) -> Explained:
            return explained(runner, call)

        return run


def keep_freed_memory() -> None:
    """Let this process use freed memory again, as far as its C library can.

    By default the C library maps each large array anew, and the system fills its pages with zeros: that took
    four tenths of the CPU time for a step of GPT-2.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library
            mallopt = ctypes.CDLL(None).mallopt
            for setting, value in MALLOC.items():
                mallopt(setting, value)


def replayer_of(manager: Manager, framework: str) -> Replayer:
    """Return the runner of a framework.

    Raises:
        UserError: No runner is installed, or it cannot compute calls again.
    """
    runner = runner_of(manager, framework).make()
    if isinstance(runner, Replayer):
        return runner
    raise UserError(
        f"Calls of {framework} cannot be explained: its runner does not compute recorded calls again.",
        "Use the pre-check, which runs each call on a device and as a reference: probe run-ut.",
    )


def explained(runner: Replayer, call: Call) -> Explained:
    """Return the outcome of computing a call again; an exception becomes the reason why it was not."""
    if call.problem:
        return without(call, call.problem)
    try:
        return _measured(runner, call)
    except MemoryError:
        return without(call, MEMORY)
    except Exception as error:  # a framework may raise anything
        return without(call, one_line(error))


def without(call: Call, reason: str, *, lost: bool = False) -> Explained:
    """Return the outcome of a call that was not computed again."""
    reason = reason.removesuffix(" SKIP.").replace(f"API {call.name} ", "").rstrip(".")
    return Explained(call.name, reason, None if call.backward is None else reason, lost)


def _measured(runner: Replayer, call: Call) -> Explained:
    replay = runner.replay(call)
    names = (FORWARD, BACKWARD)
    found = [_direction(call, name, results) for name, results in zip(names, replay)]
    if any(measured.is_beyond for results in found if isinstance(results, tuple) for measured in results):
        moved = runner.replay(call, moved=True)
        found = [
            _fragile(alone, _direction(call, name, *both))
            for alone, name, *both in zip(found, names, replay, moved)
        ]
    forward, backward = found
    assert forward is not None
    return Explained(call.name, forward, backward)


def _fragile(
    alone: tuple[Measured, ...] | str | None, found: tuple[Measured, ...] | str | None
) -> tuple[Measured, ...] | str | None:
    """Return results, those marked that rounding of what they were computed from explains alone."""
    if not isinstance(alone, tuple) or not isinstance(found, tuple):
        return found
    before = {measured.name for measured in alone if measured.is_beyond}
    return tuple(
        replace(measured, is_fragile=measured.name in before and not measured.is_beyond) for measured in found
    )


def _direction(
    call: Call,
    direction: str,
    results: tuple[Recomputed, ...] | str | None,
    moved: tuple[Recomputed, ...] | str | None = None,
) -> tuple[Measured, ...] | str | None:
    if not isinstance(results, tuple):
        return results
    references: dict[str, np.ndarray[Any, Any]] = {}
    if isinstance(moved, tuple):
        references = {other.name: other.reference for other in moved}
    sizes = _sizes(call)
    found: list[Measured] = []
    doubt = ""
    for result in results:
        length, other = _length(sizes, result.reference.size), references.get(result.name)
        measured = measure(result, call.api, direction, length, other)
        if measured.is_beyond and result.doubt and moved is not None:
            doubt = result.doubt
        else:
            found.append(measured)
    return tuple(found) or doubt


def _sizes(call: Call) -> list[int]:
    """Return the sizes of the tensors that a call receives, gradients included, the largest first."""
    fields = (call.forward.get("input_args"), call.forward.get("input_kwargs"), call.forward.get("input"))
    given = [*fields, (call.backward or {}).get("input")]
    shapes = [leaf.get("shape") for leaf in described_leaves(given) if isinstance(leaf, Mapping)]
    return sorted((math.prod(shape) for shape in shapes if isinstance(shape, list)), reverse=True)


def _length(sizes: list[int], size: int) -> float:
    """Return the number of elements that are summed for each of ``size`` results, at most.

    A reduction of n elements to m sums n / m; a product of matrices of a and b elements to m sums √(a b / m).
    """
    first, second = [*sizes, 1, 1][:2]
    size = max(1, size)
    return max(1.0, first / size, math.sqrt(first * second / size))
