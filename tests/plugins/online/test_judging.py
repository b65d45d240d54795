"""Judgement of sent calls: the rows are those of run_ut and api_precision_compare, cell for cell."""

from __future__ import annotations

import gc
import os
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_online.judging import (
    DAY_SECONDS,
    JudgeSetup,
    RemovalCounts,
    SenderPlace,
    SentRows,
    create_tables,
    find_senders_with_calls,
    remove_aged,
    run_sent_call,
)
from probe_precheck.api import Call, CsvColumn, RunnerOptions
from probe_precheck.assignment import Assignment
from probe_precheck.calls import RecordedCalls, require_arguments
from probe_precheck.comparison import compare_details, write_comparison
from probe_precheck.csvfile import format_cell_text, order_cells, read_table
from probe_precheck.results import CheckFiles
from probe_precheck.settings import PRECISION, Settings
from probe_precheck.tables import COMPARE_DETAILS, COMPARE_RESULT, DETAILS, RESULT
from probe_pytorch.precheck.runner import PyTorchRunner
from support.runs.recording import recording
from support.runs.sent import call_frames, payload
from torch.nn import functional as F

from probe_core.flow.opening import open_run
from probe_core.plugins.manager import Manager

MANAGER = Manager()
SETUP = JudgeSetup("pytorch", RunnerOptions(Path("none/dump.json"), "cpu"), ("cpu",), "guide")
WRONG: dict[str, Callable[..., Any]] = {
    "softmax": lambda x, dim: torch.softmax(x, dim) * 1.3,  # benchmark ratio
    "matmul": lambda x, y: torch.matmul(x, y) + 0.05,
    "relu": lambda x: torch.where(x > 0, x, 0.1 * x),  # binary consistency
    "mul": lambda x, y: torch.mul(x, y) + 0.01,  # absolute threshold
}


def net(wrong: Mapping[str, Callable[..., Any]]) -> None:
    """Run calls of all kinds of standards; those in ``wrong`` leave a false output in the record."""
    torch.manual_seed(1)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        x = torch.randn(6, 8).to(dtype)
        y = F.softmax(torch.matmul(x, torch.randn(8, 5).to(dtype)), dim=-1)
        y = F.relu(torch.mul(y, y) - 0.1)
        torch.topk(F.layer_norm(y, (5,)), 2)
        y[0] = 1.0
        torch.add(y, 1).sum()
    F.embedding(torch.tensor([1, 2]), torch.randn(4, 3))
    torch.cat([torch.arange(3), torch.arange(2)])


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recorded")
    with recording(path, task="tensor", level="L1", step=[0]) as found:
        found.start()
        net({})
        found.stop()
    return found.directory() / "dump.json"


def judge(dump: Path, change: Callable[[str, list[Any]], None] = lambda name, sent: None) -> list[SentRows]:
    """Return the rows of all calls, judged in this process; ``change`` may change a sent output."""
    runner = PyTorchRunner()
    runner.open(SETUP.options)
    rows = SETUP.create_row_maker(MANAGER)
    found = []
    for frame in call_frames(dump):
        sent = payload(frame)
        record = sent.call
        call = Call(record.name.removesuffix(".forward"), 0, record.fields)
        outcome, outputs = run_sent_call(runner, call, sent.body)
        outputs = outputs if isinstance(outputs, list) else [outputs]
        change(call.name, outputs)
        found.append(rows.create_rows(call, outcome, outputs[0] if len(outputs) == 1 else outputs))
    return found


def offline(dump: Path, directory: Path, instead: Mapping[str, Callable[..., Any]] | None = None) -> Path:
    """Write the details of run_ut with some functions replaced on the device, and return their path."""
    from probe_precheck.checking import create_status_rule
    from probe_precheck.checking import run_call as run
    from probe_precheck.judging import CallJudge

    runner = PyTorchRunner(instead)
    runner.open(RunnerOptions(dump, "cpu"))
    calls = RecordedCalls(require_arguments(open_run(MANAGER, dump)))
    judge = CallJudge(create_status_rule(MANAGER, "pytorch"), Assignment(MANAGER, "guide"))
    files = CheckFiles.create(directory, "20260101000000", DETAILS, "zh", PRECISION)
    for index in range(len(calls)):
        call = calls.get_call(index, Settings())
        files.append(judge.judge_call(call, run(runner, call)))
    files.close()
    return files.details


def as_read(rows: Mapping[str, str], columns: tuple[CsvColumn, ...]) -> dict[str, str]:
    return dict(zip([column.key for column in columns], map(format_cell_text, order_cells(rows, columns))))


def compared_offline(npu: Path, gpu: Path, out: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the rows that api_precision_compare writes, by name."""
    found = compare_details(npu, gpu, Assignment(MANAGER, "guide"))
    write_comparison(found, out, "20260101000000", None)
    results = read_table(found.result, COMPARE_RESULT, ()).rows
    details = read_table(found.details, COMPARE_DETAILS, ()).rows
    return {row["name"]: row for row in results}, {row["name"]: row for row in details}


def assert_rows_are_those_of(rows: list[SentRows], npu: Path, gpu: Path, out: Path) -> set[int]:
    """Check three-party rows against both details, and return the numbers of parties that occur."""
    results, details = compared_offline(npu, gpu, out)
    judged = 0
    for row in rows:
        if row.parties == 3:
            name = row.result["name"]
            assert as_read(row.result, COMPARE_RESULT) == results[name]
            assert row.details
            for detail in row.details:
                assert as_read(detail, COMPARE_DETAILS) == details[detail["name"]], detail["name"]
            judged += 1
    assert judged > 8
    return {row.parties for row in rows}


def test_rows_of_what_the_device_gives_are_those_of_both_commands(dump: Path, tmp_path: Path) -> None:
    npu = offline(dump, tmp_path / "npu")
    rows = judge(dump)
    assert assert_rows_are_those_of(rows, npu, npu, tmp_path / "out") == {2, 3}
    statuses = [row.status.value for row in rows]
    assert "error" not in statuses and statuses.count("pass") > 15
    # two parties: both sides ran the same kernels, so the outputs are equal
    two = [detail for row in rows if row.parties == 2 for detail in row.details]
    assert two and {detail["status"] for detail in two} == {"pass"}
    assert all(float(detail.get("max_abs_error", "0")) == 0 for detail in two)


@pytest.mark.parametrize("api", WRONG)
def test_a_broken_operator_is_an_error_by_its_standard(dump: Path, tmp_path: Path, api: str) -> None:
    scope = "Functional" if api in ("softmax", "relu") else "Torch"

    def spoil(name: str, outputs: list[Any]) -> None:
        if name.startswith(f"{scope}.{api}."):
            (output,) = outputs
            broken = broken_outputs[name]
            assert broken.dtype == output.dtype
            outputs[0] = broken

    runner = PyTorchRunner({f"{scope}.{api}": WRONG[api]})
    runner.open(RunnerOptions(dump, "cpu"))
    calls = RecordedCalls(require_arguments(open_run(MANAGER, dump)))
    broken_outputs = {
        name: runner.run(calls.get_call(index, Settings())).forward.device  # type: ignore[union-attr]
        for index, name in enumerate(calls.names)
        if name.startswith(f"{scope}.{api}.")
    }
    assert len(broken_outputs) == 3
    rows = judge(dump, spoil)
    wrong = {row.result["name"] for row in rows if row.status.value == "error"}
    assert wrong == set(broken_outputs)
    if api in ("softmax", "matmul"):
        npu = offline(dump, tmp_path / "npu", {f"{scope}.{api}": WRONG[api]})
        assert_rows_are_those_of(rows, npu, offline(dump, tmp_path / "gpu"), tmp_path / "out")
        assert {row.result["forward"] for row in rows if row.result["name"] in wrong} == {"error"}


def test_tables_for_ends_with_step_and_session() -> None:
    from probe_precheck.tables import Tables

    assignment = Assignment(MANAGER, "guide")
    assert [column.chinese for column in create_tables(2, Tables(), assignment).result] == [
        *(column.chinese for column in RESULT), "步数", "会话",
    ]  # fmt: skip
    assert [column.english for column in create_tables(3, Tables(), assignment).details][-2:] == [
        "Step",
        "Session",
    ]


def test_a_judged_call_leaves_nothing_to_the_collector(dump: Path) -> None:
    """Sent tensors are large, so those of a call must be freed before the next call comes."""
    check = SETUP(0)
    payloads = [payload(frame) for frame in call_frames(dump)]
    for sent in payloads:
        check(sent)  # what is made once stays
    gc.collect()
    gc.disable()
    try:
        for sent in payloads:
            check(sent)
            assert gc.collect() == 0, sent.call.name
    finally:
        gc.enable()


OLD, NEW = (uuid.UUID(int=number).hex for number in (1, 2))
RECEIVER = "0123456789abcdef"
CALL, CLAIMED = "0000000003.prb", f"0000000004.prb.{RECEIVER}.work"
OTHERS = ["hello.prb", "tally.prb", "end.prb"]


def write(directory: Path, session: str, *tags: str, days: float = 0.0) -> list[Path]:
    """Write files of rank 0 of a sender that are so many days old; hidden ones where senders hide them."""
    made = []
    for tag in tags:
        is_hidden = tag.endswith((".part", ".work", ".settled"))
        path = directory / f"{'.' * is_hidden}{session}.r0.{tag}"
        path.write_bytes(b"x")
        then = time.time() - days * DAY_SECONDS
        os.utime(path, (then, then))
        made.append(path)
    return made


def left(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_what_ended_long_ago_goes_and_what_is_young_or_foreign_stays(tmp_path: Path) -> None:
    write(tmp_path, OLD, *OTHERS, f"{RECEIVER}.settled", "0000000009.prb.part", days=8)
    young = write(tmp_path, NEW, *OTHERS, f"{RECEIVER}.settled", days=6)
    (tmp_path / "set_aside").mkdir()
    foreign = [tmp_path / name for name in ("notes.txt", f"{OLD}.txt", f"{OLD}.r0.notes", "x.prb")]
    for path in foreign:
        path.write_text("mine")
        os.utime(path, (0, 0))
    assert remove_aged(tmp_path, 7, ()) == RemovalCounts(5, 0)
    assert left(tmp_path) == {"set_aside", *(path.name for path in (*young, *foreign))}


@pytest.mark.parametrize("tag", [*OTHERS, CALL, CLAIMED, f"{RECEIVER}.settled"])
def test_one_young_file_keeps_all_of_its_sender(tag: str, tmp_path: Path) -> None:
    write(tmp_path, OLD, *OTHERS, CALL, days=30)
    write(tmp_path, OLD, tag)
    before = left(tmp_path)
    assert remove_aged(tmp_path, 7, ()) == RemovalCounts(0, 0)
    assert left(tmp_path) == before


def test_calls_that_nobody_judged_are_counted(tmp_path: Path) -> None:
    write(tmp_path, OLD, "hello.prb", CALL, CLAIMED, days=8)
    assert find_senders_with_calls(path.name for path in tmp_path.iterdir()) == {SenderPlace(OLD, 0)}
    assert remove_aged(tmp_path, 7, {SenderPlace(OLD, 0)}) == RemovalCounts(0, 0)
    assert remove_aged(tmp_path, 7, {SenderPlace(OLD, 1)}) == RemovalCounts(3, 2)
    assert left(tmp_path) == set()


def test_the_clock_is_that_of_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another machine's clock dates its files; this machine's may be a year ahead."""
    write(tmp_path, OLD, *OTHERS, days=1)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 365 * DAY_SECONDS)
    assert remove_aged(tmp_path, 7, ()) == RemovalCounts(0, 0)
    assert len(left(tmp_path)) == len(OTHERS)


def test_a_directory_that_is_gone_or_empty(tmp_path: Path) -> None:
    assert remove_aged(tmp_path / "gone", 7, ()) == remove_aged(tmp_path, 7, ()) == RemovalCounts(0, 0)
