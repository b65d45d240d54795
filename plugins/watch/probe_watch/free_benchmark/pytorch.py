"""The part of free_benchmark for PyTorch: repeats calls and compares both results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from probe_recording.api import InterceptedCall
from probe_recording.capture.interceptors import RandomStates

from probe_watch.free_benchmark.arguments import UnsupportedTensor, map_results
from probe_watch.free_benchmark.benchmark import Benchmark, GradientSwitch
from probe_watch.free_benchmark.outcome import SkipReason
from probe_watch.free_benchmark.preheat import PreheatRole
from probe_watch.free_benchmark.pytorch_arguments import iterate_torch_tensors
from probe_watch.free_benchmark.pytorch_comparison import TorchComparison
from probe_watch.free_benchmark.pytorch_repetition import Repetition, create_repetition
from probe_watch.free_benchmark.settings import ChangeMode, Handler, Stage

EXCLUDED_PREFIXES = ("Distributed.",)
"""Beginnings of the names of calls that are never repeated, because they communicate with other ranks."""


@dataclass(slots=True)
class _Plan:
    """The second runs of one call.

    Attributes:
        name: The name of the call, without phase.
        states: The random states before the call.
        changed: The run with changed arguments.
        generator: The generator that the call was given, or None.
        reference: The run on the CPU of a sample of preheating; None otherwise.
        is_sample: True for a sample of preheating.
    """

    name: str
    states: RandomStates
    changed: Repetition
    generator: Any
    reference: Repetition | None = None
    is_sample: bool = False

    @property
    def api(self) -> str:
        """The name of the API."""
        return self.name.rpartition(".")[0]


class TorchBenchmark(Benchmark):
    """The part of the task for PyTorch."""

    tensors = TorchComparison()

    def run(self, call: InterceptedCall) -> Any:
        """Run a call of the program and repeat it; return the result for the program.

        The second run of a forward call comes first, so that an in-place call finds its inputs unchanged.
        """
        plan = self._plan(call)
        if plan is None:
            return call.run()
        if self.preheat is not None:
            part = self.preheat.take(plan.api)
            if part is PreheatRole.COUNTED:
                return call.run()
            if part is PreheatRole.SAMPLE:
                self._add_reference(call, plan)
        if self.settings.stage is Stage.BACKWARD:
            return self._await_gradients(call, plan)
        return self._compare_results(call, plan)

    def _plan(self, call: InterceptedCall) -> _Plan | None:
        """Return the second run of a call; None if it is not examined."""
        settings = self.settings
        is_backward = settings.stage is Stage.BACKWARD
        if call.name.startswith(EXCLUDED_PREFIXES) or (is_backward and not call.differentiable_inputs()):
            return None
        try:
            with self.interceptor.suspend():
                changed = create_repetition(
                    call, settings.mode, self.thresholds.noise,
                    keeps_graph=settings.handler is Handler.FIX, only_gradients=is_backward,
                )  # fmt: skip
                if changed is None:
                    return None
                generator = call.kwargs.get("generator")
                return _Plan(call.name, self.interceptor.read_random_states(generator), changed, generator)
        except UnsupportedTensor:
            self.skip(call.name, SkipReason.KIND)
        except Exception:  # the call of the program must go on whatever the error
            self.skip(call.name, SkipReason.FAILED)
        return None

    def _add_reference(self, call: InterceptedCall, plan: _Plan) -> None:
        """Make a call a sample of preheating, by a run on the CPU."""
        plan.is_sample = True
        try:
            with self.interceptor.suspend():
                plan.reference = create_repetition(call, ChangeMode.TO_CPU, self.thresholds.noise)
        except Exception:  # the call of the program must go on whatever the error
            self.skip(call.name, SkipReason.FAILED)

    # -- forward ---------------------------------------------------------------------------

    def _compare_results(self, call: InterceptedCall, plan: _Plan) -> Any:
        results = self._repeat(plan, lambda repetition: repetition.run())
        original = call.run()
        if results is None:
            return original
        with self.interceptor.suspend():
            if self._is_random(plan):
                return original
            changed = results[0]
            reference = None if plan.reference is None else results[1]  # random numbers have no reference
            self.judge.judge(plan.name, [(None, original, changed, reference)], is_sample=plan.is_sample)
            if self.settings.handler is Handler.FIX:
                return fix_result(call, original, changed)
        return original

    def _is_random(self, plan: _Plan) -> bool:
        """Return True if the call drew random numbers that its second run cannot draw again.

        Such numbers differ in another dtype or on another device. A sample of preheating is then not compared
        with the CPU.
        """
        if not plan.states.have_changed():
            return False
        plan.reference = None
        if self.settings.mode.raises_precision:
            self.skip(plan.name, SkipReason.RANDOM)
            return True
        return False

    def _repeat(self, plan: _Plan, run: Callable[[Repetition], Any]) -> tuple[Any, Any] | None:
        """Return the results of the second runs, from the random states before the call; None on failure."""
        try:
            changed = run(plan.changed)
            plan.states.restore()
            reference = None if plan.reference is None else run(plan.reference)
        except Exception:
            self.skip(plan.name, SkipReason.FAILED)
            return None
        finally:
            plan.states.restore()
        return changed, reference

    # -- backward --------------------------------------------------------------------------

    def _await_gradients(self, call: InterceptedCall, plan: _Plan) -> Any:
        receiver = GradientSwitch(partial(self._compare_gradients, plan))
        result = call.run(receiver)
        with self.interceptor.suspend():
            receiver.is_on = not self._is_random(plan)
        return result

    def _compare_gradients(self, plan: _Plan, received: Sequence[Any], passed_on: Sequence[Any]) -> None:
        """Repeat the call and its backward pass, and compare the gradients of its inputs."""
        if not self.is_active or all(gradient is None for gradient in passed_on):
            return
        with self.interceptor.suspend():
            now = self.interceptor.read_random_states(plan.generator)
            try:
                plan.states.restore()
                results = self._repeat(plan, lambda repetition: repetition.compute_gradients(received))
            finally:
                now.restore()
            if results is not None:
                self.judge.judge_gradients(plan.name, passed_on, *results, is_sample=plan.is_sample)


# -- replacement of the result of a call by that of its second run, for ``"handler_type": "fix"`` ---


def fix_result(call: InterceptedCall, original: Any, changed: Any) -> Any:
    """Return the second result in the dtypes and on the devices of the program's.

    A result that the call wrote into one of its arguments is written there again.

    Args:
        call: The call.
        original: Its result.
        changed: The result of its second run, of the same structure.
    """
    arguments = {id(tensor) for tensor in iterate_torch_tensors((call.args, call.kwargs))} if call.writes else set()
    return map_results(partial(_convert_tensor, arguments=arguments), original, changed, torch.Tensor)


def _convert_tensor(original: torch.Tensor, changed: Any, arguments: set[int]) -> torch.Tensor:
    if not isinstance(changed, torch.Tensor) or original.shape != changed.shape:
        return original
    return original.copy_(changed) if id(original) in arguments else changed.to(original)
