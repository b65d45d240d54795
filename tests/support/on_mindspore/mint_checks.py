"""Pre-check of a MindSpore run in this process, with or without faults in place of APIs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from probe_mindspore.precheck.runner import MindSporeRunner
from probe_precheck.assignment import Assignment
from probe_precheck.calls import RecordedCalls
from probe_precheck.checking import create_skipped_outcome, create_status_rule, run_call
from probe_precheck.judging import CallJudge
from probe_precheck.model import Outcome, Result
from probe_precheck.runner_options import RunnerOptions
from probe_precheck.settings import Settings

from probe_core.flow.opening import open_run
from probe_core.plugins.manager import Manager

Functions = Mapping[str, Callable[..., Any]]


class Checks:
    """Checker of the calls of a run, one by one.

    Args:
        dump: Its ``dump.json``.
        instead: Functions that the device runs in place of MindSpore's.
        seed: Seed of random inputs.
    """

    def __init__(self, dump: Path, instead: Functions | None = None, seed: int = 1234) -> None:
        manager = Manager()
        self.calls = RecordedCalls(open_run(manager, dump, "mindspore"))
        self.runner = MindSporeRunner(instead)
        self.runner.open(RunnerOptions(dump, seed=seed))
        self._judge = CallJudge(create_status_rule(manager, "mindspore"), Assignment(manager, "seed"))

    def outcome(self, name: str) -> Outcome:
        """Run a call, and return the outputs of both sides."""
        call = self.calls.get_call(self.calls.names.index(name), Settings())
        return create_skipped_outcome(call, call.problem) if call.problem else run_call(self.runner, call)

    def result(self, name: str) -> Result:
        """Return the rows of a call."""
        call = self.calls.get_call(self.calls.names.index(name), Settings())
        return self._judge.judge_call(call, self.outcome(name))

    def all(self) -> dict[str, Result]:
        """Return the rows of all calls."""
        return {name: self.result(name) for name in self.calls.names}


def texts(result: Result) -> str:
    """Return all messages of a result in English."""
    found = [*result.messages]
    for detail in result.details:
        found += [*detail.messages, *detail.standard_messages]
    return " ".join(message.text("en") for message in found)
