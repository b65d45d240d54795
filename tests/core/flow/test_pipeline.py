"""The comparison of one pair of record files, from the measured batches to the report and the files."""

from __future__ import annotations

import types
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import probe_metrics.hooks
import probe_pytorch.hooks
import probe_reporters.hooks
import pytest
from support.runs.recorded import forward, tensor, write_run

from probe_core.flow.comparison import RunComparison
from probe_core.flow.pipeline import compare_pair
from probe_core.model.batches import RowBatch
from probe_core.model.plan import Plan
from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.manager import Manager
from probe_core.plugins.specs import FinderSpec
from probe_core.store.layout import RunPair
from probe_core.testing import manager_of

CALLS = {f"Torch.exp.{number}.forward": forward(tensor(), output=[tensor()]) for number in range(3)}
NUMBERS = count()


class RecordingFinder:
    """A finder that remembers what it receives, and whose answer fails if requested."""

    def __init__(self, error: Exception | None = None) -> None:
        self.found: list[Any] = []
        self.first_failure = None
        self.error, self.lines = error, list[str]()

    def add_batch(self, batch: RowBatch, lines: Any) -> None:
        self.lines += [lines.line(lines.first + line) for line in range(len(batch))]

    def answer(self, draft: Any, opened: Any, pair: RunPair, compare: Any) -> None:
        if self.error is not None:
            raise self.error


def create_manager(finder: RecordingFinder | None = None) -> Manager:
    hooks = {"metrics": probe_metrics.hooks, "pytorch": probe_pytorch.hooks, "reporters": probe_reporters.hooks}
    if finder is not None:
        module: Any = types.ModuleType(f"pipeline_hooks_{next(NUMBERS)}")

        def probe_finders() -> list[FinderSpec]:
            return [FinderSpec("mine", "a finder", lambda: finder)]

        module.probe_finders = hookimpl(probe_finders)
        hooks["mine"] = module
    return manager_of(**hooks)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    target, golden = (write_run(tmp_path / side, CALLS) for side in ("target", "golden"))
    return Plan(target, golden, tmp_path / "out", "20260101000000", formats=("csv",), advise=False)


def test_a_comparison_without_a_finder_reports_rows_and_no_verdict(plan: Plan) -> None:
    report = compare_pair(plan, create_manager(), RunPair(plan.target, plan.golden)).report
    assert report is not None and report.answer is None and not report.interrupted
    assert (report.row_count, report.counts.rows, report.op_count) == (6, 6, 3)
    assert report.notes[-1].startswith('there is no verdict. The finder "suspects" comes with probe-diagnosis')
    assert [path.name for path in report.files] == ["compare_result_20260101000000.csv"]


def test_a_finder_receives_the_lines_of_all_rows(plan: Plan) -> None:
    finder = RecordingFinder()
    result = compare_pair(plan, create_manager(finder), RunPair(plan.target, plan.golden))
    assert result.finder is finder and len(set(finder.lines)) == 6 and all(finder.lines)


def test_an_answer_that_fails_is_a_problem_and_the_table_is_written(plan: Plan) -> None:
    report = compare_pair(
        plan, create_manager(RecordingFinder(ValueError("no idea"))), RunPair(plan.target, plan.golden)
    ).report
    assert report is not None and report.files[0].is_file() and not report.is_judged
    assert report.problems[0].startswith('The finder "mine" of mine failed: ValueError: no idea. There is no verdict.')


def test_an_interrupted_comparison_keeps_the_rows_so_far(plan: Plan) -> None:
    def interrupt(comparison: RunComparison) -> Iterator[RowBatch]:
        yield next(comparison.batches(stop=1))
        raise KeyboardInterrupt

    report = compare_pair(plan, create_manager(), RunPair(plan.target, plan.golden), interrupt).report
    assert report is not None and report.interrupted and report.counts.rows == 2
    assert [path.stem.rpartition("_")[2] for path in report.files] == ["interrupted"]


def test_an_error_discards_the_files(plan: Plan) -> None:
    def fail(comparison: RunComparison) -> Iterator[RowBatch]:
        yield next(comparison.batches(stop=1))
        raise MemoryError

    with pytest.raises(MemoryError):
        compare_pair(plan, create_manager(), RunPair(plan.target, plan.golden), fail)
    assert [*plan.output.iterdir()] == []
