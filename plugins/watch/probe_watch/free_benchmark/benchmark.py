"""The interface between the recorder of the task and its part for a framework."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from probe_recording import CallInterceptor, InterceptedCall

from probe_watch.free_benchmark.outcome import Outcome, Skip
from probe_watch.free_benchmark.preheat import Preheat
from probe_watch.free_benchmark.settings import Settings
from probe_watch.free_benchmark.thresholds import Thresholds


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
        is_active: True between start and stop; gradients that arrive later are not examined.
    """

    def __init__(
        self,
        settings: Settings,
        thresholds: Thresholds,
        interceptor: CallInterceptor,
        report: Callable[[str, Outcome], None],
        skip: Callable[[str, Skip], None],
        preheat: Preheat | None,
    ) -> None:
        self.settings = settings
        self.thresholds = thresholds
        self.interceptor = interceptor
        self.report = report
        self.skip = skip
        self.preheat = preheat
        self.is_active = False

    @abstractmethod
    def run(self, call: InterceptedCall) -> Any:
        """Run a call of the program and repeat it; return the result for the program."""
