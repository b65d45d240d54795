"""Overflow check: is an overflow of a recorded call normal, or does only the device have it?

Each forward call is run on the device and as the reference. An overflow is nan or infinity among the
floating-point outputs. The reference has higher precision, so it overflows as well where its value is beyond
the range of the device's dtype (``overflow.yaml``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from probe_core.errors import UserError
from probe_core.files.packaged import load_yaml
from probe_core.flow.opening import open_run
from probe_core.plugins.manager import Manager
from probe_core.progress import report_progress
from probe_precheck.calls import RecordedCalls, get_api_name, rerunnable
from probe_precheck.checking import run_call, runner_of
from probe_precheck.model import Array, Call, Outputs, Skipped
from probe_precheck.protocols import Runner
from probe_precheck.settings import SEED, TIMEOUT, RunnerOptions, Settings
from probe_precheck.supervisor import Job, Lost, supervise

FUSED_SCOPE = "NPU"
"""Type of the APIs that only an NPU has, and that are skipped."""

NO_FLOATS_REASON = "It returns no floating-point tensor."
NPU_ONLY_REASON = "An API of the NPU has no counterpart on the CPU."


class Overflow(str, Enum):
    """Results of the overflow check for one call."""

    NONE = "no overflow"
    """Neither side overflows."""
    NORMAL = "normal overflow"
    """Both sides overflow: the value is not finite, or beyond the range of the dtype."""
    ABNORMAL = "abnormal overflow"
    """One side overflows and the other does not."""
    NOT_REPRODUCED = "not reproduced"
    """The record holds an overflow, and neither side overflows when the call is run again."""
    SKIPPED = "skipped"


class OverflowResult(NamedTuple):
    """Result of the overflow check for one call.

    Attributes:
        name: The name of the call.
        overflow: The result.
        recorded: True if the recorded outputs hold nan or infinity.
        device: True if the outputs of the device do.
        reference: True if the outputs of the reference do, in the dtype of the device.
        reason: The reason of a skipped call; else empty.
    """

    name: str
    overflow: Overflow
    recorded: bool = False
    device: bool = False
    reference: bool = False
    reason: str = ""


class DtypeRange(NamedTuple):
    """The range of a dtype; ``overflow.yaml`` describes the fields.

    Attributes:
        largest: The largest finite number.
        margin: The relative distance below it within which the device may overflow as well.
        rounded: The relative distance above it up to which a reference is rounded to it.
    """

    largest: float
    margin: float
    rounded: float


@dataclass(frozen=True, slots=True)
class OverflowPlan:
    """Order for an overflow check.

    Attributes:
        dump: The path of the ``dump.json``.
        framework: The framework of the run; None to find out from the file.
        device: ``cpu``, the index of an accelerator, or empty for an accelerator if there is one, else
            the CPU.
        jit_compile: True to compile operators just in time, on devices with that option.
        only: Names of calls, or of APIs, that alone are run; empty for all.
        timeout: The seconds that one call may take.
        seed: The number that the seeds of made-up inputs are derived from.
    """

    dump: Path
    framework: str | None = None
    device: str = ""
    jit_compile: bool = False
    only: tuple[str, ...] = ()
    timeout: float = TIMEOUT
    seed: int = SEED


@dataclass(frozen=True, slots=True)
class OverflowCheckSetup:
    """Setup of a worker process; it can be pickled."""

    framework: str
    options: RunnerOptions

    def __call__(self, slot: int) -> Callable[[Call], OverflowResult]:
        """Return the function that checks a call.

        Raises:
            UserError: The device is missing, or the framework is not installed.
        """
        runner: Runner = runner_of(Manager(), self.framework).make()
        runner.open(self.options)
        return lambda call: check_call(runner, call)


def check_overflows(plan: OverflowPlan, manager: Manager) -> list[OverflowResult]:
    """Check the forward calls of a run, and return the results in the order of the record.

    Raises:
        UserError: The run, the device or the framework is missing, or ``only`` names no call.
    """
    run = open_run(manager, plan.dump, plan.framework)
    try:
        calls = RecordedCalls(rerunnable(run))
        spec = runner_of(manager, run.header.framework)
        spec.make()  # here as well, so that a missing package is reported before workers start
        chosen = _choose_calls(calls, plan.only)
        results: dict[int, OverflowResult] = {}
        jobs: list[Job] = []
        for index in chosen:
            call = replace(calls.call(index, Settings()), backward=None)
            if reason := _find_skip_reason(call):
                results[index] = OverflowResult(call.name, Overflow.SKIPPED, has_recorded_overflow(call), reason=reason)
            else:
                jobs.append(Job(index, call, calls.cost(index)))
        options = RunnerOptions(plan.dump, plan.device, plan.jit_compile, seed=plan.seed, is_ours=run.header.is_ours)
        setup = OverflowCheckSetup(spec.framework, options)
        for index, result in _run(setup, jobs, plan.timeout, spec.preload):
            results[index] = result
            report_progress("checking", len(results), len(chosen))
    finally:
        run.close()
    return [results[index] for index in chosen]


def _choose_calls(calls: RecordedCalls, only: Sequence[str]) -> list[int]:
    """Return the indices of the calls to check."""
    names = calls.names
    chosen = [index for index, name in enumerate(names) if not only or name in only or get_api_name(name) in only]
    if not chosen:
        raise UserError("The run holds no call that --only names.", "Give a name such as Torch.exp.0 or Torch.exp.")
    return chosen


def _run(
    setup: OverflowCheckSetup, jobs: Sequence[Job], timeout: float, preload: Sequence[str]
) -> Iterator[tuple[int, OverflowResult]]:
    """Run calls in a process of their own, and yield the result of each."""
    if not jobs:
        return
    with closing(supervise(setup, jobs, 1, timeout, preload=(__name__, *preload))) as answers:
        for job, answer in answers:
            if isinstance(answer, Lost):
                call = job.payload
                recorded = has_recorded_overflow(call)
                answer = OverflowResult(call.name, Overflow.SKIPPED, recorded, reason=answer.reason)
            yield job.key, answer


def _find_skip_reason(call: Call) -> str:
    """Return the reason why a call is not run; empty if it is."""
    if call.problem:
        return call.problem
    if call.parts[0] == FUSED_SCOPE:
        return NPU_ONLY_REASON
    floats = [leaf for leaf in _iterate_leaves(call.forward.get("output")) if "float" in str(leaf.get("dtype")).lower()]
    return "" if floats else NO_FLOATS_REASON


def check_call(runner: Runner, call: Call) -> OverflowResult:
    """Run one call on both sides, and return the result of the overflow check."""
    recorded = has_recorded_overflow(call)
    outputs = run_call(runner, call).forward
    if isinstance(outputs, Skipped):
        return OverflowResult(call.name, Overflow.SKIPPED, recorded, reason=outputs.message)
    pairs = [] if outputs is None else [*_pair_arrays(outputs)]
    if not pairs:
        return OverflowResult(call.name, Overflow.SKIPPED, recorded, reason=NO_FLOATS_REASON)
    device = any(not np.isfinite(device_array.values).all() for device_array, _ in pairs)
    certain, possible = (
        any(_overflows(bench, device_array.kind, margin=margin) for device_array, bench in pairs)
        for margin in (False, True)
    )
    reference = certain or (device and possible)
    if device and reference:
        overflow = Overflow.NORMAL
    elif device or reference:
        overflow = Overflow.ABNORMAL
    else:
        overflow = Overflow.NOT_REPRODUCED if recorded else Overflow.NONE
    return OverflowResult(call.name, overflow, recorded, device, reference)


def _pair_arrays(outputs: Outputs) -> Iterator[tuple[Array, Array]]:
    """Yield the floating-point tensors of both sides."""
    sides = [[*_iterate_arrays(side)] for side in (outputs.device, outputs.bench)]
    for device, bench in zip(*sides):
        if device.values.dtype.kind in "fc":
            yield device, bench


def _iterate_arrays(value: Any) -> Iterator[Array]:
    """Yield the tensors of an output."""
    if isinstance(value, Array):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _iterate_arrays(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _iterate_arrays(item)


@cache
def _load_ranges() -> dict[str, DtypeRange]:
    """Return the range of each dtype."""
    return {name: DtypeRange(**entry) for name, entry in load_yaml(__package__, "overflow.yaml").items()}


def _overflows(bench: Array, kind: str, *, margin: bool) -> bool:
    """Return True if a reference is not finite, or beyond the range of the device's dtype."""
    values = bench.values
    if not np.isfinite(values).all():
        return True
    if kind not in _load_ranges() or not values.size:
        return False
    of_dtype = _load_ranges()[kind]
    limit = of_dtype.largest * (1 - of_dtype.margin if margin else 1 + of_dtype.rounded)
    return bool(np.abs(values).max() > limit)


def has_recorded_overflow(call: Call) -> bool:
    """Return True if the recorded outputs of a call hold nan or infinity."""
    texts = {
        str(leaf.get(name)).lower() for leaf in _iterate_leaves(call.forward.get("output")) for name in ("Max", "Min")
    }
    return not texts.isdisjoint({"nan", "inf", "-inf"})


def _iterate_leaves(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the descriptions of the tensors in a field of a record."""
    if isinstance(value, dict):
        if "dtype" in value:
            yield value
        else:
            for item in value.values():
                yield from _iterate_leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _iterate_leaves(item)
