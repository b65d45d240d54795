"""Execution of a plan: the comparisons of all ranks and steps of two runs, by the scheduler of a plugin."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from probe_core.errors import UserError
from probe_core.model.answers import Answer
from probe_core.model.plan import Plan
from probe_core.plugins.blame import blame_plugin
from probe_core.plugins.manager import Manager
from probe_core.plugins.protocols import AllResults, PairResult, RevisingAnswerer
from probe_core.plugins.specs import AnswerSpec, AnswerStage, OutputSpec, SchedulerSpec
from probe_core.progress import report_progress
from probe_core.store.layout import Pairing

if TYPE_CHECKING:
    from probe_core.plugins.protocols import Answerer, Conclusion, Output, Scheduler


@dataclass
class PlanExecution:
    """The comparisons of a plan, and the conclusions from them.

    Attributes:
        plan: The plan, with the time stamp of the comparison that it resumes, if any.
        pairing: The pairs of record files, and the ranks and steps without partners.
        is_resumed: True if an interrupted comparison is resumed.
        finished: The comparisons that ended so far, in the order of the pairs.
    """

    plan: Plan
    manager: Manager
    scheduler: Scheduler
    pairing: Pairing
    is_resumed: bool = False
    finished: list[PairResult] = field(default_factory=list)
    _answer: Answer | None = None

    @classmethod
    def open(cls, plan: Plan, manager: Manager) -> PlanExecution:
        """Find the record files of a plan, and the interrupted comparison that it resumes, if any.

        Raises:
            UserError: A path does not hold a run, or no plugin has a scheduler.
        """
        scheduler: Scheduler | None = manager.make_first("schedulers", SchedulerSpec)
        if scheduler is None:
            raise manager.create_missing_error("schedulers", "workers")
        pairing = scheduler.pair_runs(plan, manager.record_files())
        time_stamp = scheduler.find_interrupted(plan) if len(pairing.pairs) > 1 else None
        plan = plan if time_stamp is None else replace(plan, time_stamp=time_stamp)
        return cls(plan, manager, scheduler, pairing, time_stamp is not None)

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
        output: Output | None = self.manager.make_first("outputs", OutputSpec)
        if output is None:
            yield
            return
        with output.reserve_time_stamp(self.plan, parts, is_resumed=self.is_resumed) as time_stamp:
            self.plan = replace(self.plan, time_stamp=time_stamp)
            yield

    def run(self) -> Iterator[PairResult]:
        """Make all comparisons, and yield each in the order of the pairs.

        Raises:
            UserError: The plan is not valid, the only comparison cannot be made, or there are no workers.
            KeyboardInterrupt: The user pressed Ctrl-C; the finished comparisons were yielded before.
        """
        from probe_core.flow.comparison import check_plan

        check_plan(self.plan, self.manager)
        numbers = {id(pair): number for number, pair in enumerate(self.pairing.pairs)}
        results: dict[int, PairResult] = {}
        yielded_count = 0
        try:
            for result in self.scheduler.run(self.plan, self.manager, self.pairing.pairs):
                if result.error is not None and not self.has_several_pairs:
                    raise result.error
                results[numbers[id(result.pair)]] = result
                self.finished = [results[number] for number in sorted(results)]
                if self.has_several_pairs and not result.resumed:
                    report_progress("comparing ranks", len(results), len(numbers))
                while yielded_count in results:
                    yielded_count += 1
                    yield results[yielded_count - 1]
        except (KeyboardInterrupt, UserError):
            yield from self.finished[yielded_count:]
            raise
        if self.has_several_pairs and any(result.interrupted for result in self.finished):
            raise KeyboardInterrupt

    def iterate_conclusions(self, stage: AnswerStage) -> Iterator[Conclusion]:
        """Yield the conclusions that are printed at a stage."""
        for name in self.plan.answers if stage is AnswerStage.ASKED else self.manager.names("answers"):
            spec = self.manager.find("answers", name, AnswerSpec)
            if spec.given is stage:
                answerer: Answerer = spec.make()
                with blame_plugin(spec.title, spec.origin):
                    if isinstance(answerer, RevisingAnswerer):
                        self.finished = [*answerer.revise(self._get_results())]
                    for conclusion in answerer.conclude(self._get_results()):
                        self._answer = self._answer or conclusion.answer
                        yield conclusion

    def _get_results(self) -> AllResults:
        return AllResults(self.plan, self.manager, self.pairing, tuple(self.finished), self._answer)
