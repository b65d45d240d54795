"""What the factories of the pre-check's specs make."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from probe_core.model.run import Run

if TYPE_CHECKING:
    from probe_precheck.model import Call, Judged, Judgement, Numbers, Outcome, Output
    from probe_precheck.settings import RunnerOptions


class RecordedRun(Run, Protocol):
    """A run that says how each of its calls was made."""

    def fields(self, index: int) -> Any:
        """The record at ``index`` as ``dump.json`` has it: ``input_args``, ``input_kwargs``, ``output``."""


class Runner(Protocol):
    """Runs recorded calls of one framework alone, on a device and as the reference. Lives in one process."""

    def apis(self) -> Set[str]:
        """The bare names of all APIs that can be recorded, for black and white lists."""

    def open(self, options: RunnerOptions) -> str:
        """Get ready to run calls; the name of the device in use.

        Raises:
            UserError: The device, or the framework, is not there.
        """

    def run(self, call: Call) -> Outcome:
        """Run one call on both sides. What it raises becomes a SKIP row with the error's text."""

    def save(self, call: Call, outcome: Outcome) -> str:
        """Save the data of a call that did not pass, and a script that shows it; the script's path."""


class Reference(Protocol):
    """An API in higher precision. The values are the framework's own, tensors among them."""

    def forward(self, *arguments: object, **keywords: object) -> object:
        """What the API gives out, computed in the precision of the tensors that it is given."""


class StatusRule(Protocol):
    """The first stage: is one output right, as far as a single machine can tell?"""

    def judge(self, output: Output) -> Judged:
        """The status of one output with what was measured for it."""


@runtime_checkable
class SoloRule(StatusRule, Protocol):
    """A first stage with a second verdict: what a standard can tell without a second machine."""

    def judge_alone(
        self, output: Output, standard: str, numbers: Mapping[str, float | int], direction: str
    ) -> Judged:
        """The verdict on one output that has a shape and a class of dtype in common with its reference.

        Args:
            output: Both sides.
            standard: The standard that judges its API; empty where none does.
            numbers: What that standard measured.
            direction: ``forward`` or ``backward``.
        """


class Standard(Protocol):
    """A precision standard. ``release`` says whose thresholds: ``guide`` or ``8.3``."""

    def measure(self, output: Output, release: str) -> Mapping[str, float | int]:
        """What the details need of one output, by column key.

        Called for float16, bfloat16 and float32 arrays of one shape; a standard that judges exactly is
        called for every other dtype as well.
        """

    def judge(self, npu: Numbers, gpu: Numbers, release: str) -> Judgement:
        """The verdict on one row of the device under test, given the same row of the device to trust.

        Raises:
            UnusableCell: A cell that is needed holds no number.
        """
