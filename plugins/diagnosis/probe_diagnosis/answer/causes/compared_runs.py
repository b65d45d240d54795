"""Both runs of a comparison, with the lines of code and the modules of single calls."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from probe_core.errors import format_count, format_list
from probe_core.model.plan import Plan
from probe_core.model.run import Run
from probe_diagnosis.frames import find_entering_frame, find_frames, find_own_frame, load_stacks, select_own_frames

MAX_NAMED_OPERATORS = 5


@runtime_checkable
class ArgumentNamer(Protocol):
    """A run that knows the signatures of the APIs in it."""

    def argument_name(self, op: str, argument: str) -> str:
        """Return the name of the argument at a path such as ``input.7``; empty if it is not known."""


class ComparedRuns:
    """The target (side 0) and the golden (side 1) of a comparison.

    Args:
        plan: The plan of the comparison, which may name a file of call stacks.
        target: The run under test.
        golden: The trusted run.

    Attributes:
        are_rows: True if only some rows of both batches are compared.
    """

    def __init__(self, plan: Plan, target: Run, golden: Run) -> None:
        self.both = target, golden
        self._paths = plan.stack_path or target.stack_path, golden.stack_path
        self._tried = [False, False]
        self.are_rows = plan.options.get("rows") is not None

    def find_line(self, op: str, side: int = 0) -> str:
        """Return the line of code of an op; empty if not recorded. Stacks are read on first use.

        A backward call has the line of its forward call.
        """
        return find_own_frame(self._find_frames(op, side))

    def list_own_frames(self, op: str, side: int = 0) -> list[str]:
        """Return the frames of an op outside framework and recorder, innermost first."""
        return [*select_own_frames(self._find_frames(op, side))]

    def find_caller(self, op: str, side: int = 0) -> str:
        """Return the line that called the function of an op, if the run reaches the op's line from several lines."""
        line, caller, *_ = [*self.list_own_frames(op, side), "", ""]
        stacks = {self._find_frames(key, side) for key in self.both[side].names()} if caller else set()
        frames = ([*select_own_frames(stack)] for stack in stacks)
        return caller if any(other[:1] == [line] and other[1:2] not in ([], [caller]) for other in frames) else ""

    def find_entering_line(self, op: str, side: int = 0) -> str:
        """Return the line that calls the model or the API around an op; empty if not recorded."""
        return find_entering_frame(self._find_frames(op, side))

    def _find_frames(self, op: str, side: int) -> tuple[str, ...]:
        run = self.both[side]
        frames = find_frames(run, op)
        if not frames and not self._tried[side]:
            self._tried[side] = True
            load_stacks(run, self._paths[side])
            frames = find_frames(run, op)
        return frames

    def list_modules(self, op: str, side: int = 0) -> tuple[str, ...]:
        """Return the modules around an op, innermost first."""
        return self.both[side].construct.ancestors(op)

    def argument_name(self, op: str, argument: str, side: int = 0) -> str:
        """Return the name of an argument, such as ``eps`` for ``input.7``; empty if it is not known."""
        run = self.both[side]
        return run.argument_name(op, argument) if isinstance(run, ArgumentNamer) else ""

    def find_side(self, op: str) -> int:
        """Return 0 if the target has an op, else 1 (the golden)."""
        return int(self.both[0].find(op) is None)

    def describe_unfinished(self) -> list[str]:
        """Return a sentence for each run whose record is incomplete."""
        return [
            f"the {side} is unfinished: {run.header.unfinished}"
            for side, run in zip(("target", "golden"), self.both)
            if run.header.unfinished
        ]

    def describe_unrecorded(self) -> list[str]:
        """Return a sentence for each run whose recorder saw calls that it was configured not to record."""
        return [
            f"{format_count(sum(calls.values()), 'call')} of custom operators that the {side} did not record: "
            f"{format_list(calls, MAX_NAMED_OPERATORS)}"
            for side, run in zip(("target", "golden"), self.both)
            if (calls := run.header.unrecorded)
        ]
