"""Work of a worker process: compute each received call a second time, and measure the error of the recorded results."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from probe_precheck.api import Array, Call, Output, RunnerOptions
from probe_precheck.checking import find_runner_spec
from probe_precheck.model import BACKWARD, FORWARD, format_one_line
from probe_precheck.protocols import Replayer
from probe_precheck.replaying import RecomputedResult
from probe_precheck.yardstick import ErrorMeasurement, estimate_summands, measure

from probe_core.errors import UserError
from probe_core.plugins.manager import Manager

MEMORY_REASON = "there was not enough memory to compute the call"
MAX_KEPT_BYTES = (1 << 31) - 1
"""Maximum number of freed bytes that stay with the process."""
M_MMAP_MAX, M_TRIM_THRESHOLD = -4, -1
MALLOC_SETTINGS = {M_MMAP_MAX: 0, M_TRIM_THRESHOLD: MAX_KEPT_BYTES}
"""Settings of ``mallopt``. With ``M_MMAP_MAX`` = 0, no block gets a separate mapping."""


@dataclass(frozen=True, slots=True)
class CallResult:
    """Result of computing a call again.

    Attributes:
        name: The name of the call, without its direction.
        forward: The measured results, or the reason why there are none.
        backward: The measured results of the backward call, or the reason why there are none; None if the run recorded
            no backward call.
        lost: True if the process that computed the call died.
    """

    name: str
    forward: tuple[ErrorMeasurement, ...] | str
    backward: tuple[ErrorMeasurement, ...] | str | None = None
    lost: bool = False

    @property
    def directions(self) -> dict[str, tuple[ErrorMeasurement, ...] | str]:
        """Results or reasons of the directions that were recorded, by name."""
        results = {FORWARD: self.forward}
        return results if self.backward is None else {**results, BACKWARD: self.backward}


@dataclass(frozen=True, slots=True)
class ReplaySetup:
    """Setup of a worker process; it can be pickled.

    Attributes:
        framework: The framework of the run.
        options: The options of the runner.
    """

    framework: str
    options: RunnerOptions

    def __call__(self, slot: int) -> Callable[[Call], CallResult]:
        """Return the function that computes a call again.

        Raises:
            UserError: The framework is not installed, or its runner cannot compute calls again.
        """
        runner = find_replayer(Manager(), self.framework)
        keep_freed_memory()
        runner.open(self.options)

        def run(call: Call) -> CallResult:
            return replay_call(runner, call)

        return run


def keep_freed_memory() -> None:
    """Let this process reuse freed memory, if its C library supports it.

    By default, the C library maps new memory for each large array, and the system fills the pages with zeros. This
    took 40 % of the CPU time for a step of GPT-2.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library
            mallopt = ctypes.CDLL(None).mallopt
            for setting, value in MALLOC_SETTINGS.items():
                mallopt(setting, value)


def find_replayer(manager: Manager, framework: str) -> Replayer:
    """Create the runner of a framework, which must be able to compute calls again.

    Raises:
        UserError: No runner is installed, or it cannot compute calls again.
    """
    runner = find_runner_spec(manager, framework).make()
    if isinstance(runner, Replayer):
        return runner
    raise UserError(
        f"Calls of {framework} cannot be explained: its runner does not compute recorded calls again.",
        "Use the pre-check, which runs each call on a device and as a reference: probe run-ut.",
    )


def replay_call(runner: Replayer, call: Call) -> CallResult:
    """Compute a call again and return the result.

    If this raises an exception, the result contains its text as the reason.
    """
    if call.problem:
        return create_skipped_result(call, call.problem)
    try:
        return _measure_call(runner, call)
    except MemoryError:
        return create_skipped_result(call, MEMORY_REASON)
    except Exception as error:  # a framework may raise anything
        return create_skipped_result(call, format_one_line(error))


def create_skipped_result(call: Call, reason: str, *, lost: bool = False) -> CallResult:
    """Return the result of a call that was not computed again."""
    reason = reason.removesuffix(" SKIP.").replace(f"API {call.name} ", "").rstrip(".")
    return CallResult(call.name, reason, None if call.backward is None else reason, lost)


def _measure_call(runner: Replayer, call: Call) -> CallResult:
    replay = runner.replay(call)
    replay_perturbed = cache(partial(runner.replay, call, moved=True))

    def find_perturbed_reference(direction: str, name: str) -> Array | None:
        """Return the reference of a result, computed from inputs perturbed by rounding; None if there is none."""
        results = getattr(replay_perturbed(), direction)
        if not isinstance(results, tuple):
            return None
        return next((_convert_to_array(result.reference) for result in results if result.name == name), None)

    forward, backward = (
        _measure_direction(call, direction, results, partial(find_perturbed_reference, direction))
        for direction, results in zip((FORWARD, BACKWARD), replay)
    )
    assert forward is not None
    return CallResult(call.name, forward, backward)


def _measure_direction(
    call: Call,
    direction: str,
    results: tuple[RecomputedResult, ...] | str | None,
    find_perturbed_reference: Callable[[str], Array | None],
) -> tuple[ErrorMeasurement, ...] | str | None:
    """Return the measured results of a direction without the doubtful results, or the reason why there are none."""
    if not isinstance(results, tuple):
        return results
    measurements: list[ErrorMeasurement] = []
    doubt = ""
    for result in results:
        output = Output(
            call.api,
            _convert_to_array(result.reference),
            result.recorded,
            moved=partial(find_perturbed_reference, result.name),
            direction=direction,
            summands=estimate_summands(call, result.reference.size),
        )
        measured = measure(output, result.name)
        if measured.is_beyond and result.doubt:
            doubt = result.doubt
        else:
            measurements.append(measured)
    return tuple(measurements) or doubt


def _convert_to_array(reference: np.ndarray[Any, Any]) -> Array:
    return Array(reference, reference.dtype.name)
