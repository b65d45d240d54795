"""What a worker process does: runs the calls that it is sent, and judges what they gave out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from probe_core.errors import Defect, UserError
from probe_core.plugins.distributions import missing, provider
from probe_core.plugins.manager import ONLY, Manager
from probe_precheck.assignment import Assignment
from probe_precheck.judging import Judge
from probe_precheck.model import Call, Message, Outcome, Result, Skipped, Status, one_line
from probe_precheck.protocols import Runner, StatusRule
from probe_precheck.settings import RunnerOptions
from probe_precheck.specs import RunnerSpec, StatusRuleSpec
from probe_precheck.tables import Column, Tables

FAILED = (Status.WARNING, Status.ERROR)
INTERNAL = (Defect, ImportError, NameError, FileNotFoundError)
"""What a runner raises because its installation lacks something, whatever the call."""


def runner_of(manager: Manager, framework: str) -> RunnerSpec:
    """What runs the calls of a framework, described.

    Raises:
        UserError: Nothing that is installed does.
    """
    specs = [item.spec for item in manager.contributions("runners")]
    names = [spec.name for spec in specs if isinstance(spec, RunnerSpec) and spec.framework == framework]
    if not names:
        if provider("runners", framework):
            raise manager.missing("runners", framework)
        known = [spec.framework for spec in specs if isinstance(spec, RunnerSpec)]
        raise UserError(
            f'Calls of framework "{framework}" cannot be run alone.',
            "These can be:" if known else "Install the plugin of the framework that recorded the run.",
            known,
        )
    return manager.find("runners", names[0], RunnerSpec)


def rule_of(manager: Manager, framework: str) -> StatusRule:
    """The first stage of a framework.

    Raises:
        UserError: None is installed.
    """
    rule: StatusRule = rule_spec_of(manager, framework).make()
    return rule


def tables_of(manager: Manager, framework: str) -> Tables:
    """The columns of a framework's files.

    Raises:
        UserError: No first stage is installed, which names them.
    """
    spec = rule_spec_of(manager, framework)
    return Tables(*(
        tuple(Column(*names) for names in own) or columns
        for own, columns in zip((spec.result, spec.details), Tables())
    ))  # fmt: skip


def rule_spec_of(manager: Manager, framework: str) -> StatusRuleSpec:
    """The first stage of a framework, described: its own where there is one, else that of all.

    Raises:
        UserError: None is installed.
    """
    specs = [item.spec for item in manager.contributions("status_rules")]
    for wanted in (framework, ""):
        for spec in specs:
            if isinstance(spec, StatusRuleSpec) and spec.framework == wanted:
                return manager.find("status_rules", spec.name, StatusRuleSpec)
    raise missing("A rule for the status of an output", "probe-metrics", ONLY)


@dataclass(frozen=True, slots=True)
class Checking:
    """How a worker sets itself up; can be pickled.

    Attributes:
        devices: One for each worker, again from the first where there are more workers.
    """

    framework: str
    options: RunnerOptions
    devices: Sequence[str]
    release: str
    standards: Path | None = None

    def __call__(self, slot: int) -> Callable[[Call], Result]:
        """What checks a call, in the worker with the number ``slot``.

        Raises:
            UserError: The device or the framework is not there.
        """
        manager = Manager()
        runner: Runner = runner_of(manager, self.framework).make()
        device = self.devices[slot % len(self.devices)]
        runner.open(replace(self.options, device=device))
        judge = Judge(rule_of(manager, self.framework), Assignment(manager, self.release, self.standards))
        saves = self.options.error_directory is not None

        def check(call: Call) -> Result:
            outcome = outcome_of(runner, call)
            result = judge.result(call, outcome)
            if saves and any(status in FAILED for status in result.statuses):
                return _saved(runner, call, outcome, result)
            return result

        return check


def _saved(runner: Runner, call: Call, outcome: Outcome, result: Result) -> Result:
    """The result with the script of its data; where they cannot be saved, with the reason."""
    try:
        return replace(result, script=runner.save(call, outcome))
    except Exception as error:  # a full disk, in whatever words of the framework
        text = one_line(error)
        note = Message(f"未能保存数据: {text}", f"Its data could not be saved: {text}")
        return replace(result, messages=(*result.messages, note))


def outcome_of(runner: Runner, call: Call) -> Outcome:
    """What running the call came to; what it raises becomes the reason why it was skipped."""
    try:
        return runner.run(call)
    except MemoryError:
        return skipped(call, "There is not enough memory to run it. SKIP.")
    except Exception as error:  # whatever a framework raises for arguments that were made up
        return skipped(call, one_line(error), internal=isinstance(error, INTERNAL))


def skipped(call: Call, message: str, *, internal: bool = False) -> Outcome:
    """A call that was not run."""
    reason = Skipped(message, internal=internal)
    return Outcome(reason, None if call.backward is None else reason)
