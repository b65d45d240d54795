"""Compare the ranks and steps of two runs: spread over workers, resumed where they were interrupted.

With as many comparisons as workers or more, each worker compares whole ranks and writes their files. With
fewer, on a cluster or in processes that were asked for, ranks are compared one after another and each is
measured in chunks by all workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from probe_core import engine
from probe_core.errors import UserError
from probe_core.files.atomic import refuse_link, remove_leftovers, remove_private_directories
from probe_core.files.claim import claimed
from probe_core.model.plan import Plan
from probe_core.model.report import Report
from probe_core.plugins.blame import blamed
from probe_core.plugins.manager import Manager
from probe_core.plugins.specs import ExecutorSpec, Place, Pool, ViewSpec
from probe_core.progress import tell
from probe_core.ranks.journal import Journal
from probe_core.ranks.spread import as_finished, lost, opened
from probe_core.store.layout import Pairing, RunPair, pair_runs

if TYPE_CHECKING:
    from probe_core.plugins.protocols import Executor


ASKED = (
    "readers", "matchers", "views", "tables", "metrics", "policies", "judges", "finders", "highlighters",
    "reporters", "answers",
)  # fmt: skip
"""The contributions that a comparison asks plugins for, besides those that a view asks for."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A comparison that ended: with a report, or with the mistake that prevented it.

    ``resumed`` is True for one that an earlier run had finished.
    """

    pair: RunPair
    report: Report | None = None
    error: UserError | None = None
    resumed: bool = False

    @property
    def interrupted(self) -> bool:
        """True where the report is of the rows that there were when it was interrupted."""
        return self.report is not None and self.report.interrupted


@dataclass
class Ranks:
    """The comparisons that a plan means.

    Attributes:
        plan: The plan; its time stamp is that of the run that it takes up.
        pairing: What is compared with what, and what is missing.
        finished: What has ended so far, in the order of the pairs.
    """

    plan: Plan
    manager: Manager
    pairing: Pairing = field(init=False)
    finished: list[Finished] = field(default_factory=list)
    _journal: Journal | None = None
    _resumes: bool = False

    def __post_init__(self) -> None:
        plan, formats = self.plan, self.manager.record_files()
        self.pairing = pair_runs(plan.target, plan.golden, plan.steps, plan.ranks, formats)
        if self.several:
            found = Journal.resume(self.plan) if self.plan.resume else None
            if found is not None:
                self.plan = replace(self.plan, time_stamp=found.time_stamp)
                self._resumes = True
            self._journal = found or Journal(self.plan)

    @property
    def several(self) -> bool:
        """True where there is more than one comparison to make."""
        return len(self.pairing.pairs) > 1

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Hold the plan's time stamp while the block runs; where it is taken, the next that is free.

        Raises:
            UserError: The output directory takes no files; what is to be resumed is still running.
        """
        parts = {pair.part for pair in self.pairing.pairs}
        with claimed(self.plan.output, self.plan.time_stamp, parts, resumes=self._resumes) as time_stamp:
            if time_stamp != self.plan.time_stamp:
                self.plan = replace(self.plan, time_stamp=time_stamp)
                if self._journal is not None:
                    self._journal = Journal(self.plan)
            yield

    def run(self) -> Iterator[Finished]:
        """Make all comparisons and give them in the order of the pairs, each once all before it have ended.

        Raises:
            UserError: A mistake in the plan; a single comparison that cannot be made; workers that are not
                to be had, or gone.
            KeyboardInterrupt: Interrupted; what came to an end by then was given.
        """
        from probe_core.flow.comparison import check_plan

        check_plan(self.plan, self.manager)
        remove_private_directories()  # of a killed run that this one resumes, be there nothing left to do
        for part in {"", *(pair.part for pair in self.pairing.pairs)}:
            if part:
                refuse_link(self.plan.output / part)
            remove_leftovers(self.plan.output / part)
        if self._journal is None:
            yield self._keep(self._single())
            return
        given = 0
        try:
            for _ in self._all():
                pairs = self.pairing.pairs
                while given < len(self.finished) and self.finished[given].pair is pairs[given]:
                    given += 1
                    yield self.finished[given - 1]
        except (KeyboardInterrupt, UserError):
            yield from self.finished[given:]
            raise

    def _all(self) -> Iterator[Finished]:
        """Make all comparisons of several; each as it ends, those of an earlier run first."""
        assert self._journal is not None
        self._journal.begin()
        left: list[RunPair] = []
        for pair in self.pairing.pairs:
            report = self._journal.finished(pair)
            if report is None:
                left.append(pair)
            else:
                yield self._keep(Finished(pair, report, resumed=True))
        for finished in self._spread(left):
            if finished.report is not None and not finished.interrupted and not finished.report.faults:
                self._journal.add(finished.pair, finished.report)
            yield self._keep(finished)
            tell("comparing ranks", len(self.finished), len(self.pairing.pairs))
        if any(one.interrupted for one in self.finished):
            raise KeyboardInterrupt
        all_failed = all(one.error for one in self.finished)
        if all_failed or not any(one.report is None or one.report.faults for one in self.finished):
            self._journal.end()

    def _keep(self, finished: Finished) -> Finished:
        self.finished.append(finished)
        order = {id(pair): number for number, pair in enumerate(self.pairing.pairs)}
        self.finished.sort(key=lambda one: order[id(one.pair)])
        return finished

    # -- where they run ----------------------------------------------------------------------------

    def _single(self) -> Finished:
        pair = self.pairing.pairs[0]
        if self.plan.executor is None or self._executor.place is Place.HERE:
            engine.use_threads(self.plan.jobs)
            return Finished(pair, self._compare(pair))
        return self._chunked(pair)

    def _chunked(self, pair: RunPair) -> Finished:
        with opened(self._pool) as pool:
            return Finished(pair, self._compare(pair, pool))

    def _spread(self, pairs: list[RunPair]) -> Iterator[Finished]:
        if not pairs:
            return
        if self.plan.executor is None and self._jobs == 1:
            engine.use_threads(1)
            yield from self._one_by_one(pairs)
            return
        if self.plan.executor is not None and self._executor.place is not Place.HERE:
            with opened(self._pool) as pool:
                size = pool.size
            if len(pairs) < size:
                yield from self._one_by_one(pairs, in_chunks=True)
                return
        yield from self._whole(pairs)

    def _whole(self, pairs: list[RunPair]) -> Iterator[Finished]:
        """Whole ranks, each compared by a worker."""
        from probe_core.ranks.worker import compare_apart

        place = self._executor.place
        threads = 1 if place is Place.CLUSTER else max(1, self._jobs // min(self._jobs, len(pairs)))
        calls = [(self.plan, pair, threads, self.manager if place is Place.HERE else None) for pair in pairs]
        for pair in pairs:
            self.manager.notify("probe_run_started", target=str(pair.target), golden=str(pair.golden))
        interrupted = False
        for number, outcome in as_finished(self._pool, compare_apart, calls):
            pair = pairs[number]
            if isinstance(outcome, Report):
                self.manager.notify("probe_run_finished", report=outcome)
                yield Finished(pair, outcome)
            elif isinstance(outcome, UserError):
                yield Finished(pair, error=outcome)
            elif isinstance(outcome, BrokenExecutor) or type(outcome).__name__ in self._executor_spec.killed:
                remove_leftovers(self.plan.output / pair.part, self.plan.time_stamp)
                yield Finished(pair, error=lost(outcome))
            elif isinstance(outcome, KeyboardInterrupt):  # before it had anything to keep
                interrupted = True
            else:
                raise outcome
        if interrupted:
            raise KeyboardInterrupt

    def _one_by_one(self, pairs: list[RunPair], *, in_chunks: bool = False) -> Iterator[Finished]:
        """Rank after rank, each here or in chunks on the workers of a pool, which may not outlive it."""
        for pair in pairs:
            try:
                finished = self._chunked(pair) if in_chunks else Finished(pair, self._compare(pair))
            except UserError as error:
                finished = Finished(pair, error=error)
            yield finished
            if finished.interrupted:
                return

    def _compare(self, pair: RunPair, pool: Pool | None = None) -> Report:
        from probe_core.flow.pipeline import compare_pair
        from probe_core.ranks.worker import measured_by

        measured = None if pool is None else partial(measured_by, pool, pair)
        return compare_pair(self.plan, self.manager, pair, measured)

    @property
    def _jobs(self) -> int:
        return self.plan.jobs or engine.cores()

    @cached_property
    def _executor(self) -> Executor:
        made: Executor = self._executor_spec.make()
        return made

    @property
    def _executor_spec(self) -> ExecutorSpec:
        return self.manager.find("executors", self.plan.executor or "processes", ExecutorSpec)

    def _pool(self) -> Pool:
        jobs = self.plan.jobs
        if self.plan.executor is None:  # no more processes than there are ranks for
            jobs = min(self._jobs, len(self.pairing.pairs))
        views = (item.spec for item in self.manager.contributions("views"))
        asked = [kind for spec in views if isinstance(spec, ViewSpec) for kind in spec.asks]
        for kind in (*ASKED, *asked):  # what is broken is said here, once, and not by each worker
            self.manager.contributions(kind)
        spec = self._executor_spec
        with blamed(spec.title, spec.origin):
            return self._executor.open(jobs, self.plan.scheduler)
