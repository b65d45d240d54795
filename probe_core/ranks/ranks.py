"""Comparison of all ranks and steps of two runs by several workers, which can be resumed.

With at least as many comparisons as workers, each worker compares whole ranks and writes their files. With
fewer, on a cluster or with ``--executor processes``, all workers measure chunks of one rank after another.
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
from probe_core.files.claim import claim_time_stamp
from probe_core.model.answers import Answer
from probe_core.model.plan import Plan
from probe_core.plugins.blame import blame_plugin
from probe_core.plugins.manager import Manager
from probe_core.plugins.protocols import Compared, Finished
from probe_core.plugins.specs import AnswerSpec, ExecutorSpec, Place, Pool, ViewSpec
from probe_core.progress import report_progress
from probe_core.ranks.journal import Journal
from probe_core.ranks.spread import create_lost_error, open_pool, yield_as_finished
from probe_core.store.layout import Pairing, RunPair, pair_runs

if TYPE_CHECKING:
    from probe_core.plugins.protocols import Answerer, Conclusion, Executor


LOADED_KINDS = (
    "readers", "matchers", "views", "tables", "metrics", "policies", "judges", "finders", "highlighters",
    "reporters", "answers",
)  # fmt: skip
"""The kinds of contributions that a comparison loads, besides those that a view needs."""


@dataclass
class Ranks:
    """All comparisons of a plan.

    Attributes:
        plan: The plan, with the time stamp of the comparison that it resumes, if any.
        pairing: The pairs of record files, and the ranks and steps without partners.
        finished: The comparisons that ended so far, in the order of the pairs.
    """

    plan: Plan
    manager: Manager
    pairing: Pairing = field(init=False)
    finished: list[Finished] = field(default_factory=list)
    _journal: Journal | None = None
    _resumes: bool = False
    _answer: Answer | None = None

    def __post_init__(self) -> None:
        plan, formats = self.plan, self.manager.record_files()
        self.pairing = pair_runs(
            plan.target, plan.golden, plan.steps, plan.ranks, formats, plan.pair_ranks, plan.step_offset
        )
        if self.has_several_pairs:
            journal = Journal.resume(self.plan) if self.plan.resume else None
            if journal is not None:
                self.plan = replace(self.plan, time_stamp=journal.time_stamp)
                self._resumes = True
            self._journal = journal or Journal(self.plan)

    @property
    def has_several_pairs(self) -> bool:
        """Return True if there is more than one pair of record files."""
        return len(self.pairing.pairs) > 1

    @contextmanager
    def reserve_time_stamp(self) -> Iterator[None]:
        """Reserve the plan's time stamp, or the next free one, while the block runs.

        Raises:
            UserError: The output directory is not writable, or the comparison to resume is still running.
        """
        parts = {pair.part for pair in self.pairing.pairs}
        with claim_time_stamp(self.plan.output, self.plan.time_stamp, parts, is_resumed=self._resumes) as time_stamp:
            if time_stamp != self.plan.time_stamp:
                self.plan = replace(self.plan, time_stamp=time_stamp)
                if self._journal is not None:
                    self._journal = Journal(self.plan)
            yield

    def run(self) -> Iterator[Finished]:
        """Make all comparisons, and yield each in the order of the pairs.

        Raises:
            UserError: The plan is not valid, the only comparison cannot be made, or there are no workers.
            KeyboardInterrupt: The user pressed Ctrl-C; the finished comparisons were yielded before.
        """
        from probe_core.flow.comparison import check_plan

        check_plan(self.plan, self.manager)
        remove_private_directories()  # of a killed command, even if it left nothing to resume
        for part in {"", *(pair.part for pair in self.pairing.pairs)}:
            if part:
                refuse_link(self.plan.output / part)
            remove_leftovers(self.plan.output / part)
        if self._journal is None:
            yield self._add_result(self._compare_single())
            return
        yielded_count = 0
        try:
            for _ in self._compare_all():
                pairs = self.pairing.pairs
                while yielded_count < len(self.finished) and self.finished[yielded_count].pair is pairs[yielded_count]:
                    yielded_count += 1
                    yield self.finished[yielded_count - 1]
        except (KeyboardInterrupt, UserError):
            yield from self.finished[yielded_count:]
            raise

    def _compare_all(self) -> Iterator[Finished]:
        """Make several comparisons, and yield each as it ends, starting with those finished earlier."""
        from probe_core.flow.pipeline import create_finder

        assert self._journal is not None
        self._journal.begin()
        unfinished: list[RunPair] = []
        for pair in self.pairing.pairs:
            finished = self._journal.find_finished(pair, create_finder(self.manager))
            if finished is None:
                unfinished.append(pair)
            else:
                yield self._add_result(finished)
        for result in self._distribute(unfinished):
            if result.report is not None and not result.interrupted and not result.report.faults:
                self._journal.add(result)
            yield self._add_result(result)
            report_progress("comparing ranks", len(self.finished), len(self.pairing.pairs))
        if any(result.interrupted for result in self.finished):
            raise KeyboardInterrupt
        all_failed = all(result.error for result in self.finished)
        if all_failed or not any(result.report is None or result.report.faults for result in self.finished):
            self._journal.end()

    def _add_result(self, result: Finished) -> Finished:
        self.finished.append(result)
        order = {id(pair): number for number, pair in enumerate(self.pairing.pairs)}
        self.finished.sort(key=lambda candidate: order[id(candidate.pair)])
        return result

    def yield_conclusions(self, stage: str) -> Iterator[Conclusion]:
        """Yield the answers that are given ``"first"``, ``"last"``, or that the plan ``"asked"`` for."""
        for name in self.plan.answers if stage == "asked" else self.manager.names("answers"):
            spec = self.manager.find("answers", name, AnswerSpec)
            if spec.given == stage:
                answerer: Answerer = spec.make()
                with blame_plugin(spec.title, spec.origin):
                    if hasattr(answerer, "revise"):
                        self.finished = [*answerer.revise(self._get_compared())]
                    for conclusion in answerer.conclude(self._get_compared()):
                        self._answer = self._answer or conclusion.answer
                        yield conclusion

    def _get_compared(self) -> Compared:
        return Compared(self.plan, self.manager, self.pairing, tuple(self.finished), self._answer)

    # -- choice of workers ---------------------------------------------------------------------------

    def _compare_single(self) -> Finished:
        pair = self.pairing.pairs[0]
        if self.plan.executor is None or self._executor.place is Place.HERE:
            engine.use_threads(self.plan.jobs)
            return self._compare(pair)
        return self._compare_in_chunks(pair)

    def _compare_in_chunks(self, pair: RunPair) -> Finished:
        with open_pool(self._open_pool) as pool:
            return self._compare(pair, pool)

    def _distribute(self, pairs: list[RunPair]) -> Iterator[Finished]:
        if not pairs:
            return
        if self.plan.executor is None and self._jobs == 1:
            engine.use_threads(1)
            yield from self._compare_one_by_one(pairs)
            return
        if self.plan.executor is not None and self._executor.place is not Place.HERE:
            with open_pool(self._open_pool) as pool:
                size = pool.size
            if len(pairs) < size:
                yield from self._compare_one_by_one(pairs, in_chunks=True)
                return
        yield from self._compare_whole_ranks(pairs)

    def _compare_whole_ranks(self, pairs: list[RunPair]) -> Iterator[Finished]:
        """Let each worker compare whole ranks."""
        from probe_core.ranks.worker import compare_in_worker

        place = self._executor.place
        threads = 1 if place is Place.CLUSTER else max(1, self._jobs // min(self._jobs, len(pairs)))
        calls = [(self.plan, pair, threads, self.manager if place is Place.HERE else None) for pair in pairs]
        for pair in pairs:
            self.manager.notify("probe_run_started", target=str(pair.target), golden=str(pair.golden))
        interrupted = False
        for number, outcome in yield_as_finished(self._open_pool, compare_in_worker, calls):
            pair = pairs[number]
            if isinstance(outcome, Finished):
                self.manager.notify("probe_run_finished", report=outcome.report)
                yield replace(outcome, pair=pair)
            elif isinstance(outcome, UserError):
                yield Finished(pair, error=outcome)
            elif isinstance(outcome, BrokenExecutor) or type(outcome).__name__ in self._executor_spec.killed:
                remove_leftovers(self.plan.output / pair.part, self.plan.time_stamp)
                yield Finished(pair, error=create_lost_error(outcome))
            elif isinstance(outcome, KeyboardInterrupt):  # interrupted before it had any rows
                interrupted = True
            else:
                raise outcome
        if interrupted:
            raise KeyboardInterrupt

    def _compare_one_by_one(self, pairs: list[RunPair], *, in_chunks: bool = False) -> Iterator[Finished]:
        """Compare one rank after another, here or in chunks by a pool that is opened for each rank."""
        for pair in pairs:
            try:
                result = self._compare_in_chunks(pair) if in_chunks else self._compare(pair)
            except UserError as error:
                result = Finished(pair, error=error)
            yield result
            if result.interrupted:
                return

    def _compare(self, pair: RunPair, pool: Pool | None = None) -> Finished:
        from probe_core.flow.pipeline import compare_pair
        from probe_core.ranks.worker import measure_in_pool

        batch_source = None if pool is None else partial(measure_in_pool, pool, pair)
        return compare_pair(self.plan, self.manager, pair, batch_source)

    @property
    def _jobs(self) -> int:
        return self.plan.jobs or engine.count_cores()

    @cached_property
    def _executor(self) -> Executor:
        executor: Executor = self._executor_spec.make()
        return executor

    @property
    def _executor_spec(self) -> ExecutorSpec:
        return self.manager.find("executors", self.plan.executor or "processes", ExecutorSpec)

    def _open_pool(self) -> Pool:
        jobs = self.plan.jobs
        if self.plan.executor is None:  # no more processes than ranks
            jobs = min(self._jobs, len(self.pairing.pairs))
        view_kinds = [kind for spec in self.manager.specs("views", ViewSpec) for kind in spec.asks]
        for kind in (*LOADED_KINDS, *view_kinds):  # warn of broken plugins here, and not in each worker
            self.manager.contributions(kind)
        spec = self._executor_spec
        with blame_plugin(spec.title, spec.origin):
            return self._executor.open(jobs, self.plan.scheduler)
