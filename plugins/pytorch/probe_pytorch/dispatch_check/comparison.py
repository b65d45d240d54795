"""Comparison of a call with its reference, by the rules of the pre-check."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from probe_precheck.api import Array, Call, Outcome, Output, Outputs, Status
from probe_precheck.assignment import Assignment
from probe_precheck.checking import create_status_rule, find_tables
from probe_precheck.judging import CallJudge
from probe_precheck.model import FORWARD, Result, format_one_line
from probe_precheck.releases import RELEASES
from probe_precheck.tables import Tables
from probe_precheck.yardstick import estimate_summands, measure

from probe_core.plugins.manager import Manager
from probe_pytorch.dispatch_check.findings import OperatorDifference, OperatorDifferenceKind
from probe_pytorch.dispatch_check.operators import SkipReason, rules
from probe_pytorch.dispatch_check.reference import DispatchedCall, ReferenceComputation, isolate_computation

FRAMEWORK = "pytorch"


@dataclass(frozen=True, slots=True)
class JudgedCall(Call):
    """Call in the form that the pre-check judges, by the limits of an API that may have another name."""

    judged_as: str = ""

    @property
    def api(self) -> str:
        """The API whose limits and standard apply."""
        return self.judged_as or self.parts[1]


@dataclass(frozen=True, slots=True)
class CallComparison:
    """Result of comparing one call.

    Attributes:
        result: The rows of the csv files; None if it was not compared.
        difference: The first result that is wrong; None if there is none.
        reason: The reason why it was not compared.
        detail: The text of the error for that reason.
    """

    result: Result | None = None
    difference: OperatorDifference | None = None
    reason: SkipReason | None = None
    detail: str = ""


class CallComparer:
    """Comparer of calls, with the rules of the pre-check."""

    def __init__(self) -> None:
        manager = Manager()
        self._judge = CallJudge(create_status_rule(manager, FRAMEWORK), Assignment(manager, RELEASES[0]))

    def compare(self, call: DispatchedCall) -> CallComparison:
        """Compute a call in higher precision and judge its results; a call that fails raises nothing."""
        with isolate_computation():
            try:
                reference = ReferenceComputation(call)
                bench = reference.select_comparable(reference.compute())
            except NotImplementedError as error:
                return CallComparison(reason=SkipReason.NO_CPU_KERNEL, detail=format_one_line(error))
            except MemoryError as error:
                return CallComparison(reason=SkipReason.MEMORY, detail=format_one_line(error))
            except Exception as error:  # kernels may raise anything
                return CallComparison(reason=SkipReason.NOT_COMPUTED, detail=format_one_line(error))
            return self._judge_results(call, reference, bench)

    def _judge_results(
        self, call: DispatchedCall, reference: ReferenceComputation, bench: list[object]
    ) -> CallComparison:
        device = reference.select_comparable(call.results)
        places = [i for i, value in enumerate(device) if value is not None]
        if len(bench) != len(device):
            places = []  # the judge reports the other structure

        def pick_compared(values: list[object]) -> list[object]:
            return [values[i] for i in places] if places else values

        def compute_perturbed_outcome() -> Outcome:
            values = pick_compared(reference.select_comparable(reference.compute_perturbed()))
            return _create_outcome(call.phase, Outputs(values, values))

        plain_outcome = _create_outcome(call.phase, Outputs(pick_compared(bench), pick_compared(device)))
        outcome = Outcome(
            plain_outcome.forward,
            plain_outcome.backward,
            moved=compute_perturbed_outcome if reference.can_perturb else None,
        )
        judged = _create_judged_call(call)
        result = self._judge.judge_call(judged, outcome)
        wrong_index = next((i for i, detail in enumerate(result.details) if Status.ERROR in detail.statuses), None)
        if wrong_index is None:
            return CallComparison(result)
        if not places:
            return CallComparison(result, OperatorDifference(OperatorDifferenceKind.STRUCTURE, 0))
        output = Output(
            judged.api,
            pick_compared(bench)[wrong_index],
            pick_compared(device)[wrong_index],
            moved=(lambda: _get_bench_output(compute_perturbed_outcome(), call.phase, wrong_index))
            if reference.can_perturb
            else None,
            direction=call.phase,
        )
        return CallComparison(result, _create_difference(output, places[wrong_index], judged))


def _create_outcome(phase: str, outputs: Outputs) -> Outcome:
    return Outcome(outputs) if phase == FORWARD else Outcome(None, outputs)


def _get_bench_output(outcome: Outcome, phase: str, number: int) -> object:
    outputs = outcome.forward if phase == FORWARD else outcome.backward
    return outputs.bench[number] if isinstance(outputs, Outputs) else None


def _create_judged_call(call: DispatchedCall) -> JudgedCall:
    """Return a call as the pre-check knows it, with the shapes of its inputs."""
    shapes = [{"type": "torch.Tensor", "shape": list(buffer.shape)} for buffer in call.copy.buffers]
    name = call.overload[1]
    judged_as = rules("judged_as")[call.phase].get(name, name)
    return JudgedCall(call.name, call.number, {"input_args": shapes}, judged_as=judged_as)


def _create_difference(output: Output, number: int, call: JudgedCall) -> OperatorDifference:
    """Return the evidence of a wrong result."""
    bench, device = output.bench, output.device
    if not (isinstance(bench, Array) and isinstance(device, Array)):
        kind = (
            OperatorDifferenceKind.STRUCTURE
            if isinstance(bench, Array) or isinstance(device, Array)
            else OperatorDifferenceKind.UNEQUAL
        )
        return OperatorDifference(kind, number, error=1.0)
    parts = (number, device.dtype, bench.dtype, tuple(device.values.shape))
    if bench.values.shape != device.values.shape or bench.values.dtype.kind != device.values.dtype.kind:
        return OperatorDifference(OperatorDifferenceKind.STRUCTURE, *parts)
    if device.values.dtype.kind != "f":
        return OperatorDifference(OperatorDifferenceKind.UNEQUAL, *parts, float((bench.values != device.values).mean()))
    output = Output(
        output.api,
        bench,
        device,
        moved=output.moved,
        direction=output.direction,
        summands=estimate_summands(call, device.values.size),
    )
    measured = measure(output)
    if measured.nonfinite_mismatches:
        return OperatorDifference(OperatorDifferenceKind.NON_FINITE, *parts, elements=measured.nonfinite_mismatches)
    error = measured.error if math.isfinite(measured.error) else measured.largest
    return OperatorDifference(OperatorDifferenceKind.ROUNDING, *parts, error, measured.rounding)


@cache
def get_call_comparer() -> CallComparer:
    """Return the comparer of this process."""
    return CallComparer()


@cache
def load_tables() -> Tables:
    """Return the columns of the csv files."""
    return find_tables(Manager(), FRAMEWORK)
