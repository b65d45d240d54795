"""The interface between the recorder of the task and its part for a framework."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from probe_recording.api import CallInterceptor, InterceptedCall

from probe_watch.free_benchmark.judge import BenchmarkJudge, TensorComparison
from probe_watch.free_benchmark.outcome import OutputComparison, SkipReason
from probe_watch.free_benchmark.preheat import Preheat
from probe_watch.free_benchmark.settings import BenchmarkSettings
from probe_watch.free_benchmark.thresholds import Thresholds


class GradientSwitch:
    """A receiver of gradients that ignores them unless it is on.

    Args:
        receiver: The receiver of the gradients of one call.
    """

    def __init__(self, receiver: Callable[[Sequence[Any], Sequence[Any]], None]) -> None:
        self.is_on = False
        self._receiver = receiver

    def __call__(self, received: Sequence[Any], passed_on: Sequence[Any]) -> None:
        """Pass the gradients on."""
        if self.is_on:
            self._receiver(received, passed_on)


class Benchmark(ABC):
    """The part of the task that knows a framework.

    Args:
        settings: The settings of the task.
        thresholds: The thresholds.
        interceptor: The source of the calls.
        report: A function that receives the name of a call, with its phase, and each of its outcomes.
        skip: A function that receives the name of a call that is not examined, and the reason.
        preheat: The learned thresholds; None without preheating.

    Attributes:
        tensors: The comparison of the framework's tensors.
        judge: The comparison of results, which reports the outcomes.
        is_active: True between start and stop; gradients that arrive later are not examined.
    """

    tensors: ClassVar[TensorComparison]

    def __init__(
        self,
        settings: BenchmarkSettings,
        thresholds: Thresholds,
        interceptor: CallInterceptor,
        report: Callable[[str, OutputComparison], None],
        skip: Callable[[str, SkipReason], None],
        preheat: Preheat | None,
    ) -> None:
        self.settings = settings
        self.thresholds = thresholds
        self.interceptor = interceptor
        self.skip = skip
        self.preheat = preheat
        self.judge = BenchmarkJudge(settings, thresholds, report, skip, preheat, self.tensors)
        self.is_active = False

    def flush(self) -> None:  # noqa: B027 - a framework may compare at once
        """Compare what waits for a moment at which no call and no backward pass runs."""

    @abstractmethod
    def run(self, call: InterceptedCall) -> Any:
        """Run a call of the program and repeat it; return the result for the program."""
