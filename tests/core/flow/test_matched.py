"""Matched runs: errors, notes and batches of two runs in memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import probe_matching.hooks
import pytest

from probe_core.errors import UserError
from probe_core.flow import matched
from probe_core.flow.matched import MatchedRuns
from probe_core.model.plan import Plan, StackMode
from probe_core.plugins.manager import Manager
from probe_core.testing import ArrayRun, manager_of

PLAN = Plan(Path("target"), Path("golden"), Path("output"), "20260101000000")
ARRAY = np.arange(4, dtype=np.float32)
BARE_MANAGER = Manager([], [])


def create_run(*names: str) -> ArrayRun:
    return ArrayRun({name: ([ARRAY], [ARRAY + 1]) for name in names})


def test_match_names_the_api_that_one_run_calls_more_often() -> None:
    target = create_run("Functional.relu.0.forward", "Functional.relu.1.forward", "Functional.exp.0.forward")
    golden = create_run("Functional.relu.0.forward", "Functional.exp.0.forward")
    runs = MatchedRuns.match(PLAN, BARE_MANAGER, target, golden)
    assert runs.notes == [
        "one run calls 1 API more often, such as Functional.relu.forward (2 against 1 calls); "
        "their rows may be paired incorrectly and do not affect the verdict."
    ]
    (batch,) = runs.iterate_batches()
    assert [batch.op(number).shifted for number in range(3)] == [True, True, False]


def test_match_counts_no_modules() -> None:
    target = create_run("Cell.net.Net.forward.0", "Cell.net.Net.forward.1")
    assert MatchedRuns.match(PLAN, BARE_MANAGER, target, create_run("Cell.net.Net.forward.0")).notes == []


def test_match_recommends_the_matchers_of_plugins() -> None:
    target = create_run("Functional.relu.0.forward", "Functional.relu.1.forward")
    runs = MatchedRuns.match(PLAN, manager_of(matching=probe_matching.hooks), target, create_run(*target.names()[:1]))
    assert runs.notes[0].endswith(
        " Other ways of pairing: -f pairs calls in their order, --match align aligns the calls of both runs, "
        "-dm pairs names by a file."
    )


def test_match_refuses_runs_without_a_pair() -> None:
    target, golden = create_run("Functional.relu.0.forward"), create_run("Functional.relu6.0.forward")
    with pytest.raises(UserError, match="No row of the target has a partner in the golden") as caught:
        MatchedRuns.match(PLAN, BARE_MANAGER, target, golden)
    assert caught.value.choices == (
        "Functional.relu.0.forward  (nearest in the golden: Functional.relu6.0.forward)",
        "the golden begins with Functional.relu6.0.forward",
    )


def test_match_loads_no_stacks_that_the_plan_hides() -> None:
    run = create_run("Functional.relu.0.forward")
    hidden = replace(PLAN, stack=StackMode.HIDE, stack_path=Path("stack.json"))
    assert not MatchedRuns.match(hidden, BARE_MANAGER, run, run).has_stacks
    with pytest.raises(UserError, match="has no file of call stacks"):
        MatchedRuns.match(replace(hidden, stack=StackMode.SHOW), BARE_MANAGER, run, run)


def test_iterate_batches_splits_at_the_limit_of_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    run = create_run(*(f"Functional.relu.{number}.forward" for number in range(6)))
    monkeypatch.setattr(matched, "MAX_BATCH_COST", 4 * (matched.ROW_COST + ARRAY.size))
    runs = MatchedRuns.match(PLAN, BARE_MANAGER, run, run)
    assert [len(batch.ops) for batch in runs.iterate_batches()] == [2, 2, 2]
    assert [len(batch.ops) for batch in runs.iterate_batches(start=1, stop=4)] == [2, 1]
    assert runs.split_ops(3) == [(0, 2), (2, 4), (4, 6)]
