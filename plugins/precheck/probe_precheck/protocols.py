"""Protocols of the objects that the factories of the pre-check's specifications create."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from probe_core.model import Value
from probe_core.model.run import Run

if TYPE_CHECKING:
    from pathlib import Path

    from probe_core.plugins.manager import Manager
    from probe_precheck.model import (
        Call,
        Judgement,
        Numbers,
        Outcome,
        Output,
        OutputVerdict,
        ResultPaths,
    )
    from probe_precheck.replaying import Replay
    from probe_precheck.runner_options import RunnerOptions
    from probe_precheck.settings import Settings


class RecordedRun(Run, Protocol):
    """Recorded run that has the arguments of each of its calls."""

    def fields(self, index: int) -> Any:
        """Return the fields of the record at ``index`` in ``dump.json``, such as ``input_args``."""


class Runner(Protocol):
    """Runner of recorded calls of one framework, on a device and as the reference, within one process."""

    def apis(self) -> Set[str]:
        """Return the bare names of all APIs that can be recorded, such as ``conv2d``; lists are checked by them."""

    def open(self, options: RunnerOptions) -> str:
        """Prepare to run calls, and return the name of the device in use.

        Raises:
            UserError: The device is missing, or the framework is not installed.
        """

    def run(self, call: Call) -> Outcome:
        """Run one call on the device and as the reference; an exception becomes a SKIP row with its text."""

    def save(self, call: Call, outcome: Outcome) -> str:
        """Save the data of a call, and a script that repeats it; return the script's path."""


@runtime_checkable
class Replayer(Runner, Protocol):
    """Runner that also computes calls again, to compare the recorded results with them (``probe explain``)."""

    def replay(self, call: Call, *, moved: bool = False) -> Replay:
        """Compute a call in higher precision from the recorded inputs.

        Args:
            call: The call.
            moved: True to change each element of the inputs first, by a random part of the rounding error of its
                dtype.

        Raises:
            NotRun: The expected results are unknown, for example because the call draws random numbers.
            Unbuildable: An input cannot be rebuilt, for example because its values were not recorded.
        """


@runtime_checkable
class SentRunner(Runner, Protocol):
    """Runner that also runs calls that a running training sends (``probe run-ut --listen``)."""

    def run_sent(self, call: Call, tensors: Callable[[Value], np.ndarray[Any, Any]]) -> tuple[Outcome, Any]:
        """Run one call on the device and as the reference with the sent inputs.

        Args:
            call: The call; it has no backward.
            tensors: Returns the data of a tensor that the call's records name.

        Returns:
            The outcome, and the sent outputs in the structure of its forward: arrays and plain values.

        Raises:
            NotRun: The API of the call is not run, or the call draws random numbers.
            Unbuildable: An argument cannot be rebuilt, for example because its data was not sent.
        """


class Reference(Protocol):
    """Computation of an API in higher precision, on tensors and other values of the framework."""

    def forward(self, *arguments: object, **keywords: object) -> object:
        """Return the API's outputs, computed in the precision of the given tensors."""


class StatusRule(Protocol):
    """First stage: judges one output by the numbers of a single machine (docs/standards.md#status)."""

    def judge(self, output: Output) -> OutputVerdict:
        """Return the status of one output, and the numbers that were measured for it."""


@runtime_checkable
class SoloRule(StatusRule, Protocol):
    """First stage with a second verdict by the standard of the API, without a second machine."""

    def judge_alone(
        self, output: Output, standard: str, numbers: Mapping[str, float | int], direction: str
    ) -> OutputVerdict:
        """Return the second verdict on an output whose shape and class of dtype equal those of its reference.

        If this verdict is a warning, an error of the first stage counts as a warning.

        Args:
            output: Both sides.
            standard: The name of the standard that judges the API; empty if no standard judges it.
            numbers: The numbers that the standard measured.
            direction: ``forward`` or ``backward``.
        """


class Standard(Protocol):
    """Precision standard: measures outputs, and judges numbers of two machines (docs/standards.md#methods).

    ``release`` names the release of msprobe whose thresholds apply: ``guide`` (1.0.4) or ``8.3``.
    """

    def measure(self, output: Output, release: str) -> Mapping[str, float | int]:
        """Return the numbers of one output for the details csv, by column key.

        Both sides are arrays of the same shape. The device's dtype is float16, bfloat16 or float32; a standard
        whose specification has ``judges=JudgedOutputs.EXACT`` must accept all other dtypes as well.
        """

    def judge(self, npu: Numbers, gpu: Numbers, release: str) -> Judgement:
        """Return the verdict on one row of the device under test.

        Args:
            npu: The row of the device under test.
            gpu: The row of the same name of the trusted device.
            release: The release whose thresholds apply.

        Raises:
            UnusableCell: A required cell does not contain a number.
        """


class ResultOption(Protocol):
    """Function that does extra work with the results of a pre-check for the options of a plugin.

    It is the factory of an ``OptionSpec`` whose command is ``run-ut``, ``multi-run-ut`` or
    ``api-precision-compare``.
    """

    def __call__(self, manager: Manager, results: ResultPaths, values: Mapping[str, Any]) -> None:
        """Do the work, and print what it wrote."""


@runtime_checkable
class Receiver(Protocol):
    """Check of calls that running trainings send, instead of the calls of a recorded run.

    It is the factory of the ``OptionSpec`` named ``online``, whose command is ``run-ut``. It is called if one of its
    options is given, or if the configuration has ``is_online: true``.
    """

    def receive(
        self,
        manager: Manager,
        options: Mapping[str, Any],
        settings: Settings,
        config: Path | None,
        values: Mapping[str, Any],
    ) -> int:
        """Check calls until the trainings end, and return the exit code.

        Args:
            manager: The plugin manager.
            options: The options of the command, by their names in ``CheckPlan``.
            settings: The contents of the configuration.
            config: The path of the configuration; None if there is none.
            values: The options of the plugin that were given.
        """
