"""Conversion of outcomes to rows: the status of each output, and the numbers of its standard."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from numbers import Real
from typing import Any

from probe_precheck.assignment import MEASURED_DTYPES, Assignment, ChosenStandard
from probe_precheck.model import (
    BACKWARD,
    FORWARD,
    Array,
    Call,
    Detail,
    Message,
    Outcome,
    Output,
    Outputs,
    OutputVerdict,
    Result,
    Skipped,
    Status,
)
from probe_precheck.protocols import SoloRule, StatusRule
from probe_precheck.yardstick import estimate_summands

STRUCTURE_DIFFERS = Message("bench and npu output structure is different.")
NOTHING_COMPARABLE = Message("没有可比对的输出。", "It returns nothing that can be compared.")
STATUSES_BY_SEVERITY = (Status.PASS, Status.WARNING, Status.ERROR)
"""Statuses that count, from the best to the worst."""


class CallJudge:
    """Judge of the outcomes of calls, by the first stage and the standards.

    Args:
        rule: The first stage, which gives each output a status.
        assignment: The standards, which measure outputs.
    """

    def __init__(self, rule: StatusRule, assignment: Assignment) -> None:
        self._rule = rule
        self._assignment = assignment

    def judge_call(self, call: Call, outcome: Outcome) -> Result:
        """Return the row of a call, with its rows in the details."""
        forward_status, backward_status = None, None
        details: list[Detail] = []
        if outcome.forward is not None:
            forward_status, details = self._judge_direction(call, FORWARD, outcome.forward, outcome)
        if outcome.backward is not None:
            backward_status, more = self._judge_direction(call, BACKWARD, outcome.backward, outcome)
            details += more
        statuses = (forward_status, backward_status)
        messages = select_messages(statuses, details) or _collect_notes(outcome)
        if not messages and Status.SKIP in statuses:
            messages = (NOTHING_COMPARABLE,)
        standards = [detail.standard for detail in details if detail.standard]
        standard = merge_statuses(standards) if standards else None
        worst = merge_statuses([status for detail in details for status in detail.statuses])
        if standard is worst and worst in (Status.ERROR, Status.WARNING):
            messages = (*messages, *select_standard_messages(standard, details))
        internal = isinstance(outcome.forward, Skipped) and outcome.forward.internal
        return Result(
            call.name,
            forward_status,
            backward_status,
            messages,
            tuple(details),
            standard=standard,
            internal=internal,
        )

    def _judge_direction(
        self, call: Call, phase: str, outputs: Outputs | Skipped, outcome: Outcome
    ) -> tuple[Status, list[Detail]]:
        name = f"{call.name}.{phase}.output"
        if isinstance(outputs, Skipped):
            return outputs.status, [Detail(f"{name}.0", outputs.status, messages=(Message(outputs.message),))]
        pairs = list(pair_leaves(outputs.bench, outputs.device))
        if None in pairs:
            return Status.ERROR, [Detail(f"{name}.0", Status.ERROR, messages=(STRUCTURE_DIFFERS,))]
        statuses: list[Status] = []
        details: list[Detail] = []
        notes = (*outcome.notes, *outcome.notes_of.get(phase, ()))
        moved = None if outcome.moved is None else _MovedOutputs(outcome.moved, phase)
        for number, pair in enumerate(pairs):
            assert pair is not None
            again = None if moved is None else partial(moved, number)
            size = pair[0].values.size if isinstance(pair[0], Array) else 1
            output = Output(call.api, *pair, outcome.is_random, again, phase, estimate_summands(call, size))
            status, detail = self._judge_output(f"{name}.{number}", output, phase, notes)
            statuses.append(status)
            if detail is not None:
                details.append(detail)
        return merge_statuses(statuses), details

    def _judge_output(
        self, name: str, output: Output, phase: str, notes: tuple[Message, ...]
    ) -> tuple[Status, Detail | None]:
        bench, device = output.bench, output.device
        judged = self._rule.judge(output)
        if not judged.shown:
            return judged.status, None
        numbers: dict[str, float | int] = {}
        chosen = self._choose_standard(output)
        if chosen is not None and not output.is_random:
            try:
                measured = dict(chosen.standard.measure(output, self._assignment.release))
                if not all(isinstance(number, Real) for number in measured.values()):
                    raise TypeError("measure must return a mapping to numbers")
                numbers.update(measured)
            except BaseException as error:
                notes = (*notes, self._assignment.report_failure(chosen, error))
        solo_verdict = self._judge_alone(output, chosen, numbers, phase)
        numbers.update(judged.numbers)
        return judged.status, Detail(
            name,
            judged.status,
            _get_dtype_text(bench),
            _get_dtype_text(device),
            str(tuple(device.values.shape)) if isinstance(device, Array) else "",
            numbers,
            (*judged.messages, *notes),
            None if solo_verdict is None else solo_verdict.status,
            () if solo_verdict is None else solo_verdict.messages,
        )

    def _judge_alone(
        self, output: Output, chosen: ChosenStandard | None, numbers: Mapping[str, float | int], phase: str
    ) -> OutputVerdict | None:
        """Return the verdict of the standard without a second machine; None if the first stage does not request it."""
        if not isinstance(self._rule, SoloRule):
            return None
        return self._rule.judge_alone(output, "" if chosen is None else chosen.spec.name, numbers, phase)

    def _choose_standard(self, output: Output) -> ChosenStandard | None:
        """Return the standard of an output that is floating-point on both sides; None for others."""
        bench, device = output.bench, output.device
        if not (isinstance(bench, Array) and isinstance(device, Array)):
            return None
        if bench.values.shape != device.values.shape or not bench.values.size:
            return None
        if device.kind not in MEASURED_DTYPES or bench.values.dtype.kind != "f":
            return None
        return self._assignment.find_standard(output.api, device.dtype)


class _MovedOutputs:
    """Outputs of the reference for moved inputs, computed when the first output is requested."""

    def __init__(self, run: Callable[[], Outcome], phase: str) -> None:
        self._run = run
        self._phase = phase
        self._outputs: list[Any] | None = None

    def __call__(self, number: int) -> Any:
        """Return output ``number``; None if the reference could not be run."""
        if self._outputs is None:
            try:
                outputs = getattr(self._run(), self._phase)
                pairs = pair_leaves(outputs.bench, outputs.bench) if isinstance(outputs, Outputs) else ()
                self._outputs = [pair and pair[0] for pair in pairs]
            except Exception:  # a framework may raise anything; the output is then judged without moved inputs
                self._outputs = []
        return self._outputs[number] if number < len(self._outputs) else None


def pair_leaves(bench: Any, device: Any) -> Iterator[tuple[Any, Any] | None]:
    """Yield pairs of leaves of two nested structures, depth first, in the bench's order.

    Where the structures differ, None takes the place of the pairs.
    """
    if isinstance(bench, Mapping):
        if not isinstance(device, Mapping) or set(bench) != set(device):
            yield None
            return
        for key, value in bench.items():
            yield from pair_leaves(value, device[key])
    elif isinstance(bench, (list, tuple)) and not isinstance(bench, Array):
        if not isinstance(device, (list, tuple)) or isinstance(device, Array) or len(bench) != len(device):
            yield None
            return
        for first, second in zip(bench, device):
            yield from pair_leaves(first, second)
    elif isinstance(device, (Mapping, list, tuple)) and not isinstance(device, Array):
        yield None
    else:
        yield bench, device


def merge_statuses(statuses: Sequence[Status]) -> Status:
    """Return the worst of several statuses; SKIP counts only if all are skipped."""
    counted = [status for status in statuses if status is not Status.SKIP]
    return max(counted, key=STATUSES_BY_SEVERITY.index) if counted else Status.SKIP


def select_messages(statuses: Sequence[Status | None], details: Sequence[Detail]) -> tuple[Message, ...]:
    """Return the messages of a call's row: of its first output that is error, else warning, else SKIP.

    Errors that the second verdict reduces to a warning come last.
    """
    for status in (Status.ERROR, Status.WARNING, Status.SKIP):
        if status in statuses:
            matches = [detail for detail in details if detail.status is status and detail.messages]
            if matches:
                return min(matches, key=lambda detail: detail.standard is Status.WARNING).messages
    return ()


def select_standard_messages(status: Status, details: Sequence[Detail]) -> tuple[Message, ...]:
    """Return the standard's messages of the first output to which it gave ``status``."""
    return next((detail.standard_messages for detail in details if detail.standard is status), ())


def _collect_notes(outcome: Outcome) -> tuple[Message, ...]:
    lists = (outcome.notes, *(outcome.notes_of.get(phase, ()) for phase in (FORWARD, BACKWARD)))
    return tuple(message for notes in lists for message in notes)


def _get_dtype_text(value: Any) -> str:
    return value.dtype if isinstance(value, Array) else "" if value is None else type(value).__name__
