"""A whole pre-check: the calls of a run, checked in worker processes, written as they are finished."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from probe_core.engine import cores
from probe_core.errors import UserError, nearest
from probe_core.files.atomic import make_directory, refuse_link, remove_leftovers
from probe_core.flow.opening import open_run
from probe_core.plugins.manager import Manager
from probe_core.progress import tell
from probe_precheck.assignment import Assignment
from probe_precheck.calls import RecordedCalls, api_name, bare_name, rerunnable
from probe_precheck.checking import Checking, rule_of, runner_of, skipped, tables_of
from probe_precheck.judging import Judge, whole
from probe_precheck.model import Call, Detail, Message, Result, Status
from probe_precheck.protocols import Runner
from probe_precheck.results import ResultFiles
from probe_precheck.settings import RELEASES, SEED, TIMEOUT, RunnerOptions, Settings, check_names
from probe_precheck.specs import RunnerSpec
from probe_precheck.supervisor import Job, Lost, supervise
from probe_precheck.tables import Column, Tables

PRELOADED = ("probe_precheck.checking",)
"""What every worker process needs whatever the framework."""

KEPT = 10_000
"""How many results that did not pass are kept for the summary."""


@dataclass(frozen=True, slots=True)
class CheckPlan:
    """What is to be checked, and how.

    Attributes:
        dump: The ``dump.json``.
        output: The directory of both csv files.
        time_stamp: When the program started, 14 digits.
        framework: That of the run; None to find out.
        devices: As given: none for an accelerator or the CPU, ``cpu``, or indices.
        workers: How many processes.
        timeout: Seconds that one call may take.
        resume: The result csv of an earlier run to go on with.
        distinct: Leave out calls that repeat an earlier one (``-f``).
        only: Names of calls, or of APIs, to run and no other.
        standards: A yaml file that assigns APIs to standards.
    """

    dump: Path
    output: Path
    time_stamp: str
    framework: str | None = None
    devices: tuple[str, ...] = ()
    workers: int = 1
    timeout: float = TIMEOUT
    resume: Path | None = None
    distinct: bool = False
    only: tuple[str, ...] = ()
    save_error_data: bool = False
    jit_compile: bool = False
    settings: Settings = field(default_factory=Settings)
    release: str = RELEASES[0]
    language: str = "zh"
    standards: Path | None = None
    seed: int = SEED


@dataclass(slots=True)
class Checked:
    """What a pre-check came to.

    Attributes:
        counts: How many calls came to what, forward, backward and standard together.
        apis: How many calls each API has among them.
        failed: Those that did not pass, in the order of their finishing.
        passing_standard: How many fail by the rule of the table and pass by their standard.
        reasons: Why calls were skipped, and how many.
        lost: APIs that took their process with them.
        internal: Why calls were skipped that the runner or its installation is to blame for; else empty.
    """

    plan: CheckPlan
    files: ResultFiles
    total: int = 0
    earlier: int = 0
    counts: Counter[Status] = field(default_factory=Counter)
    apis: Counter[str] = field(default_factory=Counter)
    failed: list[Result] = field(default_factory=list)
    passing_standard: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    lost: list[Result] = field(default_factory=list)
    internal: str = ""
    error_directory: Path | None = None

    @property
    def is_broken(self) -> bool:
        """True where every call was skipped, and the runner or its installation is to blame for some."""
        return bool(self.internal) and self.counts.total() == self.counts[Status.SKIP]

    def note(self, result: Result) -> None:
        """Count a finished API."""
        status = whole(result.statuses)
        kind = api_name(result.name)
        self.counts[status] += 1
        self.apis[kind] += 1
        self.passing_standard += result.passes_standard_alone
        if result.lost:
            self.lost.append(result)
        if result.internal and not self.internal:
            self.internal = result.messages[0].text("en")
        if status in (Status.ERROR, Status.WARNING) and len(self.failed) < KEPT:
            self.failed.append(result)
        if status is Status.SKIP and result.messages:
            self.reasons[result.messages[0].text("en").replace(result.name, kind)] += 1

    def drop_empty(self) -> None:
        """Take the directory of the error data away where there are none."""
        if self.error_directory is not None:
            with suppress(OSError):
                self.error_directory.rmdir()
                self.error_directory = None


class CheckInterrupted(KeyboardInterrupt):
    """Ctrl-C, with the result csv that a further run can go on with."""

    def __init__(self, result: Path) -> None:
        super().__init__()
        self.result = result


def check_run(plan: CheckPlan, manager: Manager) -> Checked:
    """Check the calls of a run, and write both files as they are finished.

    Raises:
        CheckInterrupted: By Ctrl-C; what is finished stays in the files.
        UserError: The run, a file, the device or the framework is not there, or the disk is full.
    """
    run = open_run(manager, plan.dump, plan.framework)
    try:
        calls = RecordedCalls(rerunnable(run))
        framework = run.header.framework
        spec = runner_of(manager, framework)
        runner: Runner = (
            spec.make()
        )  # here as well as in the workers: what it lacks is said before they start
        if plan.settings.white_list or plan.settings.black_list:
            recorded = {bare_name(name) for name in calls.names}
            check_names(plan.settings, runner.apis() | recorded)
        judge = Judge(
            rule_of(manager, framework), assignment := Assignment(manager, plan.release, plan.standards)
        )
        chosen = _chosen(calls, plan)
        own_columns = assignment.own_columns({bare_name(calls.names[i]) for i in chosen})
        files = _open_files(plan, tables_of(manager, framework), own_columns)
        checked = Checked(plan, files)
        try:
            _check(plan, calls, chosen, spec, judge, checked)
            files.finish(calls.names)
            checked.drop_empty()
        except UserError:
            if plan.resume is None and not files.done:  # such as a device that is not there
                files.remove()
            raise
        except KeyboardInterrupt:
            raise CheckInterrupted(files.result) from None
        finally:
            files.close()
        return checked
    finally:
        run.close()


def _check(
    plan: CheckPlan,
    calls: RecordedCalls,
    chosen: Sequence[int],
    spec: RunnerSpec,
    judge: Judge,
    checked: Checked,
) -> None:
    files = checked.files
    left = [index for index in chosen if not files.has(calls.names[index])]
    checked.total = len(chosen)
    checked.earlier = done = len(chosen) - len(left)
    if plan.save_error_data:
        checked.error_directory = plan.settings.error_data_path / f"ut_error_data{files.time_stamp}"
        refuse_link(checked.error_directory)
        make_directory(checked.error_directory)
        remove_leftovers(checked.error_directory)
    jobs: list[Job] = []
    not_run: list[Call] = []
    for index in left:
        call = calls.call(index, plan.settings)
        if call.problem:
            not_run.append(call)
        else:
            jobs.append(Job(index, call, calls.cost(index)))
    setup = Checking(
        spec.framework,
        RunnerOptions(
            plan.dump,
            jit_compile=plan.jit_compile,
            error_directory=checked.error_directory,
            threads=_threads(plan),
            seed=plan.seed,
        ),
        plan.devices or ("",),
        plan.release,
        plan.standards,
    )
    with closing(
        supervise(setup, jobs, plan.workers, plan.timeout, preload=(*PRELOADED, *spec.preload))
    ) as answers:
        for job, answer in answers:
            result = lost_result(job.payload, answer.reason) if isinstance(answer, Lost) else answer
            done = _finish(result, checked, done)
    for call in not_run:
        done = _finish(judge.result(call, skipped(call, call.problem)), checked, done)


def _finish(result: Result, checked: Checked, done: int) -> int:
    checked.files.append(result)
    checked.note(result)
    tell("checking", done + 1, checked.total)
    return done + 1


def lost_result(call: Call, reason: str) -> Result:
    """The row of an API that took its process with it."""
    message = Message(f"ERROR: {reason}")
    details = [Detail(f"{call.name}.forward.output.0", Status.ERROR, messages=(message,))]
    backward = None
    if call.backward is not None:
        backward = Status.SKIP
        details.append(Detail(f"{call.name}.backward.output.0", Status.SKIP, messages=(message,)))
    return Result(call.name, Status.ERROR, backward, (message,), details, lost=True)


def _chosen(calls: RecordedCalls, plan: CheckPlan) -> list[int]:
    """The places of the calls that are to get a row."""
    chosen = list(calls.distinct()) if plan.distinct else list(range(len(calls)))
    if not plan.only:
        return chosen
    wanted = set(plan.only)
    apis = {api_name(name) for name in calls.names}
    for name in plan.only:
        if name not in apis and name not in calls.names:
            close = nearest(name, [*apis, *calls.names])
            raise UserError(
                f'The run holds no call "{name}".',
                "Nearest:" if close else "Give a name such as Functional.linear.0, or Functional.linear.",
                close,
            )
    return [i for i in chosen if calls.names[i] in wanted or api_name(calls.names[i]) in wanted]


def _open_files(plan: CheckPlan, tables: Tables, own_columns: Sequence[tuple[str, str, str]]) -> ResultFiles:
    columns = (*tables.details, *(Column(*names) for names in own_columns))
    digits = plan.settings.precision
    if plan.resume is not None:
        return ResultFiles.resume(plan.resume, columns, digits, tables)
    return ResultFiles.create(plan.output, plan.time_stamp, columns, plan.language, digits, tables)


def _threads(plan: CheckPlan) -> int:
    """Threads of each worker: one on the CPU, where sums must not depend on the number of workers."""
    if not plan.devices or plan.devices == ("cpu",):
        return 1
    return max(1, cores() // plan.workers)
