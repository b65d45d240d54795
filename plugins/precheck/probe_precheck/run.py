"""Pre-check of a run: worker processes check its calls, and each result is written when it is finished."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from probe_core.engine import count_cores
from probe_core.errors import UserError
from probe_core.files.atomic import make_directory, refuse_link, remove_leftovers
from probe_core.flow.opening import open_run
from probe_core.model import Mode
from probe_core.plugins.manager import Manager
from probe_core.progress import report_progress
from probe_precheck.assignment import Assignment
from probe_precheck.calls import RecordedCalls, get_api_name, get_bare_name, require_arguments
from probe_precheck.checking import (
    CheckSetup,
    create_skipped_outcome,
    create_status_rule,
    find_runner_spec,
    find_tables,
)
from probe_precheck.judging import CallJudge, merge_statuses
from probe_precheck.model import Call, Detail, Message, Result, Status
from probe_precheck.protocols import Replayer, Runner
from probe_precheck.releases import RELEASES
from probe_precheck.results import CheckFiles
from probe_precheck.runner_options import SEED, RunnerOptions
from probe_precheck.settings import TIMEOUT, Settings, check_names
from probe_precheck.specs import RunnerSpec
from probe_precheck.supervisor import Job, LostJob, supervise
from probe_precheck.tables import CsvColumn, Tables

PRELOADED_MODULES = ("probe_precheck.checking",)
"""Modules that every worker process needs, for any framework."""

MAX_FAILED_RESULTS = 10_000
"""Number of failed results that are kept for the summary."""


@dataclass(frozen=True, slots=True)
class CheckPlan:
    """Options of a pre-check, as on the command line.

    Attributes:
        dump: The path of the ``dump.json``.
        output: The directory of both csv files.
        time_stamp: The start of the program, as 14 digits.
        framework: The framework of the run; None to detect it from the file.
        devices: ``cpu``, or indices of accelerators. If empty, an accelerator is used if there is one, and otherwise
            the CPU.
        workers: The number of processes.
        timeout: The time limit of a call in seconds.
        resume: The result csv of an earlier check to resume; None to start a new check.
        distinct: True to skip calls that repeat an earlier call (``-f``).
        only: Names of the calls or APIs to run; empty for all calls.
        save_error_data: True to save the data of calls that do not pass.
        jit_compile: True to compile operators just in time, on devices with that option.
        settings: The contents of the configuration file.
        release: The release of msprobe whose thresholds apply: ``guide`` (1.0.4) or ``8.3``.
        language: The language of headers and messages: ``zh`` or ``en``.
        standards: A YAML file that assigns APIs to standards; None for the built-in lists only.
        seed: The number from which the seeds of random inputs are derived.
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
class CheckSummary:
    """Result of a pre-check.

    Attributes:
        plan: The options.
        files: The csv files.
        total: The number of calls to check.
        earlier: The number of calls that an earlier check had finished.
        counts: The number of calls by their worst status of forward, backward and standard.
        apis: The number of calls by API.
        failed: The first results with a warning or an error, in the order in which they finished.
        passing_standard: The number of calls that fail the first stage and pass their standard.
        reasons: The number of skipped calls by reason.
        lost: The results of calls whose process ended before the call did.
        internal: The first reason that is caused by the runner or its installation; empty if there is none.
        error_directory: The directory of saved data; None if no data was saved.
        is_explainable: True if ``probe explain`` can judge the recorded results.
    """

    plan: CheckPlan
    files: CheckFiles
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
    is_explainable: bool = False

    @property
    def is_broken(self) -> bool:
        """True if every call was skipped, some of them because of the runner or its installation."""
        return bool(self.internal) and self.counts.total() == self.counts[Status.SKIP]

    def count(self, result: Result) -> None:
        """Count a finished call."""
        status = merge_statuses(result.statuses)
        kind = get_api_name(result.name)
        self.counts[status] += 1
        self.apis[kind] += 1
        self.passing_standard += result.passes_standard_alone
        if result.lost:
            self.lost.append(result)
        if result.internal and not self.internal:
            self.internal = result.messages[0].text("en")
        if status in (Status.ERROR, Status.WARNING) and len(self.failed) < MAX_FAILED_RESULTS:
            self.failed.append(result)
        if status is Status.SKIP and result.messages:
            self.reasons[result.messages[0].text("en").replace(result.name, kind)] += 1

    def remove_empty_directory(self) -> None:
        """Remove the directory of the error data if it is empty."""
        if self.error_directory is not None:
            with suppress(OSError):
                self.error_directory.rmdir()
                self.error_directory = None


class CheckInterrupted(KeyboardInterrupt):
    """Ctrl-C during a check, with the result csv with which the check can be resumed."""

    def __init__(self, result: Path) -> None:
        super().__init__()
        self.result = result


def check_run(plan: CheckPlan, manager: Manager) -> CheckSummary:
    """Check the calls of a run, and write the rows of each call when it is finished.

    Raises:
        CheckInterrupted: Ctrl-C was pressed; rows of finished calls stay in the files.
        UserError: The run, a file, the device or the framework is missing, or a file cannot be written.
    """
    run = open_run(manager, plan.dump, plan.framework)
    try:
        calls = RecordedCalls(require_arguments(run))
        framework = run.header.framework
        spec = find_runner_spec(manager, framework)
        # also created here, so that a missing package is reported before the workers start
        runner: Runner = spec.make()
        if plan.settings.white_list or plan.settings.black_list:
            recorded = {get_bare_name(name) for name in calls.names}
            check_names(plan.settings, runner.apis() | recorded)
        judge = CallJudge(
            create_status_rule(manager, framework), assignment := Assignment(manager, plan.release, plan.standards)
        )
        chosen = calls.select(plan.only, distinct=plan.distinct)
        added_columns = assignment.list_columns({get_bare_name(calls.names[i]) for i in chosen})
        files = _open_files(plan, find_tables(manager, framework), added_columns)
        is_explainable = run.mode is Mode.TENSOR and isinstance(runner, Replayer)
        checked = CheckSummary(plan, files, is_explainable=is_explainable)
        try:
            _check(plan, calls, chosen, spec, judge, checked)
            files.finish(calls.names)
            checked.remove_empty_directory()
        except UserError:
            if plan.resume is None and not files.done:  # such as a missing device
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
    judge: CallJudge,
    checked: CheckSummary,
) -> None:
    files = checked.files
    remaining = [index for index in chosen if not files.has(calls.names[index])]
    checked.total = len(chosen)
    checked.earlier = done = len(chosen) - len(remaining)
    if plan.save_error_data:
        checked.error_directory = _create_error_directory(plan, files.time_stamp)
    jobs: list[Job] = []
    not_run: list[Call] = []
    for index in remaining:
        call = calls.get_call(index, plan.settings)
        if call.problem:
            not_run.append(call)
        else:
            jobs.append(Job(index, call, calls.estimate_cost(index)))
    options = RunnerOptions(
        plan.dump,
        jit_compile=plan.jit_compile,
        error_directory=checked.error_directory,
        threads=_count_threads(plan),
        seed=plan.seed,
    )
    setup = CheckSetup(spec.framework, options, plan.devices or ("",), plan.release, plan.standards)
    preload = (*PRELOADED_MODULES, *spec.preload)
    with closing(supervise(setup, jobs, plan.workers, plan.timeout, preload=preload)) as answers:
        for job, answer in answers:
            result = create_lost_result(job.payload, answer.reason) if isinstance(answer, LostJob) else answer
            done = _finish(result, checked, done)
    for call in not_run:
        done = _finish(judge.judge_call(call, create_skipped_outcome(call, call.problem)), checked, done)


def _create_error_directory(plan: CheckPlan, time_stamp: str) -> Path:
    directory = plan.settings.error_data_path / f"ut_error_data{time_stamp}"
    refuse_link(directory)
    make_directory(directory)
    remove_leftovers(directory)
    return directory


def _finish(result: Result, checked: CheckSummary, done: int) -> int:
    checked.files.append(result)
    checked.count(result)
    report_progress("checking", done + 1, checked.total)
    return done + 1


def create_lost_result(call: Call, reason: str) -> Result:
    """Return the row of a call whose process ended before the call did."""
    message = Message(f"ERROR: {reason}")
    details = [Detail(f"{call.name}.forward.output.0", Status.ERROR, messages=(message,))]
    backward = None
    if call.backward is not None:
        backward = Status.SKIP
        details.append(Detail(f"{call.name}.backward.output.0", Status.SKIP, messages=(message,)))
    return Result(call.name, Status.ERROR, backward, (message,), details, lost=True)


def _open_files(plan: CheckPlan, tables: Tables, added_columns: Sequence[CsvColumn]) -> CheckFiles:
    columns = (*tables.details, *(CsvColumn(*names) for names in added_columns))
    digits = plan.settings.precision
    if plan.resume is not None:
        return CheckFiles.resume(plan.resume, columns, digits, tables)
    return CheckFiles.create(plan.output, plan.time_stamp, columns, plan.language, digits, tables)


def _count_threads(plan: CheckPlan) -> int:
    """Return the number of threads of each worker: 1 on the CPU, so that sums do not depend on it."""
    if not plan.devices or plan.devices == ("cpu",):
        return 1
    return max(1, count_cores() // plan.workers)
