"""Overflow check: decide for each recorded call whether an overflow is normal or occurs on one side only.

Each forward call is run on the device and as the reference. An overflow is nan or infinity among the
floating-point outputs. The reference is computed in higher precision. A value of the reference counts as an
overflow if it is outside the range of the device's dtype (``overflow.yaml``).
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

from probe_core.files.packaged import load_yaml
from probe_core.flow.opening import open_run
from probe_core.plugins.manager import Manager
from probe_core.progress import report_progress
from probe_precheck.calls import RecordedCalls, require_arguments
from probe_precheck.checking import find_runner_spec, run_call
from probe_precheck.model import Array, Call, Outputs, Skipped
from probe_precheck.protocols import Runner
from probe_precheck.runner_options import SEED, RunnerOptions
from probe_precheck.settings import TIMEOUT, Settings
from probe_precheck.supervisor import Job, LostJob, supervise

NPU_SCOPE = "NPU"
"""Scope of the APIs that exist only on an NPU. Their calls are skipped."""

NO_FLOATS_REASON = "It returns no floating-point tensor."
NPU_ONLY_REASON = "An API of the NPU has no counterpart on the CPU."


class Overflow(str, Enum):
    """Results of the overflow check for one call."""

    NONE = "no overflow"
    """Neither side overflows."""
    NORMAL = "normal overflow"
    """Both sides overflow: the value is not finite, or outside the range of the dtype."""
    ABNORMAL = "abnormal overflow"
    """One side overflows and the other does not."""
    NOT_REPRODUCED = "not reproduced"
    """The record contains an overflow, but neither side overflows when the call is run again."""
    SKIPPED = "skipped"


class OverflowResult(NamedTuple):
    """Result of the overflow check for one call.

    Attributes:
        name: The name of the call.
        overflow: The result.
        recorded: True if the recorded outputs contain nan or infinity.
        device: True if the outputs of the device contain nan or infinity.
        reference: True if the outputs of the reference overflow in the dtype of the device.
        reason: The reason why the call was skipped; empty if it was run.
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
        margin: The relative distance below ``largest`` within which rounding on the device may cause an overflow.
        rounded: The relative distance above ``largest`` up to which a reference is rounded to ``largest``.
    """

    largest: float
    margin: float
    rounded: float


@dataclass(frozen=True, slots=True)
class OverflowPlan:
    """Settings of an overflow check.

    Attributes:
        dump: The path of the ``dump.json``.
        framework: The framework of the run; None to detect it from the file.
        device: ``cpu`` or the index of an accelerator. If empty, an accelerator is used if there is one, and
            otherwise the CPU.
        jit_compile: True to compile operators just in time, on devices with that option.
        only: Names of the calls or APIs to check; empty to check all calls.
        timeout: The time limit of a call in seconds.
        seed: The base of the seeds for generated inputs.
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
    """Picklable setup of a worker process."""

    framework: str
    options: RunnerOptions

    def __call__(self, worker_number: int) -> Callable[[Call], OverflowResult]:
        """Return the function that checks a call.

        Raises:
            UserError: The device is missing, or the framework is not installed.
        """
        runner: Runner = find_runner_spec(Manager(), self.framework).make()
        runner.open(self.options)
        return lambda call: check_call(runner, call)


def check_overflows(plan: OverflowPlan, manager: Manager) -> list[OverflowResult]:
    """Check the forward calls of a run, and return the results in the order of the record.

    Raises:
        UserError: The run, the device or the framework is missing, or no call matches ``only``.
    """
    run = open_run(manager, plan.dump, plan.framework)
    try:
        calls = RecordedCalls(require_arguments(run))
        spec = find_runner_spec(manager, run.header.framework)
        spec.make()  # reports a missing package before workers start
        selected_indices = calls.select(plan.only)
        jobs, results = _create_jobs(calls, selected_indices)
        options = RunnerOptions(plan.dump, plan.device, plan.jit_compile, seed=plan.seed, is_ours=run.header.is_ours)
        setup = OverflowCheckSetup(spec.framework, options)
        for index, result in _run_jobs(setup, jobs, plan.timeout, spec.preload):
            results[index] = result
            report_progress("checking", len(results), len(selected_indices))
    finally:
        run.close()
    return [results[index] for index in selected_indices]


def _create_jobs(calls: RecordedCalls, indices: Sequence[int]) -> tuple[list[Job], dict[int, OverflowResult]]:
    """Return the jobs for calls that can be checked, and the results of skipped calls by index."""
    jobs: list[Job] = []
    skipped: dict[int, OverflowResult] = {}
    for index in indices:
        call = replace(calls.get_call(index, Settings()), backward=None)
        reason = _find_skip_reason(call)
        if reason:
            skipped[index] = OverflowResult(call.name, Overflow.SKIPPED, has_recorded_overflow(call), reason=reason)
        else:
            jobs.append(Job(index, call, calls.estimate_cost(index)))
    return jobs, skipped


def _run_jobs(
    setup: OverflowCheckSetup, jobs: Sequence[Job], timeout: float, preload: Sequence[str]
) -> Iterator[tuple[int, OverflowResult]]:
    """Run the calls in a worker process, and yield the key and the result of each job."""
    if not jobs:
        return
    with closing(supervise(setup, jobs, 1, timeout, preload=(__name__, *preload))) as outcomes:
        for job, outcome in outcomes:
            if isinstance(outcome, LostJob):
                call = job.payload
                recorded = has_recorded_overflow(call)
                outcome = OverflowResult(call.name, Overflow.SKIPPED, recorded, reason=outcome.reason)
            yield job.key, outcome


def _find_skip_reason(call: Call) -> str:
    """Return the reason why a call cannot be checked; empty if it can."""
    if call.problem:
        return call.problem
    if call.parts[0] == NPU_SCOPE:
        return NPU_ONLY_REASON
    leaves = _iterate_leaves(call.forward.get("output"))
    has_floats = any("float" in str(leaf.get("dtype")).lower() for leaf in leaves)
    return "" if has_floats else NO_FLOATS_REASON


def check_call(runner: Runner, call: Call) -> OverflowResult:
    """Run one call on both sides, and return the result of the overflow check."""
    recorded = has_recorded_overflow(call)
    outputs = run_call(runner, call).forward
    if isinstance(outputs, Skipped):
        return OverflowResult(call.name, Overflow.SKIPPED, recorded, reason=outputs.message)
    pairs = [] if outputs is None else [*_pair_arrays(outputs)]
    if not pairs:
        return OverflowResult(call.name, Overflow.SKIPPED, recorded, reason=NO_FLOATS_REASON)
    device_overflows = any(not np.isfinite(device.values).all() for device, _ in pairs)
    reference_overflows = any(_overflows(bench, device.kind, margin=False) for device, bench in pairs)
    if device_overflows and not reference_overflows:
        reference_overflows = any(_overflows(bench, device.kind, margin=True) for device, bench in pairs)
    if device_overflows and reference_overflows:
        overflow = Overflow.NORMAL
    elif device_overflows or reference_overflows:
        overflow = Overflow.ABNORMAL
    else:
        overflow = Overflow.NOT_REPRODUCED if recorded else Overflow.NONE
    return OverflowResult(call.name, overflow, recorded, device_overflows, reference_overflows)


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


def _overflows(bench: Array, dtype: str, *, margin: bool) -> bool:
    """Return True if a reference is not finite, or outside the range of the device's dtype.

    With ``margin``, the range ends before the largest number, because rounding on the device may reach infinity.
    """
    values = bench.values
    if not np.isfinite(values).all():
        return True
    dtype_range = _load_ranges().get(dtype)
    if dtype_range is None or not values.size:
        return False
    limit = dtype_range.largest * (1 - dtype_range.margin if margin else 1 + dtype_range.rounded)
    return bool(np.abs(values).max() > limit)


def has_recorded_overflow(call: Call) -> bool:
    """Return True if the recorded outputs of a call contain nan or infinity."""
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
