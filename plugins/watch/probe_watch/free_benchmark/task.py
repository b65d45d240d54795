"""The recorder of the task: selects steps, ranks and calls, and passes calls to the benchmark of the framework."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from probe_recording.api import Config, InterceptedCall, TaskRecorder
from probe_recording.capture.interceptors import new_interceptor
from probe_recording.framework import SINGLE, Lock, remove_earlier_steps
from probe_recording.interrupts import defer_interrupts
from probe_recording.messages import note

from probe_core.errors import UserError
from probe_watch.free_benchmark.benchmark import Benchmark
from probe_watch.free_benchmark.outcome import OutputComparison
from probe_watch.free_benchmark.preheat import Preheat
from probe_watch.free_benchmark.settings import BenchmarkSettings, Handler, check_level
from probe_watch.free_benchmark.table import FILE, BenchmarkCounts, BenchmarkTable, InconsistentCall, summarize
from probe_watch.free_benchmark.thresholds import load_thresholds


class FreeBenchmark(TaskRecorder):
    """The recorder of the task ``free_benchmark``.

    Args:
        config: The configuration.
        framework: The name of the framework.

    Raises:
        UserError: The level is not L1, or no plugin intercepts calls of the framework.
    """

    def __init__(self, config: Config, framework: str) -> None:
        super().__init__(config)
        check_level(config)
        self._settings: BenchmarkSettings = config.settings
        thresholds = load_thresholds()
        self._preheat = Preheat(self._settings, thresholds) if self._settings.preheat else None
        self._interceptor = new_interceptor(config, framework)
        self._counts = BenchmarkCounts()
        self._benchmark = _create_benchmark(
            framework, self._settings, thresholds, self._interceptor,
            self._report, self._counts.skip, self._preheat,
        )  # fmt: skip
        self._table: BenchmarkTable | None = None
        self._lock: Lock | None = None
        self._root = config.dump_path
        self._label = SINGLE
        self._running = False
        self._has_step_started = False
        self._has_table_failed = False
        self._process = os.getpid()

    # -- steps ----------------------------------------------------------------

    @defer_interrupts()
    def start(self, model: Any, token_range: tuple[int, int] | None) -> None:
        """Start examining the calls of the current step, if it and the rank are selected."""
        self.activity.add_start()
        if self._running or not self._is_selected() or not self.config.read_enabled():
            return
        self._interceptor.install(self._run_call, model)
        try:
            self._open()
        except BaseException:
            self._interceptor.remove()
            raise
        self._running = self._has_step_started = True
        self._benchmark.is_active = True

    @defer_interrupts()
    def stop(self) -> None:
        """Stop examining calls; ``start`` may be called again in the same step."""
        if self._running:
            self._running = self._benchmark.is_active = False
            try:
                self._benchmark.flush()
            finally:
                self._interceptor.remove()

    @defer_interrupts()
    def step(self) -> None:
        """End the step."""
        self.set_step(self.current_step + 1)

    @defer_interrupts()
    def set_step(self, step: int) -> None:
        """Set the number of the current step."""
        try:
            self._end_step()
        finally:
            self.current_step = step

    def finish(self) -> None:
        """Print a summary of the compared calls, and release the lock of the run."""
        if os.getpid() != self._process:
            return  # a forked child; the run belongs to its parent
        try:
            self._end_step()
        finally:
            lock, self._lock = self._lock, None
            if lock is not None:
                summarize(self._counts, self._settings, self._root)
                lock.release()

    def _end_step(self) -> None:
        try:
            self.stop()
        finally:
            self._interceptor.restart_counts()
            if self._preheat is not None and self._has_step_started:
                self._preheat.end_step()
            self._has_step_started = False
            if self._table is not None:
                self._table.close()
                self._table = None

    # -- selection and files -----------------------------------------------------------------

    def _is_selected(self) -> bool:
        config = self.config
        if config.steps and self.current_step not in config.steps:
            return False
        return self.process.is_selected(config.ranks)

    def _open(self) -> None:
        """Lock the run and remove an earlier one, the first time; choose the directory of the step."""
        if self._lock is None:
            self._label = self.process.label
            self._lock = Lock(self._root, self._label)
            count = self.process.process_count
            for sentence in remove_earlier_steps(self._root, self._label, self.current_step, count):
                note(sentence)
        if self._table is None:
            self._table = BenchmarkTable(self._make_directory())

    def _make_directory(self) -> Path:
        return self._root / f"step{self.current_step}" / self._label

    # -- calls -------------------------------------------------------------------------------

    def _run_call(self, call: InterceptedCall) -> Any:
        if not self._settings.selects(call.name) or os.getpid() != self._process:
            return call.run()
        return self._benchmark.run(call)

    def _report(self, name: str, outcome: OutputComparison) -> None:
        """Write an outcome that is not consistent; a failed write ends the table, not the training."""
        self._counts.add(name, outcome)
        if outcome.consistent or self._settings.handler is Handler.FIX or self._has_table_failed:
            return
        if self._table is None:  # a gradient that arrived after stop and step
            return
        settings = self._settings
        row = InconsistentCall(self.process.rank, settings.mode, settings.stage, self.current_step, name, outcome)
        try:
            self._table.add(row)
        except (OSError, UserError) as error:
            self._has_table_failed = True
            note(f"probe: {self._make_directory() / FILE} cannot be written, so later rows are lost: {error}")


def _create_benchmark(framework: str, *arguments: Any) -> Benchmark:
    """Return the benchmark of a framework, which is imported here: the other framework need not be installed."""
    if framework == "pytorch":
        from probe_watch.free_benchmark.pytorch import TorchBenchmark

        return TorchBenchmark(*arguments)
    if framework == "mindspore":
        from probe_watch.free_benchmark.mindspore import MindSporeBenchmark

        return MindSporeBenchmark(*arguments)
    raise UserError(
        f'The task "free_benchmark" is not available for {framework}.',
        "Run the program with PyTorch, or choose another task.",
    )
