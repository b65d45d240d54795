"""Two and four processes, recorded live: runs that agree name nothing, and a fault is named where it was made."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.programs import parallel_training
from support.programs.parallel_training import FAULTS, TASKS
from support.runs.answer_files import read_answer

GOLDEN, AGAIN = "golden", "again"
FAULTY = {2: 1, 4: 2}
"""The rank that is at fault, by how many there are."""

OVERWRITTEN = "Distributed.broadcast.0.forward"
"""A broadcast overwrites what its receivers hold; they record what happened to lie there before."""

Recorded = Callable[[int, str, str], Path]
OFTEN = {(2, "statistics"), (2, "md5"), (4, "tensor")}
"""The numbers of ranks and tasks that are always tried: each number, and each task, at least once."""
by_world_and_task = pytest.mark.parametrize(
    "world, task",
    [
        pytest.param(*case, marks=[] if case in OFTEN else pytest.mark.slow, id=f"{case[0]}-ranks-{case[1]}")
        for case in itertools.product(FAULTY, TASKS)
    ],
)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """``recorded(2, "scale", "tensor")``: the first step of that run.

    The same processes record all runs of a task, but for ``AGAIN``, of which others record the same.
    """

    @cache
    def launched(world: int, task: str, *names: str) -> Path:
        out = tmp_path_factory.mktemp("live") / "runs"
        return parallel_training.launch(out, world, names, [task], rank=FAULTY[world])

    def find(world: int, name: str, task: str) -> Path:
        names = [AGAIN] if name == AGAIN else [GOLDEN, *FAULTS]
        return launched(world, task, *names) / name / task / "step0"

    return find


def named(probe: Any, target: Path, golden: Path, out: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the nodes that ``-da`` names, by rank."""
    world = len(list(golden.iterdir()))
    assert probe("compare", target, golden, "-o", out, "-da") == 0, probe.err
    results = [list(out.glob(f"compare_result_rank{rank}_*.json")) for rank in range(world)]
    assert [len(paths) for paths in results] == [1] * world
    found = list(out.glob("diff_analyze_*.json"))
    assert len(found) <= 1
    return json.loads(found[0].read_text("utf-8")) if found else {}


def records(run: Path, rank: int) -> dict[str, Any]:
    """The records of a rank, in the order in which they were made."""
    data: dict[str, Any] = json.loads((run / f"rank{rank}" / "dump.json").read_text("utf-8"))["data"]
    return data


def differing(target: dict[str, Any], golden: dict[str, Any]) -> list[str]:
    """The records that are not the same, to the last digit of every statistic."""
    assert list(target) == list(golden)
    return [name for name, record in target.items() if record != golden[name]]


def is_right(row: dict[str, Any]) -> bool:
    """Return True if a row has both sides and nothing is wrong with it, in any of the three kinds of table."""
    both = "N/A" not in (row["NPU Name"], row["Bench Name"])
    verdict = row["Accuracy Reached or Not"] if "Accuracy Reached or Not" in row else row["Result"]
    return both and verdict in ("Yes", "None", "", "Pass")


@by_world_and_task
def test_runs_that_agree_name_nothing(world: int, task: str, recorded: Recorded, probe: Any, tmp_path: Path) -> None:
    target, golden = recorded(world, AGAIN, task), recorded(world, GOLDEN, task)
    assert named(probe, target, golden, tmp_path / "out") == {}


@pytest.mark.usefixtures("processes")
@by_world_and_task
def test_runs_that_agree_agree_row_by_row(
    world: int, task: str, recorded: Recorded, probe: Any, tmp_path: Path
) -> None:
    target, golden = recorded(world, AGAIN, task), recorded(world, GOLDEN, task)
    assert probe("compare", target, golden, "-o", tmp_path, "--format", "jsonl") == 0, probe.err
    wrong = {}
    for rank in range(world):
        (path,) = tmp_path.glob(f"compare_result_rank{rank}_*.jsonl")
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        assert len(rows) > 300
        wrong[rank] = [row["NPU Name"] for row in rows if not is_right(row)]
    assert set().union(*wrong.values()) <= {f"{OVERWRITTEN}.input.0"}
    assert probe.out.count("  table: 0 fail, 0 to check,") == world
    answer = read_answer(tmp_path)
    (step,) = answer["steps"]
    verdicts = [(rank["rank"], rank["verdict"], rank["causes"]) for rank in step["ranks"]]
    assert verdicts == [(rank, "AGREE", []) for rank in range(world)]
    assert (answer["verdict"], answer["causes"]) == ("AGREE", [])
    compared = answer["coverage"]["compared"]
    assert compared == sum(rank["coverage"]["compared"] for rank in step["ranks"]) > 300 * world
    agree = "within rounding" if task == "statistics" else "equal"
    assert probe.out.startswith(f"AGREE: {agree} in all {compared:,} values that both runs recorded")
    assert f" ({world} of {world} comparisons agree)\n" in probe.out
    assert len(list(tmp_path.glob("compare_result_rank*.jsonl"))) == world


@by_world_and_task
def test_runs_that_agree_are_recorded_alike(world: int, task: str, recorded: Recorded) -> None:
    target, golden = recorded(world, AGAIN, task), recorded(world, GOLDEN, task)
    for rank in range(world):
        found = differing(records(target, rank), records(golden, rank))
        assert set(found) <= {OVERWRITTEN}
        if OVERWRITTEN in found:
            assert records(target, rank)[OVERWRITTEN]["output"] == records(golden, rank)[OVERWRITTEN]["output"]


@pytest.mark.parametrize("fault", FAULTS)
@by_world_and_task
def test_a_fault_begins_where_it_is_said_to(world: int, fault: str, task: str, recorded: Recorded) -> None:
    """On its rank in that record; other ranks have it from a collective, or not at all."""
    target, golden = recorded(world, fault, task), recorded(world, GOLDEN, task)
    for rank in range(world):
        given = [
            {name: {**record, "input_args": None} for name, record in records(run, rank).items()}
            for run in (target, golden)
        ]
        found = differing(*given)
        if rank == FAULTY[world]:
            assert found[0] == FAULTS[fault]
        else:
            assert all(name.startswith("Distributed.") for name in found[:1])


@pytest.mark.parametrize("fault", FAULTS)
@by_world_and_task
def test_a_fault_is_named(world: int, fault: str, task: str, recorded: Recorded, probe: Any, tmp_path: Path) -> None:
    target, golden = recorded(world, fault, task), recorded(world, GOLDEN, task)
    found = named(probe, target, golden, tmp_path / "out")
    first = {rank: nodes[0]["op_name"] for rank, nodes in found.items()}
    assert first == {f"rank_{FAULTY[world]}": FAULTS[fault]}
    node = found[f"rank_{FAULTY[world]}"][0]
    assert {"op_name", "data_info", "stack_info"} <= set(node)
    assert node["data_info"]["output"]
