"""Explanation of a run: its calls are computed again in worker processes, rank by rank."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from probe_diagnosis.api import find_own_frame
from probe_precheck.api import RunnerOptions
from probe_precheck.calls import RecordedCalls, require_arguments
from probe_precheck.checking import find_runner_spec
from probe_precheck.settings import TIMEOUT, Settings
from probe_precheck.supervisor import Job, LostJob, supervise
from probe_precheck.yardstick import ErrorMeasurement
from probe_ranks.api import find_ranks

from probe_core.engine import count_cores
from probe_core.errors import UserError
from probe_core.flow.opening import open_run
from probe_core.model import Mode
from probe_core.model.run import Run
from probe_core.plugins.manager import Manager
from probe_core.progress import report_progress
from probe_explain.replaying import CallResult, ReplaySetup, create_skipped_result, find_replayer

PRELOADED_MODULES = ("probe_explain.replaying", "probe_precheck.yardstick")
"""Modules that every worker process needs, for any framework."""


@dataclass(frozen=True, slots=True)
class ExplainOptions:
    """Options of an explanation.

    Attributes:
        framework: The framework of the runs; None to find out from the files.
        workers: The number of processes; 0 for one per processor.
        timeout: The seconds that one call may take.
        only: Names of calls, or of APIs, that alone are computed; empty for all.
    """

    framework: str | None = None
    workers: int = 0
    timeout: float = TIMEOUT
    only: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UnexplainedResult:
    """Recorded result that rounding does not explain.

    Attributes:
        op: The key of the record, such as ``Functional.softmax.0.forward``.
        measured: The result of it that is off the most.
        where: The line of code that made the call; empty if not recorded.
        modules: The modules around the call, innermost first.
        step: The directory of the step; empty if there is only one.
        rank: The number of the rank.
    """

    op: str
    measured: ErrorMeasurement
    where: str = ""
    modules: tuple[str, ...] = ()
    step: str = ""
    rank: int = 0


@dataclass(slots=True)
class RankResult:
    """Result of explaining one rank of one step.

    Attributes:
        file: The record file.
        step: The directory of the step; empty if there is only one.
        rank: The number of the rank.
        calls: The calls that are done, in the order of the run once all are.
        unexplained_results: The results that rounding does not explain, in the order of the run.
        unfinished: The number of calls that were not reached.
        note: The reason why records may be missing at the end of the run; empty if none are.
    """

    file: Path
    step: str = ""
    rank: int = 0
    calls: list[CallResult] = field(default_factory=list)
    unexplained_results: list[UnexplainedResult] = field(default_factory=list)
    unfinished: int = 0
    note: str = ""


@dataclass(slots=True)
class Explanation:
    """Results of all ranks and steps of a run.

    Attributes:
        run: The path that was given.
        ranks: The results, by step and rank.
        interrupted: True if the user ended it before all calls were done.
    """

    run: Path
    ranks: list[RankResult] = field(default_factory=list)
    interrupted: bool = False


def iterate_files(
    path: Path, manager: Manager, steps: Collection[int] = (), ranks: Collection[int] = ()
) -> Iterator[tuple[str, int, Path]]:
    """Yield step, rank and record file of each rank of a run.

    Raises:
        UserError: The path holds no run, or not the steps or ranks.
    """
    by_step = find_ranks(path, steps, manager.record_files())
    recorded_ranks = sorted({rank for files in by_step.values() for rank in files})
    for rank in ranks:
        if rank not in recorded_ranks:
            raise UserError(f"{path} has no rank {rank}.", "Choose among its ranks:", list(map(str, recorded_ranks)))
    for step, files in by_step.items():
        for rank, file in files.items():
            if not ranks or rank in ranks:
                yield step if len(by_step) > 1 else "", rank, file


def explain(
    path: Path, files: Sequence[tuple[str, int, Path]], options: ExplainOptions, manager: Manager
) -> Explanation:
    """Return the explanation of the calls in record files; Ctrl-C ends it with the calls that are done.

    Args:
        path: The path of the run.
        files: Step, rank and record file of each rank.
        options: The options.
        manager: The plugins.

    Raises:
        UserError: A run cannot be read or holds no tensors, or its framework has no runner for this.
    """
    explanation = Explanation(path)
    try:
        for step, rank, file in files:
            result = RankResult(file, step, rank)
            explanation.ranks.append(result)
            if not _explain_rank(result, options, manager):
                explanation.ranks.pop()
    except KeyboardInterrupt:
        explanation.interrupted = True
    if files and not explanation.ranks:
        raise UserError(
            f"{files[0][-1]} holds no tensors, so its calls cannot be computed again.",
            'Record the run with "task": "tensor" (probe run --task tensor).',
        )
    return explanation


def _explain_rank(result: RankResult, options: ExplainOptions, manager: Manager) -> bool:
    """Compute the calls of a rank again; return False if it holds no tensors."""
    run = open_run(manager, result.file, options.framework)
    with closing(run):
        is_mixed = run.mode is not Mode.TENSOR
        if is_mixed and not (run.values.data >= 0).any():
            return False
        result.note = run.header.unfinished
        recorded = RecordedCalls(require_arguments(run))
        framework = run.header.framework
        spec = find_runner_spec(manager, framework)
        find_replayer(manager, framework)  # here as well, so that its absence is reported before workers start
        jobs: list[Job] = []
        for index in recorded.select(options.only):
            if is_mixed and not _has_tensors(run, recorded.names[index]):
                continue
            call = recorded.get_call(index, Settings())
            if call.problem:
                result.calls.append(create_skipped_result(call, call.problem))
            else:
                jobs.append(Job(index, call, recorded.estimate_cost(index)))
        total = len(result.calls) + len(jobs)
        runner_options = RunnerOptions(result.file, device="cpu", is_ours=run.header.is_ours)
        setup = ReplaySetup(framework, runner_options)
        workers = max(1, min(options.workers or count_cores(), len(jobs)))
        places = {name: place for place, name in enumerate(recorded.names)}
        try:
            with closing(
                supervise(setup, jobs, workers, options.timeout, preload=(*PRELOADED_MODULES, *spec.preload))
            ) as answers:
                for job, answer in answers:
                    lost = isinstance(answer, LostJob)
                    done = create_skipped_result(job.payload, answer.reason, lost=True) if lost else answer
                    result.calls.append(done)
                    report_progress("explaining", len(result.calls), total)
        finally:
            result.calls.sort(key=lambda done: places[done.name])
            result.unfinished = total - len(result.calls)
            result.unexplained_results += _find_unexplained(run, result)
    return True


def _has_tensors(run: Run, call: str) -> bool:
    """Return True if the data of a call's tensors are on disk, which they are for some calls of the run only."""
    indices = (run.find(f"{call}.{phase}") for phase in ("forward", "backward"))
    records = [run.record(index) for index in indices if index is not None]
    return any(slot.value.data_name is not None for record in records for slot in record.slots)


def _find_unexplained(run: Run, result: RankResult) -> Iterator[UnexplainedResult]:
    """Yield for each record the result that is off the most, if rounding does not explain it."""
    path = run.stack_path
    is_loaded = False
    for call in result.calls:
        for direction, results in call.directions.items():
            worst = max(results, key=get_severity_key) if isinstance(results, tuple) and results else None
            if worst is None or not worst.is_beyond:
                continue
            if not is_loaded and path is not None and path.is_file():
                with suppress(UserError):  # it is damaged, and the results stand without it
                    run.use_stacks(path)
            is_loaded = True
            forward = f"{call.name}.forward"
            yield UnexplainedResult(
                f"{call.name}.{direction}",
                worst,
                find_own_frame(run.stack_of(forward) or ()),
                run.construct.ancestors(forward),
                result.step,
                result.rank,
            )


def get_severity_key(measured: ErrorMeasurement) -> tuple[bool, float]:
    """Return the key that sorts results by severity: results with nan or inf on one side are last."""
    return measured.nonfinite_mismatches > 0, measured.times
