"""The choice of the calls that keep their tensors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from probe_recording.diff_check.call_judge import MAX_UNPAIRED_CALLS, CallJudge
from probe_recording.diff_check.golden_run import read_golden_run

Record = tuple[str, float, "str | None"]
BLOCK = "Module.block.Block.forward.0"


def fields(value: float) -> dict[str, object]:
    leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": value, "Min": 0.0, "Mean": value / 2}
    return {"input_args": [], "input_kwargs": {}, "output": [{**leaf, "Norm": value, "requires_grad": False}]}


def write_golden(root: Path, records: Sequence[Record], step: int = 0) -> None:
    directory = root / f"step{step}" / "rank"
    directory.mkdir(parents=True)
    head = {"task": "statistics", "level": "mix", "framework": "pytorch"}
    data = {key: fields(value) for key, value, _ in records}
    (directory / "dump.json").write_text(json.dumps({**head, "data": data}))
    (directory / "construct.json").write_text(json.dumps({key: parent for key, _, parent in records}))


def judge_run(judge: CallJudge, records: Sequence[Record], step: int = 0) -> list[str]:
    """Judge the calls of a step; check that each is decided once, and return those that are kept."""
    judge.begin_step(step, 0)
    decisions = []
    for key, value, parent in records:
        decisions += judge.take(key, json.dumps(fields(value)), parent)
    decisions += judge.end_step()
    assert sorted(decision.key for decision in decisions) == sorted(key for key, _, _ in records)
    return [decision.key for decision in decisions if decision.is_kept]


def api(name: str, number: int, value: float, parent: str | None = None, phase: str = "forward") -> Record:
    return f"Torch.{name}.{number}.{phase}", value, parent


GOLDEN = [
    api("mul", 0, 1.0), api("add", 0, 2.0), api("exp", 0, 3.0, BLOCK), api("add", 1, 4.0, BLOCK), (BLOCK, 4.0, None),
    api("sum", 0, 5.0), api("sum", 0, 6.0, None, "backward"), api("add", 1, 7.0, None, "backward"),
    ("Module.block.Block.parameters_grad", 8.0, None),
]  # fmt: skip


@pytest.fixture
def judge(tmp_path: Path) -> CallJudge:
    write_golden(tmp_path, GOLDEN)
    return CallJudge(read_golden_run(tmp_path), 3)


def replace_value(records: Sequence[Record], key: str, value: float) -> list[Record]:
    return [(name, value if name == key else old, parent) for name, old, parent in records]


def test_take_keeps_nothing_of_equal_runs(judge: CallJudge) -> None:
    assert judge_run(judge, GOLDEN) == judge.stored_calls == []
    assert (judge.compared_count, judge.unpaired_count) == (len(GOLDEN), 0)


@pytest.mark.parametrize("key", [key for key, _, _ in GOLDEN])
def test_take_keeps_the_call_that_differs(judge: CallJudge, key: str) -> None:
    assert judge_run(judge, replace_value(GOLDEN, key, 9.0)) == [key]
    assert [call.golden_key for call in judge.stored_calls] == [key]


def test_take_keeps_the_first_calls_in_the_order_of_time(judge: CallJudge) -> None:
    run = [(key, value + 1.0, parent) for key, value, parent in GOLDEN]
    assert judge_run(judge, run) == [key for key, _, _ in GOLDEN[:3]]
    assert judge.is_finished


def test_take_keeps_a_call_before_those_inside_a_later_module(judge: CallJudge) -> None:
    run = [GOLDEN[0], *((key, value + 1.0, parent) for key, value, parent in GOLDEN[1:])]
    assert judge_run(judge, run) == [key for key, _, _ in GOLDEN[1:4]]


@pytest.mark.parametrize("place", range(7))
def test_take_keeps_nothing_of_an_inserted_call(judge: CallJudge, place: int) -> None:
    run = [*GOLDEN]
    run.insert(place, api("add", 9, 99.0, BLOCK if place in (3, 4) else None))
    renamed = {"Torch.add.1.forward": "Torch.add.7.forward", "Torch.add.1.backward": "Torch.add.7.backward"}
    assert judge_run(judge, [(renamed.get(key, key), value, parent) for key, value, parent in run]) == []
    assert (judge.compared_count, judge.unpaired_count) == (len(GOLDEN), 1)


def test_take_finds_the_backward_of_a_call_with_another_number(judge: CallJudge) -> None:
    renamed = {"Torch.add.1.forward": "Torch.add.7.forward", "Torch.add.1.backward": "Torch.add.7.backward"}
    run = [(renamed.get(key, key), value, parent) for key, value, parent in GOLDEN]
    assert judge_run(judge, replace_value(run, "Torch.add.7.backward", 9.0)) == ["Torch.add.7.backward"]
    assert judge.stored_calls[0].golden_key == "Torch.add.1.backward"


def test_take_keeps_an_inserted_call_that_a_difference_follows(judge: CallJudge) -> None:
    run = [GOLDEN[0], api("sqrt", 0, 9.0), *((key, value + 1.0, parent) for key, value, parent in GOLDEN[1:])]
    assert judge_run(judge, run) == ["Torch.sqrt.0.forward", *(key for key, _, _ in GOLDEN[1:4])]
    assert judge.stored_calls[0].golden_key is None and judge.differing_count == 3


def test_take_keeps_few_inserted_calls(judge: CallJudge) -> None:
    inserted = [api("sqrt", number, 9.0) for number in range(50)]
    run = [GOLDEN[0], *inserted, *((key, value + 1.0, parent) for key, value, parent in GOLDEN[1:])]
    assert len(judge_run(judge, run)) == MAX_UNPAIRED_CALLS + 3


def test_take_compares_modules_that_the_golden_lacks_with_nothing(judge: CallJudge) -> None:
    other = "Module.other.Other.forward.0"
    run = [GOLDEN[0], api("tanh", 0, 9.0, other), (other, 9.0, None), *GOLDEN[1:]]
    assert judge_run(judge, run) == [] and judge.unpaired_count == 2


def test_take_without_the_names_of_modules(tmp_path: Path) -> None:
    write_golden(tmp_path, GOLDEN)
    (tmp_path / "step0" / "rank" / "construct.json").unlink()
    judge = CallJudge(read_golden_run(tmp_path), 3)
    run = [GOLDEN[0], api("add", 9, 99.0), *GOLDEN[1:]]
    assert judge_run(judge, run) == [] and judge.compared_count == len(GOLDEN)


def test_begin_step_of_several_steps(tmp_path: Path) -> None:
    for step in (0, 2):
        write_golden(tmp_path, GOLDEN, step)
    judge = CallJudge(read_golden_run(tmp_path), 2)
    changed = replace_value(GOLDEN, "Torch.add.0.forward", 9.0)
    assert judge_run(judge, changed, 0) == judge_run(judge, changed, 2) == ["Torch.add.0.forward"]
    assert judge_run(judge, changed, 1) == judge_run(judge, changed, 2) == []
    assert [(call.step, call.key) for call in judge.stored_calls] == [
        (0, "Torch.add.0.forward"),
        (2, "Torch.add.0.forward"),
    ]


def test_begin_step_notes_steps_that_the_golden_lacks(judge: CallJudge) -> None:
    assert judge_run(judge, GOLDEN, 5) == [] and judge.missing_steps == [5] and judge.compared_count == 0
