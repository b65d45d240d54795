"""The judgement of a second run: the limits that apply to its results, and the report of the outcomes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from probe_watch.free_benchmark.outcome import OutputComparison, SkipReason
from probe_watch.free_benchmark.outputs import NotComparable, compare_outputs
from probe_watch.free_benchmark.preheat import Preheat
from probe_watch.free_benchmark.settings import BenchmarkSettings, ChangeMode
from probe_watch.free_benchmark.thresholds import CpuLimits, Thresholds


class TensorComparison(Protocol):
    """The comparison of two tensors of a framework.

    Attributes:
        tensor_type: The class of tensors.
    """

    tensor_type: type

    def name_dtype(self, tensor: Any) -> str:
        """Return the name of a tensor's dtype as in the thresholds, such as ``float32``."""

    def is_inexact(self, tensor: Any) -> bool:
        """Return True for floating and complex tensors."""

    def compare_on_device(self, original: Any, changed: Any, floor: float, limit: float) -> OutputComparison:
        """Return the outcome of the comparison by ratios."""

    def compare_with_cpu(self, original: Any, reference: Any, limits: CpuLimits) -> OutputComparison:
        """Return the outcome of the comparison with the result of the CPU."""


@dataclass(slots=True)
class BenchmarkJudge:
    """The comparison of the results of second runs with those of the program.

    Attributes:
        settings: The settings of the task.
        thresholds: The thresholds.
        report: A function that receives the name of a call, with its phase, and each of its outcomes.
        skip: A function that receives the name of a call that cannot be compared, and the reason.
        preheat: The learned thresholds; None without preheating.
        tensors: The comparison of tensors.
    """

    settings: BenchmarkSettings
    thresholds: Thresholds
    report: Callable[[str, OutputComparison], None]
    skip: Callable[[str, SkipReason], None]
    preheat: Preheat | None
    tensors: TensorComparison

    def judge(self, name: str, results: Sequence[tuple[int | None, Any, Any, Any]], *, is_sample: bool) -> None:
        """Compare results of the program and of the second runs, and report the outcomes.

        Args:
            name: The name of the call, without phase.
            results: The number of an input for gradients, None for results; the program's value, that of the
                changed run, and that of the run on the CPU or None.
            is_sample: True for a sample of preheating.
        """
        key = f"{name}.{self.settings.stage.value}"
        api = name.rpartition(".")[0]
        try:
            for place, original, changed, reference in results:
                outcomes = self._list_outcomes(original, changed, partial(self._compare, api))
                if reference is not None:
                    self._add_samples(api, outcomes, original, reference)
                for outcome in outcomes:
                    self.report(key, outcome if place is None else replace(outcome, index=place))
        except NotComparable:
            self.skip(name, SkipReason.COMPARISON)
        except Exception:  # the result must reach the program whatever the error
            self.skip(name, SkipReason.FAILED)
        if is_sample and self.preheat is not None:
            self.preheat.end_sample(self.settings.mode, api)

    def judge_gradients(
        self,
        name: str,
        gradients: Sequence[Any],
        changed: Sequence[Any],
        reference: Sequence[Any] | None,
        *,
        is_sample: bool,
    ) -> None:
        """Compare the gradients of the inputs of a call; inputs that have none in one run are left out.

        Args:
            name: The name of the call, without phase.
            gradients: Those of the program, by input.
            changed: Those of the changed run.
            reference: Those of the run on the CPU, or None.
            is_sample: True for a sample of preheating.
        """
        references = reference if reference is not None else [None] * len(gradients)
        rows = [
            (place, *each)
            for place, each in enumerate(zip(gradients, changed, references))
            if each[0] is not None and each[1] is not None
        ]
        self.judge(name, rows, is_sample=is_sample)

    def _list_outcomes(
        self, original: Any, changed: Any, compare: Callable[..., OutputComparison | None]
    ) -> list[OutputComparison]:
        return compare_outputs(original, changed, compare, self.thresholds, self.tensors.tensor_type)

    def _compare(self, api: str, original: Any, changed: Any) -> OutputComparison | None:
        tensors, thresholds = self.tensors, self.thresholds
        dtype = tensors.name_dtype(original)
        mode = self.settings.mode
        if not tensors.is_inexact(original) and mode not in (ChangeMode.NO_CHANGE, ChangeMode.TO_CPU):
            return None  # positions and truth values have no ratio
        if mode is ChangeMode.TO_CPU and self.preheat is None:
            return tensors.compare_with_cpu(original, changed, thresholds.get_cpu_limits(dtype))
        floor = thresholds.get_floor(self.settings.stage, tensors.name_dtype(changed))
        if self.preheat is None:
            limit = thresholds.get_ratio_limit(mode, dtype)
        else:
            limit = self.preheat.limit(mode, api, dtype)
        return tensors.compare_on_device(original, changed, floor, limit)

    def _add_samples(self, api: str, outcomes: list[OutputComparison], original: Any, reference: Any) -> None:
        """Pass the ratios of a sample to preheating, each with the comparison with the CPU."""
        assert self.preheat is not None

        def compare(actual: Any, expected: Any) -> OutputComparison:
            limits = self.thresholds.get_cpu_limits(self.tensors.name_dtype(actual))
            return self.tensors.compare_with_cpu(actual, expected, limits)

        for outcome, expected in zip(outcomes, self._list_outcomes(original, reference, compare)):
            if outcome.ratio is not None:
                self.preheat.add(api, outcome.dtype_name, outcome.ratio, agrees_with_cpu=expected.consistent)
