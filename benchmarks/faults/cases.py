"""The parts of a case: the two programs, and the first lines that name the fault."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

SEED = 0


class Recorder(Protocol):
    """A recorder around the steps of a program."""

    def start(self, model: nn.Module) -> None:
        """Start recording."""

    def stop(self) -> None:
        """Stop recording and end the step."""


class Program(Protocol):
    """A program that is recorded while it runs."""

    def run(self, recorder: Recorder) -> None:
        """Run the program, with the steps to compare between ``start`` and ``stop``."""


@dataclass(frozen=True)
class Cause:
    """A cause that a comparison names; the text of a part that it leaves open is empty.

    Attributes:
        partner: The key of the golden's call, if it is another.
    """

    op: str
    row: str
    statement: str
    modules: tuple[str, ...] = ()
    argument: str = ""
    where: str = ""
    kind: str = ""
    step: int = 0
    partner: str = ""

    @property
    def place(self) -> str:
        """The op with the modules around it."""
        return " ".join((self.op, *self.modules))

    @property
    def text(self) -> str:
        """Everything that the cause says."""
        return " ".join((self.kind, self.place, self.row, self.argument, self.statement, self.where))


@dataclass(frozen=True)
class Line:
    """A cause that names a fault rightly: each regular expression is found in its part of the cause.

    Attributes:
        op: In the key of the op.
        place: In the key of the op or a module around it.
        row: In the name of the row, or the argument.
        text: In all that the cause says.
        step: The number of the step.
    """

    op: str = ""
    place: str = ""
    row: str = ""
    text: str = ""
    step: int = 0

    def matches(self, cause: Cause) -> bool:
        """Return True if the cause is such a line."""
        parts = (
            (self.op, cause.op),
            (self.place, cause.place),
            (self.row, f"{cause.row} {cause.argument}"),
            (self.text, cause.text),
        )
        return cause.step == self.step and all(re.search(pattern, part) for pattern, part in parts)


@dataclass(frozen=True)
class Case:
    """A fault, or a control, with the two programs that show it.

    Attributes:
        name: A short name, unique in the benchmark.
        description: One sentence on the target.
        build: Makes the golden program, or with True the target, which differs by the fault alone.
        right: The first lines that name the fault; none for a control.
        may_differ: True for a control whose calls may be made differently, as long as the verdict is AGREE.
    """

    name: str
    description: str
    build: Callable[[bool], Program]
    right: tuple[Line, ...] = ()
    may_differ: bool = False

    @property
    def is_control(self) -> bool:
        """Return True if the comparison must raise nothing."""
        return not self.right

    def is_named_by(self, cause: Cause) -> bool:
        """Return True if a cause names the fault rightly."""
        return any(line.matches(cause) for line in self.right)


Builder = Callable[[bool], Program]


class Cases:
    """A list of cases that the decorator ``case`` fills; ``may_differ`` is that of its cases."""

    def __init__(self, *, may_differ: bool = False) -> None:
        self.cases: list[Case] = []
        self._may_differ = may_differ

    def case(self, name: str, description: str, *right: Line) -> Callable[[Builder], Builder]:
        """Register a builder as a case."""

        def register(build: Builder) -> Builder:
            self.cases.append(Case(name, description, build, right, self._may_differ))
            return build

        return register


@dataclass
class Forward:
    """One forward and backward pass of a model.

    Attributes:
        inputs: Arguments of the model by name.
        context: Holds while the model runs.
        call: Calls the model in another way.
        backward: False for the forward pass alone.
    """

    model: nn.Module
    inputs: Mapping[str, Any]
    context: Callable[[], AbstractContextManager[Any]] = nullcontext
    call: Callable[..., Any] | None = None
    backward: bool = True

    def run(self, recorder: Recorder) -> None:
        """Run the model, seeded, and record it."""
        torch.manual_seed(SEED)
        with self.context():
            recorder.start(self.model)
            output = (self.call or self.model)(**self.inputs)
            output = output if isinstance(output, Tensor) else output[0]
            if self.backward:
                weights = torch.linspace(-1, 1, output.shape[-1])  # the squares of a norm's output sum to 1
                (output.float() * weights).pow(2).mean().backward()
            recorder.stop()


@dataclass
class Training:
    """Some training steps of a model.

    Attributes:
        step: Runs one training step; its argument is the number of the step.
        count: Number of steps.
    """

    model: nn.Module
    step: Callable[[int], Tensor | None]
    count: int = 2
    context: Callable[[], AbstractContextManager[Any]] = nullcontext

    def run(self, recorder: Recorder) -> None:
        """Run the steps, each seeded, and record each of them."""
        with self.context():
            for number in range(self.count):
                torch.manual_seed(SEED + number)
                recorder.start(self.model)
                self.step(number)
                recorder.stop()
