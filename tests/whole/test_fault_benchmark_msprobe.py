"""The score of msprobe in the benchmark of known faults, on results as msprobe 26.2 writes them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

from faults.cases import Case, Cause, Line
from faults.msprobe_result import Step, analysed, marked
from faults.msprobe_score import (
    ANALYSIS,
    ERRORS,
    MARKS,
    TOOLS,
    MsprobeScore,
    Named,
    compare,
    msprobe_scores,
    msprobe_totals,
    named,
    report_msprobe,
    score_msprobes,
    scored,
)
from faults.record import TASKS

LINEAR, MUL, NORM = "Functional.linear.0.forward", "Tensor.__mul__.1.forward", "Module.m.norm.Norm.forward.0"
BLOCK = "Module.m.Block.forward.0"
STACK = [
    "File /env/site-packages/torch/nn/modules/linear.py, line 134, in forward, \n return F.linear(input)",
    "File /env/site-packages/msprobe/pytorch/hook.py, line 1, in hook, \n return run()",
    "File /model/net.py, line 7, in turned, \n x = self.key(x)",
]
ROWS = [
    (f"{LINEAR}.input.0", "pass", "[]", str(STACK)),
    (f"{LINEAR}.output.0", "warning", '["warning: the norm"]', "N/A"),
    (f"{MUL}.input.0", "pass", "[]", "N/A"),
    (f"{MUL}.input.1", "error", '["error: the scalar"]', "N/A"),
    (f"{MUL}.output.0", "error", '["error: the ratio"]', "N/A"),
    (f"{NORM}.parameters.weight", "error", '["error: the dtype"]', "N/A"),
]
FAULT = Case("fault", "", lambda wrong: None, (Line(op="__mul__", place=r"m\.Block"),))  # type: ignore[arg-type, return-value]
CONTROL = Case("control", "", FAULT.build)


@pytest.fixture
def step(tmp_path: Path) -> Step:
    """The second step of a run of three calls."""
    run = tmp_path / "target" / "step1" / "rank0"
    written(run, [LINEAR, MUL, NORM])
    return Step(run, 1)


def written(run: Path, calls: list[str]) -> None:
    """A recorded step."""
    run.mkdir(parents=True)
    (run / "dump.json").write_text(json.dumps({"data": {call: {"input_args": [float("nan")]} for call in calls}}))
    parents = {LINEAR: BLOCK, MUL: NORM, NORM: BLOCK, BLOCK: None}
    (run / "construct.json").write_text(json.dumps(parents))


def table(path: Path, rows: list[tuple[str, str, str, str]]) -> Path:
    """A table of msprobe compare."""
    with path.open("w", newline="") as lines:
        writer = csv.writer(lines)
        writer.writerow(["NPU Name", "Bench Name", "Cosine", "Result", "Err_message", "NPU_Stack_Info"])
        writer.writerows([name, name, "0.05", *rest] for name, *rest in rows)
    return path


def nodes(path: Path, *calls: str) -> Path:
    """A file of -da."""
    found = [
        {"op_name": call, "data_info": {"input": {f"{call}.input.0": {}}, "output": {}}, "stack_info": STACK}
        for call in calls
    ]
    path.write_text(json.dumps({"rank_0": found}))
    return path


def test_marked_rows_name_their_calls_in_the_order_of_the_table(tmp_path: Path, step: Step) -> None:
    errors = marked(table(tmp_path / "t.csv", ROWS), step, {"error"})
    assert [one.op for one in errors] == [MUL, NORM]
    assert errors[0].row == f"{MUL}.input.1 {MUL}.input.0 {MUL}.output.0"
    assert errors[0].statement == '["error: the scalar"]' and errors[0].step == 1
    assert errors[0].modules == (NORM, BLOCK)
    both = marked(tmp_path / "t.csv", step, {"error", "warning"})
    assert [one.op for one in both] == [LINEAR, MUL, NORM]
    assert both[0].where == "File /model/net.py, line 7, in turned, x = self.key(x)" and not both[1].where


def test_nodes_of_the_analysis(tmp_path: Path, step: Step) -> None:
    first, second = analysed(nodes(tmp_path / "d.json", MUL, LINEAR), step)
    assert (first.op, first.row, first.modules) == (MUL, f"{MUL}.input.0", (NORM, BLOCK))
    assert second.where.startswith("File /model/net.py")


def test_the_first_that_is_named_is_scored(tmp_path: Path, step: Step) -> None:
    path = table(tmp_path / "t.csv", ROWS)
    in_first_step = Line(op="__mul__", step=0)
    fault = Case("fault", "", FAULT.build, (Line(op="__mul__", place=r"m\.Block", step=1), in_first_step))

    def word(case: Case, results: set[str], failed: str = "") -> str:
        found = Named([] if failed else marked(path, step, results), failed)
        return scored(case, "tensor", ERRORS, found).word

    assert word(fault, {"error"}) == "right"
    assert word(fault, {"error", "warning"}) == "rank 2"
    assert word(FAULT, {"error"}) == "WRONG", "of another step"
    assert word(fault, {"none"}) == "SILENT"
    assert word(CONTROL, {"none"}) == "agree"
    assert word(CONTROL, {"error"}) == "ALARM"
    assert word(CONTROL, {"error"}, "killed") == word(fault, {"error"}, "killed") == "failed"


def test_totals_count_failures_apart() -> None:
    def one(case: Case, ops: str = "", failed: str = "") -> MsprobeScore:
        causes = [Cause(op, op, "") for op in ops.split()]
        return scored(case, "tensor", ERRORS, Named(causes, failed))

    fault = Case("fault", "", FAULT.build, (Line(op="b"),))
    scores = [
        one(fault, "b a"),
        one(fault, "a b"),
        one(fault, "a"),
        one(fault),
        one(fault, failed="x"),
        one(CONTROL),
        one(CONTROL, "a"),
        one(CONTROL, failed="x"),
    ]
    assert msprobe_totals(scores) == (
        "right 1 of 5, within three 2, silent 1, alarms 1 of 3 controls, false reasons -, failed 2"
    )


class Commands:
    """A stand-in for msprobe's process, whose commands write what they find in a step."""

    def __init__(self, rows: dict[int, list[Any]], found: dict[int, list[str]], error: str = "") -> None:
        self.rows, self.found, self.error = rows, found, error
        self.done: list[str] = []

    def do(self, log: Path, command: list[str]) -> str:
        """Write the files of a command."""
        output = Path(command[command.index("-o") + 1])
        number = int(command[2][-1])
        assert output.is_dir() and command[4].endswith(f"golden/step{number}")
        self.done.append(output.name)
        log.write_text(f"[INFO] began\n[ERROR] {self.error or 'no table'}\n\n")
        if "-da" in command:
            (output / "compare_result_rank0_20261123000000.json").write_text("{}")
            if number in self.found:
                nodes(output / "diff_analyze_1.json", *self.found[number])
        elif number in self.rows:
            table(output / "compare_result_rank0_20261123000000.csv", self.rows[number])
        return self.error


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two steps of a target, recorded in both ways."""
    for task in TASKS:
        for number in (0, 1):
            written(tmp_path / task / "target" / f"step{number}" / "rank0", [LINEAR, MUL])
    return tmp_path


def test_steps_are_compared_until_one_names_something(runs: Path) -> None:
    commands = Commands({0: ROWS[:2], 1: ROWS[:5]}, {0: [LINEAR]})
    found = named(commands, runs / "tensor")  # type: ignore[arg-type]
    assert commands.done == ["output0", "output0-da", "output1"]
    assert {tool: [(one.op, one.step) for one in found[tool].causes] for tool in TOOLS} == {
        ERRORS: [(MUL, 1)],
        MARKS: [(LINEAR, 0)],
        ANALYSIS: [(LINEAR, 0)],
    }
    assert found[ERRORS].seconds > found[MARKS].seconds > 0


def test_failures_are_told_by_their_last_line(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    without_table = msprobe_scores(Commands({}, {}), FAULT, runs)  # type: ignore[arg-type]
    assert [(one.tool, one.word, one.failed) for one in without_table[: len(TOOLS)]] == [
        (ERRORS, "failed", "[ERROR] no table"),
        (MARKS, "failed", "[ERROR] no table"),
        (ANALYSIS, "SILENT", ""),
    ]
    killed = Commands({}, {}, "took more than 600 seconds")
    assert compare(killed, runs / "tensor", 0, runs / "out") == "took more than 600 seconds"  # type: ignore[arg-type]
    not_recorded = msprobe_scores(killed, CONTROL, runs, "recording tensor, target: OSError")  # type: ignore[arg-type]
    assert {one.word for one in not_recorded} == {"failed"} and len(not_recorded) == len(TASKS) * len(TOOLS)
    report_msprobe("26.2.0", [*without_table, *not_recorded])
    printed = capsys.readouterr().out
    assert "fault tensor compare: [ERROR] no table" in printed
    totals = "right 0 of 1, within three 0, silent 1, alarms 0 of 1 controls, false reasons -, failed 1"
    assert f"compare -da            statistics  {totals}" in printed


def test_without_msprobe_one_line_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert score_msprobes({}, [FAULT], tmp_path) == {}
    assert capsys.readouterr().out == "msprobe: not installed (set MSPROBES)\n"
    assert score_msprobes({"8.3.3": "msprobe"}, [FAULT], tmp_path) == {"8.3.3": []}
    assert "msprobe 8.3.3: not scored" in capsys.readouterr().out
