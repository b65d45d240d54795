"""Comparison of a call with its reference, by the rules of the pre-check."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from probe_precheck import (
    FORWARD,
    RELEASES,
    Array,
    Assignment,
    Call,
    Judge,
    Outcome,
    Output,
    Outputs,
    Result,
    Status,
    Tables,
    measure,
    one_line,
    rule_of,
    summands,
    tables_of,
)

from probe_core.plugins.manager import Manager
from probe_pytorch.dispatch_check.findings import Difference, Kind
from probe_pytorch.dispatch_check.operators import Reason, rules
from probe_pytorch.dispatch_check.reference import DispatchedCall, Reference, undisturbed

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
class Comparison:
    """Result of comparing one call.

    Attributes:
        result: The rows of the csv files; None if it was not compared.
        difference: The first result that is wrong; None if there is none.
        reason: The reason why it was not compared.
        detail: The text of the error for that reason.
    """

    result: Result | None = None
    difference: Difference | None = None
    reason: Reason | None = None
    detail: str = ""


class CallComparer:
    """Comparer of calls, with the rules of the pre-check."""

    def __init__(self) -> None:
        manager = Manager()
        self._judge = Judge(rule_of(manager, FRAMEWORK), Assignment(manager, RELEASES[0]))

    def compare(self, call: DispatchedCall) -> Comparison:
        """Compute a call in higher precision and judge its results; a call that fails raises nothing."""
        with undisturbed():
            try:
                reference = Reference(call)
                bench = reference.comparable(reference.compute())
            except NotImplementedError as error:
                return Comparison(reason=Reason.NO_CPU_KERNEL, detail=one_line(error))
            except MemoryError as error:
                return Comparison(reason=Reason.MEMORY, detail=one_line(error))
            except Exception as error:  # kernels may raise anything
                return Comparison(reason=Reason.NOT_COMPUTED, detail=one_line(error))
            return self._judged(call, reference, bench)

    def _judged(self, call: DispatchedCall, reference: Reference, bench: list[object]) -> Comparison:
        device = reference.comparable(call.results)
        places = [i for i, value in enumerate(device) if value is not None]
        if len(bench) != len(device):
            places = []  # the judge reports the other structure

        def chosen(values: list[object]) -> list[object]:
            return [values[i] for i in places] if places else values

        def moved() -> Outcome:
            values = chosen(reference.comparable(reference.compute_moved()))
            return _outcome(call.phase, Outputs(values, values))

        own = _outcome(call.phase, Outputs(chosen(bench), chosen(device)))
        outcome = Outcome(own.forward, own.backward, moved=moved if reference.can_move else None)
        judged = _judged_call(call)
        result = self._judge.result(judged, outcome)
        wrong = next((i for i, one in enumerate(result.details) if Status.ERROR in one.statuses), None)
        if wrong is None:
            return Comparison(result)
        if not places:
            return Comparison(result, Difference(Kind.STRUCTURE, 0))
        output = Output(
            judged.api,
            chosen(bench)[wrong],
            chosen(device)[wrong],
            moved=(lambda: _nth(moved(), call.phase, wrong)) if reference.can_move else None,
            direction=call.phase,
        )
        return Comparison(result, _difference(output, places[wrong], judged))


def _outcome(phase: str, outputs: Outputs) -> Outcome:
    return Outcome(outputs) if phase == FORWARD else Outcome(None, outputs)


def _nth(outcome: Outcome, phase: str, number: int) -> object:
    outputs = outcome.forward if phase == FORWARD else outcome.backward
    return outputs.bench[number] if isinstance(outputs, Outputs) else None


def _judged_call(call: DispatchedCall) -> JudgedCall:
    """Return a call as the pre-check knows it, with the shapes of its inputs."""
    shapes = [{"type": "torch.Tensor", "shape": list(buffer.shape)} for buffer in call.copy.buffers]
    name = call.overload[1]
    judged_as = rules("judged_as")[call.phase].get(name, name)
    return JudgedCall(call.name, call.number, {"input_args": shapes}, judged_as=judged_as)


def _difference(output: Output, number: int, call: JudgedCall) -> Difference:
    """Return the evidence of a wrong result."""
    bench, device = output.bench, output.device
    if not (isinstance(bench, Array) and isinstance(device, Array)):
        kind = Kind.STRUCTURE if isinstance(bench, Array) or isinstance(device, Array) else Kind.UNEQUAL
        return Difference(kind, number, error=1.0)
    parts = (number, device.dtype, bench.dtype, tuple(device.values.shape))
    if bench.values.shape != device.values.shape or bench.values.dtype.kind != device.values.dtype.kind:
        return Difference(Kind.STRUCTURE, *parts)
    if device.values.dtype.kind != "f":
        return Difference(Kind.UNEQUAL, *parts, float((bench.values != device.values).mean()))
    output = Output(
        output.api,
        bench,
        device,
        moved=output.moved,
        direction=output.direction,
        summands=summands(call, device.values.size),
    )
    measured = measure(output)
    if measured.apart:
        return Difference(Kind.NON_FINITE, *parts, elements=measured.apart)
    error = measured.error if math.isfinite(measured.error) else measured.largest
    return Difference(Kind.ROUNDING, *parts, error, measured.rounding)


@cache
def call_comparer() -> CallComparer:
    """Return the comparer of this process."""
    return CallComparer()


@cache
def tables() -> Tables:
    """Return the columns of the csv files."""
    return tables_of(Manager(), FRAMEWORK)
