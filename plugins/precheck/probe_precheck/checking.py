"""Work of a worker process: run the calls that it receives, and judge their outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from probe_core.errors import Defect, UserError
from probe_core.plugins.distributions import create_missing_error, find_provider
from probe_core.plugins.manager import Manager
from probe_precheck.assignment import Assignment
from probe_precheck.judging import CallJudge
from probe_precheck.memory import OUT_OF_MEMORY_TEXT
from probe_precheck.model import (
    Call,
    Message,
    Outcome,
    Result,
    Skipped,
    Status,
    format_one_line,
)
from probe_precheck.protocols import Runner, StatusRule
from probe_precheck.runner_options import RunnerOptions
from probe_precheck.specs import RunnerSpec, StatusRuleSpec
from probe_precheck.tables import CsvColumn, Tables

FAILED_STATUSES = (Status.WARNING, Status.ERROR)
"""Statuses of calls whose data is saved."""
INSTALLATION_ERRORS = (Defect, ImportError, NameError, FileNotFoundError)
"""Exceptions of a runner that are caused by its installation, not by the call."""


def find_runner_spec(manager: Manager, framework: str) -> RunnerSpec:
    """Return the specification of the runner of a framework.

    Raises:
        UserError: No runner of the framework is installed.
    """
    specs = [item.spec for item in manager.contributions("runners")]
    names = [spec.name for spec in specs if isinstance(spec, RunnerSpec) and spec.framework == framework]
    if not names:
        if find_provider("runners", framework):
            raise manager.create_missing_error("runners", framework)
        frameworks = [spec.framework for spec in specs if isinstance(spec, RunnerSpec)]
        raise UserError(
            f'Calls of framework "{framework}" cannot be run alone: no installed plugin has a runner for it.',
            "Calls of these frameworks can be run:"
            if frameworks
            else "Install the plugin of the framework that recorded the run.",
            frameworks,
        )
    return manager.find("runners", names[0], RunnerSpec)


def create_status_rule(manager: Manager, framework: str) -> StatusRule:
    """Create the first stage of a framework.

    Raises:
        UserError: No first stage is installed.
    """
    rule: StatusRule = find_rule_spec(manager, framework).make()
    return rule


def find_tables(manager: Manager, framework: str) -> Tables:
    """Return the columns of the result files of a framework, as its first stage defines them.

    Raises:
        UserError: No first stage is installed.
    """
    spec = find_rule_spec(manager, framework)
    return Tables(*(
        tuple(CsvColumn(*names) for names in spec_columns) or columns
        for spec_columns, columns in zip((spec.result, spec.details), Tables())
    ))  # fmt: skip


def find_rule_spec(manager: Manager, framework: str) -> StatusRuleSpec:
    """Return the specification of the first stage for a framework, or else of that for all frameworks.

    Raises:
        UserError: No first stage is installed.
    """
    specs = [item.spec for item in manager.contributions("status_rules")]
    for name in (framework, ""):
        for spec in specs:
            if isinstance(spec, StatusRuleSpec) and spec.framework == name:
                return manager.find("status_rules", spec.name, StatusRuleSpec)
    raise create_missing_error("A rule for the status of an output", "probe-metrics")


@dataclass(frozen=True, slots=True)
class CheckSetup:
    """Picklable setup of a worker process.

    Attributes:
        framework: The framework of the run.
        options: The options of the runner.
        devices: The devices. A worker uses the device at the index of its slot modulo the number of devices.
        release: The release of msprobe whose thresholds apply.
        standards: A YAML file that assigns APIs to standards; None for the built-in lists only.
    """

    framework: str
    options: RunnerOptions
    devices: Sequence[str]
    release: str
    standards: Path | None = None

    def __call__(self, slot: int) -> Callable[[Call], Result]:
        """Return the function that checks a call in the worker with the number ``slot``.

        Raises:
            UserError: The device is missing, or the framework is not installed.
        """
        manager = Manager()
        runner: Runner = find_runner_spec(manager, self.framework).make()
        device = self.devices[slot % len(self.devices)]
        runner.open(replace(self.options, device=device))
        judge = CallJudge(
            create_status_rule(manager, self.framework), Assignment(manager, self.release, self.standards)
        )
        saves = self.options.error_directory is not None

        def check(call: Call) -> Result:
            outcome = run_call(runner, call)
            try:
                result = judge.judge_call(call, outcome)
            except MemoryError:
                return judge.judge_call(call, create_skipped_outcome(call, OUT_OF_MEMORY_TEXT))
            if saves and any(status in FAILED_STATUSES for status in result.statuses):
                return _save_data(runner, call, outcome, result)
            return result

        return check


def _save_data(runner: Runner, call: Call, outcome: Outcome, result: Result) -> Result:
    """Save the data of a call, and return the result with the path of its script or with the reason for failure."""
    try:
        return replace(result, script=runner.save(call, outcome))
    except Exception as error:  # such as a full disk, which each framework reports in its own way
        text = format_one_line(error)
        note = Message(f"未能保存数据: {text}", f"Its data could not be saved: {text}")
        return replace(result, messages=(*result.messages, note))


def run_call(runner: Runner, call: Call) -> Outcome:
    """Run the call and return the outcome; an exception becomes the reason of a skipped call."""
    try:
        return runner.run(call)
    except MemoryError:
        return create_skipped_outcome(call, OUT_OF_MEMORY_TEXT)
    except Exception as error:  # a framework may raise anything for random arguments
        return create_skipped_outcome(call, format_one_line(error), internal=isinstance(error, INSTALLATION_ERRORS))


def create_skipped_outcome(call: Call, message: str, *, internal: bool = False) -> Outcome:
    """Return the outcome of a call that was not run."""
    reason = Skipped(message, internal=internal)
    return Outcome(reason, None if call.backward is None else reason)
