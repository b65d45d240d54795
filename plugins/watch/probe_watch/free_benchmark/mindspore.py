"""The part of free_benchmark for MindSpore: repeats calls and compares both results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import mindspore
from mindspore import Parameter, Tensor
from probe_recording.api import InterceptedCall

from probe_core.errors import UserError
from probe_watch.free_benchmark.arguments import UnsupportedTensor, map_results
from probe_watch.free_benchmark.benchmark import Benchmark, GradientSwitch
from probe_watch.free_benchmark.mindspore_repetition import Repetition, create_repetition
from probe_watch.free_benchmark.mindspore_tensors import MindSporeComparison, iterate_mindspore_tensors
from probe_watch.free_benchmark.outcome import SkipReason
from probe_watch.free_benchmark.preheat import PreheatRole
from probe_watch.free_benchmark.settings import BenchmarkSettings, ChangeMode, Handler, Stage

UNWRITTEN_CALLS = ("Mint.empty", "Mint.empty_like", "Tensor.new_empty")
"""APIs that return memory without values."""

BATCH_NORM_PRIMITIVE = "BatchNorm"
"""The primitive whose CPU kernel writes the first of its outputs, and no other one in all cases."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """The second runs of one call.

    Attributes:
        changed: The run with changed arguments.
        reference: The run on the CPU of a sample of preheating; None otherwise.
        is_sample: True for a sample of preheating.
    """

    changed: Repetition
    reference: Repetition | None = None
    is_sample: bool = False


@dataclass(frozen=True, slots=True)
class _ArrivedGradients:
    """The gradients of one call of the program, which wait for the second runs.

    Attributes:
        name: The name of the call, without phase.
        plan: The second runs.
        received: The gradients of its results.
        passed_on: The gradients of its inputs.
    """

    name: str
    plan: _Plan
    received: Sequence[Any]
    passed_on: Sequence[Any]


class MindSporeBenchmark(Benchmark):
    """The part of the task for MindSpore.

    Raises:
        UserError: The settings need what MindSpore does not have.
    """

    tensors = MindSporeComparison()

    def __init__(self, settings: BenchmarkSettings, *arguments: Any) -> None:
        super().__init__(settings, *arguments)
        _check(settings)
        self._arrived: list[_ArrivedGradients] = []
        if settings.stage is Stage.BACKWARD:
            self.interceptor.check_gradients()

    def run(self, call: InterceptedCall) -> Any:
        """Run a call of the program and repeat it; return the result for the program.

        The call of the program comes first, because only then it is known whether it draws random numbers. A
        second run would change the states of kernels, which MindSpore cannot restore.
        """
        plan = self._plan(call)
        if plan is None:
            return call.run()
        is_backward = self.settings.stage is Stage.BACKWARD
        switch = GradientSwitch(partial(self._await, call.name, plan))
        states = self.interceptor.read_random_states()
        original = call.run(switch if is_backward else None)
        if states.have_changed():
            self.skip(call.name, SkipReason.RANDOM)
            return original
        switch.is_on = is_backward
        return original if is_backward else self._compare(call, plan, original)

    def _plan(self, call: InterceptedCall) -> _Plan | None:
        """Return the second runs of a call; None if it is not examined."""
        is_fix = self.settings.handler is Handler.FIX
        if (is_fix and call.writes) or _get_api(call.name) in UNWRITTEN_CALLS:
            return None
        try:
            with self.interceptor.suspend():
                inputs = call.differentiable_inputs() if self.settings.stage is Stage.BACKWARD else []
                if self.settings.stage is Stage.BACKWARD and not inputs:
                    return None
                changed = create_repetition(
                    call, self.settings.mode, self.thresholds.noise, keeps_graph=is_fix, differentiable=inputs
                )
                return None if changed is None else self._plan_preheated(call, changed, inputs)
        except UnsupportedTensor:
            self.skip(call.name, SkipReason.KIND)
        except Exception:  # the call of the program must go on whatever the error
            self.skip(call.name, SkipReason.FAILED)
        return None

    def _plan_preheated(self, call: InterceptedCall, changed: Repetition, inputs: Sequence[Tensor]) -> _Plan | None:
        """Return the plan of a call by the schedule of preheating; None if the call is only counted."""
        part = PreheatRole.COMPARED if self.preheat is None else self.preheat.take(_get_api(call.name))
        if part is PreheatRole.COUNTED:
            return None
        if part is PreheatRole.COMPARED:
            return _Plan(changed)
        reference = None
        try:
            reference = create_repetition(call, ChangeMode.TO_CPU, self.thresholds.noise, differentiable=inputs)
        except Exception:  # the call of the program must go on whatever the error
            self.skip(call.name, SkipReason.FAILED)
        return _Plan(changed, reference, is_sample=True)

    def _compare(self, call: InterceptedCall, plan: _Plan, original: Any) -> Any:
        """Compare the result with those of the second runs; return the result for the program."""
        try:
            changed = plan.changed.run()
            reference = None if plan.reference is None else plan.reference.run()
        except Exception:
            self.skip(call.name, SkipReason.FAILED)
            return original
        with self.interceptor.suspend():
            expected = None
            if plan.reference is not None:
                expected = _select_written(call, reference, plan.reference.args)
            written = (_select_written(call, original, call.args), _select_written(call, changed, plan.changed.args))
            self.judge.judge(call.name, [(None, *written, expected)], is_sample=plan.is_sample)
            if self.settings.handler is Handler.FIX:
                arguments = {id(tensor) for tensor in iterate_mindspore_tensors((call.args, call.kwargs))}
                return map_results(partial(_fix_tensor, arguments=arguments), original, changed, Tensor)
        return original

    # -- backward --------------------------------------------------------------------------

    def _await(self, name: str, plan: _Plan, received: Sequence[Any], passed_on: Sequence[Any]) -> None:
        """Note the gradients of a call; a second backward pass must not run within this one."""
        if self.is_active and any(gradient is not None for gradient in passed_on):
            self._arrived.append(_ArrivedGradients(name, plan, received, passed_on))

    def flush(self) -> None:
        """Run the backward passes of the calls whose gradients arrived, and compare them."""
        with self.interceptor.suspend():
            while self._arrived:
                arrived = self._arrived.pop(0)
                plan = arrived.plan
                try:
                    changed = plan.changed.gradients(arrived.received)
                    reference = None if plan.reference is None else plan.reference.gradients(arrived.received)
                except Exception:
                    self.skip(arrived.name, SkipReason.FAILED)
                    continue
                self.judge.judge_gradients(
                    arrived.name, arrived.passed_on, changed, reference, is_sample=plan.is_sample
                )


def _get_api(name: str) -> str:
    """Return the name of the API of a call."""
    return name.rpartition(".")[0]


def _select_written(call: InterceptedCall, result: Any, args: tuple[Any, ...]) -> Any:
    """Return what a run of a call wrote: its result, or the arguments of a call that returns nothing useful.

    Kernels of optimizers write into parameters, and leave their outputs without values.
    """
    family, _, rest = _get_api(call.name).partition(".")
    if family != "Primitive":
        return args[0] if result is None and call.writes and args else result
    if rest.rpartition(".")[2] == BATCH_NORM_PRIMITIVE:
        return result[:1] if isinstance(result, tuple) else result
    if not call.writes:
        return result
    return tuple(arg if isinstance(arg, Parameter) else None for arg in args)


def _fix_tensor(original: Tensor, changed: Any, arguments: set[int]) -> Tensor:
    """Return the second result in the dtype of the program's; a result that is an argument is kept."""
    if not isinstance(changed, Tensor) or original.shape != changed.shape or id(original) in arguments:
        return original
    return changed if changed.dtype == original.dtype else changed.astype(original.dtype)


def _check(settings: BenchmarkSettings) -> None:
    """Raise a UserError if the settings need what MindSpore does not have."""
    needs_cpu = settings.mode is ChangeMode.TO_CPU or settings.preheat
    if needs_cpu and mindspore.get_context("device_target") != "CPU":
        field = "if_preheat" if settings.preheat else "pert_mode"
        raise UserError(
            f'"{field}" runs single calls on the CPU, which MindSpore cannot do on another device.',
            'Set "if_preheat": false, and "pert_mode" to another value than to_cpu.',
        )
