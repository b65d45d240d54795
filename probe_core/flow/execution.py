"""Comparison of all ranks and steps of two runs by the scheduler of a plugin."""

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
from probe_core.plugins.protocols import AllResults, PairResult
from probe_core.plugins.specs import AnswerSpec, OutputSpec, SchedulerSpec
from probe_core.progress import report_progress
from probe_core.store.layout import Pairing

if TYPE_CHECKING:
    from probe_core.plugins.protocols import Answerer, Conclusion, Output, Scheduler


@dataclass
class PlanExecution:
    """All comparisons of a plan.

    Attributes:
        plan: The plan, with the time stamp of the comparison that it resumes, if any.
        pairing: The pairs of record files, and the ranks and steps without partners.
        finished: The comparisons that ended so far, in the order of the pairs.
    """

    plan: Plan
    manager: Manager
    pairing: Pairing = field(init=False)
    finished: list[PairResult] = field(default_factory=list)
    _scheduler: Scheduler = field(init=False)
    _resumes: bool = False
    _answer: Answer | None = None

    def __post_init__(self) -> None:
        plan = self.plan
        scheduler: Scheduler | None = self.manager.make_first("schedulers", SchedulerSpec)
        if scheduler is None:
            raise self.manager.create_missing_error("schedulers", "workers")
        self._scheduler = scheduler
        self.pairing = self._scheduler.pair_runs(plan, self.manager.record_files())
        time_stamp = self._scheduler.find_interrupted(plan) if self.has_several_pairs else None
        if time_stamp is not None:
            self.plan = replace(plan, time_stamp=time_stamp)
            self._resumes = True

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
        with output.reserve_time_stamp(self.plan, parts, is_resumed=self._resumes) as time_stamp:
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
        yielded_count = 0
        try:
            for result in self._scheduler.run(self.plan, self.manager, self.pairing.pairs):
                self._add_result(result)
                pairs = self.pairing.pairs
                while yielded_count < len(self.finished) and self.finished[yielded_count].pair is pairs[yielded_count]:
                    yielded_count += 1
                    yield self.finished[yielded_count - 1]
        except (KeyboardInterrupt, UserError):
            yield from self.finished[yielded_count:]
            raise
        if self.has_several_pairs and any(result.interrupted for result in self.finished):
            raise KeyboardInterrupt

    def _add_result(self, result: PairResult) -> None:
        if result.error is not None and not self.has_several_pairs:
            raise result.error
        order = {id(pair): number for number, pair in enumerate(self.pairing.pairs)}
        self.finished = sorted([*self.finished, result], key=lambda candidate: order[id(candidate.pair)])
        if self.has_several_pairs and not result.resumed:
            report_progress("comparing ranks", len(self.finished), len(self.pairing.pairs))

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

    def _get_compared(self) -> AllResults:
        return AllResults(self.plan, self.manager, self.pairing, tuple(self.finished), self._answer)
