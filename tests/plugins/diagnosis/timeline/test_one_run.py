"""The timeline of one run, in which wanted values take the place of values that differ."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from probe_diagnosis.api import Timeline
from probe_diagnosis.difference.reasons import CauseKind
from probe_diagnosis.difference.search import search_timelines
from support.runs.nan_dumps import write_case

from probe_core.flow.opening import open_run
from probe_core.model.run import Run
from probe_core.plugins.manager import Manager

MODULE = "Module.Net.forward.0"
CASE = {
    "modules": {"Torch.log.0.forward": MODULE},
    "ranks": {
        0: ["Module.Net.forward.0: f -> f", "Torch.log.0.forward: f s:2 -> [f f] None",
            "Distributed.all_reduce.0.forward: f group=g:0,1 -> f"],
        1: ["Torch.mul.0.forward: f -> f", "Distributed.all_reduce.0.forward: f group=g:0,1 -> f"],
    },
}  # fmt: skip


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[dict[int, Run]]:
    step = write_case(CASE, tmp_path / "step0")
    opened = {rank: open_run(Manager(), step / f"rank{rank}" / "dump.json") for rank in (0, 1)}
    yield opened
    for run in opened.values():
        run.close()


def timeline(run: Run, rank: int, wanted: set[str], unknown: set[str] = frozenset()) -> Timeline:  # type: ignore[assignment]
    names = [slot.name for record in run.records() for slot in record.slots]
    columns = (np.array([name in chosen for name in names], bool) for chosen in (wanted, unknown))
    return Timeline.from_run(run, rank, *columns, step="step0")


def test_calls_are_in_the_order_of_their_effects(runs: dict[int, Run]) -> None:
    found = timeline(runs[0], 0, set())
    assert [call.op for call in found.calls()] == [
        "Torch.log.0.forward", MODULE, "Distributed.all_reduce.0.forward",
    ]  # fmt: skip
    assert (found.rank, found.step, found.get_position(MODULE)) == (0, "step0", 1)


def test_values_have_names_sides_and_states(runs: dict[int, Run]) -> None:
    wanted, unknown = "Torch.log.0.forward.output.0.1", "Torch.log.0.forward.input.0"
    call = next(iter(timeline(runs[0], 0, {wanted}, {unknown}).calls("log")))
    states = {value.row: (value.state, value.is_scalar, value.side.value) for value in call.values}
    assert states == {
        unknown: ("unjudged", False, "input"),
        "Torch.log.0.forward.input.1": ("same", True, "input"),
        "Torch.log.0.forward.output.0.0": ("same", False, "output"),
        wanted: ("differs", False, "output"),
        "Torch.log.0.forward.output.1": ("unjudged", True, "output"),
    }
    assert call.modules == (MODULE,)


def test_values_of_both_sides_are_those_of_the_run(runs: dict[int, Run]) -> None:
    found = timeline(runs[1], 1, set())
    call = next(found.calls())
    values = found.values(call, call.values[0])
    assert values[0] is not None and values[0] == values[1]


def test_search_follows_a_wanted_value_over_ranks(runs: dict[int, Run]) -> None:
    reduced = "Distributed.all_reduce.0.forward"
    wanted = [
        {f"{reduced}.output.0"},
        {"Torch.mul.0.forward.output.0", f"{reduced}.input.0", f"{reduced}.output.0"},
    ]
    searched = search_timelines(timeline(runs[rank], rank, wanted[rank]) for rank in (0, 1))
    assert [(node.rank, node.call.op) for node in searched.first] == [(1, "Torch.mul.0.forward")]
    assert searched.senders == {(0, reduced): (1,)}


def test_search_tells_delivered_from_received_values(runs: dict[int, Run]) -> None:
    reduced = "Distributed.all_reduce.0.forward"
    delivered = search_timelines([timeline(runs[rank], rank, {f"{reduced}.output.0"}) for rank in (0, 1)])
    assert [node.reason.cause for node in delivered.first] == [CauseKind.DELIVERED, CauseKind.DELIVERED]
    received = search_timelines([timeline(runs[1], 1, {"Torch.mul.0.forward.input.0"})])
    assert [node.reason.cause for node in received.first] == [CauseKind.RECEIVED]


def test_wanted_value_within_a_module_that_returns_others_is_not_withdrawn(runs: dict[int, Run]) -> None:
    searched = search_timelines([timeline(runs[0], 0, {"Torch.log.0.forward.output.0.0"})])
    assert [node.call.op for node in searched.first] == ["Torch.log.0.forward"]


def test_run_without_wanted_values_has_no_finding(runs: dict[int, Run]) -> None:
    searched = search_timelines([timeline(runs[rank], rank, set()) for rank in (0, 1)])
    assert not searched.first and not searched.further and not searched.grown
