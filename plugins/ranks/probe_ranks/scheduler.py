"""Comparison of all ranks and steps of two runs by several workers, which can be resumed.

With at least as many comparisons as workers, each worker compares whole ranks and writes their files. With
fewer, on a cluster or with ``--executor processes``, all workers measure chunks of one rank after another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial

from probe_core import engine
from probe_core.errors import UserError
from probe_core.files.atomic import remove_leftovers
from probe_core.flow.pipeline import BatchSource, compare_pair
from probe_core.model.plan import Plan
from probe_core.plugins.blame import blame_plugin
from probe_core.plugins.manager import Manager
from probe_core.plugins.protocols import PairResult
from probe_core.plugins.specs import FinderSpec, ViewSpec
from probe_core.store.layout import Pairing, RecordFiles, RunPair
from probe_ranks.journal import Journal
from probe_ranks.layout import pair_runs
from probe_ranks.specs import PAIR_RANKS, Executor, ExecutorSpec, Place, Pool
from probe_ranks.spread import create_lost_error, iterate_as_finished, open_pool

LOADED_KINDS = (
    "readers", "matchers", "views", "tables", "metrics", "policies", "judges", "finders", "highlighters",
    "reporters", "answers",
)  # fmt: skip
"""The kinds of contributions that a comparison loads, besides those that a view needs."""


class WorkerScheduler:
    """Scheduler that distributes comparisons over workers, and records the finished comparisons in a journal."""

    def __init__(self) -> None:
        self._journal: Journal | None = None

    def pair_runs(self, plan: Plan, formats: RecordFiles) -> Pairing:
        """Return the record files to compare, by step and rank."""
        options = plan.options
        return pair_runs(
            plan.target, plan.golden, options.get("steps", ()), options.get("ranks", ()), formats,
            options.get("pair_ranks", PAIR_RANKS[0]), options.get("step_offset", 0),
        )  # fmt: skip

    def find_interrupted(self, plan: Plan) -> str | None:
        """Return the time stamp of the interrupted comparison of the same plan; None if there is none."""
        self._journal = Journal.resume(plan) if plan.options.get("resume") else None
        return None if self._journal is None else self._journal.time_stamp

    def run(self, plan: Plan, manager: Manager, pairs: Sequence[RunPair]) -> Iterator[PairResult]:
        """Make all comparisons, and yield each as it ends, starting with those finished earlier."""
        distribution = WorkDistribution(plan, manager, len(pairs))
        if len(pairs) == 1:
            yield distribution.compare_single(pairs[0])
            return
        journal = self._journal or Journal(plan)
        journal.begin()
        results: list[PairResult] = []
        unfinished: list[RunPair] = []
        for pair in pairs:
            finished = journal.find_finished(pair, manager.make_first("finders", FinderSpec))
            if finished is None:
                unfinished.append(pair)
            else:
                results.append(finished)
                yield finished
        for result in distribution.compare(unfinished):
            if result.report is not None and not result.interrupted and not result.report.faults:
                journal.add(result)
            results.append(result)
            yield result
        all_failed = all(result.error for result in results)
        are_complete = all(result.report is not None and not result.report.faults for result in results)
        if not any(result.interrupted for result in results) and (all_failed or are_complete):
            journal.end()


@dataclass
class WorkDistribution:
    """Comparisons distributed over the workers of the plan's executor.

    Attributes:
        pair_count: The number of all comparisons of the plan, including those that are finished.
    """

    plan: Plan
    manager: Manager
    pair_count: int

    def compare_single(self, pair: RunPair) -> PairResult:
        """Compare the only pair of record files, here or in chunks by workers."""
        if self._executor_name is None or self._executor.place is Place.HERE:
            engine.use_threads(self.plan.jobs)
            return _compare_and_notify(self.plan, self.manager, pair)
        return self._compare_in_chunks(pair)

    def compare(self, pairs: list[RunPair]) -> Iterator[PairResult]:
        """Compare several pairs of record files, and yield each as it ends."""
        if not pairs:
            return
        if self._executor_name is None and self._jobs == 1:
            engine.use_threads(1)
            yield from _compare_one_by_one(pairs, partial(_compare_and_notify, self.plan, self.manager))
            return
        if self._executor_name is not None and self._executor.place is not Place.HERE:
            with open_pool(self._open_pool) as pool:
                size = pool.size
            if len(pairs) < size:
                yield from _compare_one_by_one(pairs, self._compare_in_chunks)
                return
        yield from self._compare_whole_ranks(pairs)

    def _compare_whole_ranks(self, pairs: list[RunPair]) -> Iterator[PairResult]:
        """Let each worker compare whole ranks."""
        from probe_ranks.worker import compare_in_worker

        place = self._executor.place
        threads = 1 if place is Place.CLUSTER else max(1, self._jobs // min(self._jobs, len(pairs)))
        calls = [(self.plan, pair, threads, self.manager if place is Place.HERE else None) for pair in pairs]
        for pair in pairs:
            self.manager.notify("probe_run_started", target=str(pair.target), golden=str(pair.golden))
        interrupted = False
        for number, outcome in iterate_as_finished(self._open_pool, compare_in_worker, calls):
            pair = pairs[number]
            if isinstance(outcome, PairResult):
                self.manager.notify("probe_run_finished", report=outcome.report)
                yield replace(outcome, pair=pair)
            elif isinstance(outcome, UserError):
                yield PairResult(pair, error=outcome)
            elif isinstance(outcome, BrokenExecutor) or type(outcome).__name__ in self._executor_spec.killed:
                remove_leftovers(self.plan.output / pair.part, self.plan.time_stamp)
                yield PairResult(pair, error=create_lost_error(outcome))
            elif isinstance(outcome, KeyboardInterrupt):  # interrupted before it had any rows
                interrupted = True
            else:
                raise outcome
        if interrupted:
            raise KeyboardInterrupt

    def _compare_in_chunks(self, pair: RunPair) -> PairResult:
        """Let all workers measure chunks of one comparison."""
        from probe_ranks.worker import measure_in_pool

        with open_pool(self._open_pool) as pool:
            return _compare_and_notify(self.plan, self.manager, pair, partial(measure_in_pool, pool, pair))

    @property
    def _jobs(self) -> int:
        return self.plan.jobs or engine.count_cores()

    @cached_property
    def _executor_name(self) -> str | None:
        name: str | None = self.plan.options.get("executor")
        return name

    @cached_property
    def _executor(self) -> Executor:
        executor: Executor = self._executor_spec.make()
        return executor

    @property
    def _executor_spec(self) -> ExecutorSpec:
        return self.manager.find("executors", self._executor_name or "processes", ExecutorSpec)

    def _open_pool(self) -> Pool:
        jobs = self.plan.jobs
        if self._executor_name is None:  # no more processes than ranks
            jobs = min(self._jobs, self.pair_count)
        view_kinds = [kind for spec in self.manager.specs("views", ViewSpec) for kind in spec.asks]
        for kind in (*LOADED_KINDS, *view_kinds):  # warn of broken plugins here, and not in each worker
            self.manager.contributions(kind)
        spec = self._executor_spec
        with blame_plugin(spec.title, spec.origin):
            return self._executor.open(jobs, self.plan.options.get("scheduler"))


def _compare_one_by_one(pairs: Sequence[RunPair], compare: Callable[[RunPair], PairResult]) -> Iterator[PairResult]:
    """Yield the result or the error of each comparison; stop after an interrupted comparison."""
    for pair in pairs:
        try:
            result = compare(pair)
        except UserError as error:
            result = PairResult(pair, error=error)
        yield result
        if result.interrupted:
            return


def _compare_and_notify(
    plan: Plan, manager: Manager, pair: RunPair, batch_source: BatchSource | None = None
) -> PairResult:
    """Compare one record file with another, and notify the plugins before and after.

    Without a ``batch_source``, the rows are measured in this process.
    """
    manager.notify("probe_run_started", target=str(pair.target), golden=str(pair.golden))
    finished = compare_pair(plan, manager, pair, batch_source)
    manager.notify("probe_run_finished", report=finished.report)
    return finished
