"""A second recording into one directory, and a second debugger in one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_pytorch.debugger import PrecisionDebugger
from probe_recording.run_directory.directory import Lock, RemovalResult, remove_run
from support.programs import preloaded
from support.programs.preloaded import PreloadedPopen
from support.runs.recording import Recording

from probe_core.errors import UserError


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No debugger before or behind a test, and no group of processes around it."""
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    PrecisionDebugger._instance = None
    yield
    if PrecisionDebugger._instance is not None:
        PrecisionDebugger._instance._recorder.finish()
    PrecisionDebugger._instance = None


def record(root: Path, steps: int, first: int | None = None, **fields: Any) -> Recording:
    """Record so many steps of a program into ``root``."""
    found = Recording(root, **fields)
    if first is not None:
        found.debugger.set_init_step(first)
    for _ in range(steps):
        found.start()
        torch.ones(3).exp()
        found.stop()
        found.step()
    found.finish()
    return found


def steps(root: Path) -> list[str]:
    """The steps and ranks that hold something."""
    return sorted({str(path.parent.relative_to(root)) for path in root.glob("step*/*/dump.json")})


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return "".join(line for line in capsys.readouterr().err.splitlines() if "deleted" in line)


# -- recording again -------------------------------------------------------------------------------


@pytest.mark.parametrize("store", ["packed", "files"])
def test_two_steps_over_four_leave_two(store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    record(run, 4, task="tensor", store=store)
    assert said(capsys) == ""
    record(run, 2, task="tensor", store=store)
    assert steps(run) == ["step0/rank", "step1/rank"]
    assert sorted(path.name for path in run.iterdir()) == ["step0", "step1"]
    assert said(capsys) == f"probe: replaced the recording in {run}: steps 0-3 of rank deleted."


def test_a_later_start_replaces_the_steps_before_as_well(tmp_path: Path, capsys: Any) -> None:
    run = tmp_path / "run"
    record(run, 3)
    found = Recording(run, step=[1])
    for _ in range(3):
        found.start()
        torch.ones(3).exp()
        found.stop()
        found.step()
    found.finish()
    assert steps(run) == ["step1/rank"]
    assert "steps 0-2 of rank deleted" in said(capsys)


def test_training_that_is_resumed_keeps_the_steps_before(tmp_path: Path, capsys: Any) -> None:
    run = tmp_path / "run"
    record(run, 5)
    before = (run / "step2/rank/dump.json").stat().st_mtime_ns
    record(run, 1, first=3)
    assert steps(run) == [f"step{n}/rank" for n in range(4)]
    assert (run / "step2/rank/dump.json").stat().st_mtime_ns == before
    assert "steps 3-4 of rank deleted" in said(capsys)


def test_what_no_recorder_wrote_stays_and_is_said(tmp_path: Path, capsys: Any) -> None:
    run = tmp_path / "run"
    record(run, 3, task="tensor")
    mine = run / "step2/rank/notes.txt", run / "step1/rank/dump_tensor_data/readme.md", run / "table.csv"
    for path in mine:
        path.write_text("mine")
    record(run, 1)
    assert all(path.read_text() == "mine" for path in mine)
    assert steps(run) == ["step0/rank"]
    assert "step1/rank, step2/rank" in capsys.readouterr().err


def test_a_step_that_holds_nothing_goes_unsaid(tmp_path: Path, capsys: Any) -> None:
    run = tmp_path / "run"
    (run / "step7/rank").mkdir(parents=True)
    (run / "step8").mkdir()
    record(run, 1)
    assert sorted(path.name for path in run.iterdir()) == ["step0"]
    assert said(capsys) == ""


def test_ranks_that_the_new_run_lacks(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    """Of a run of four ranks, one of two replaces all: each rank its own, the first those that are gone."""
    run = tmp_path / "run"
    for rank in range(4):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "4")
        record(run, 2)
    capsys.readouterr()
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    record(run, 1)
    assert steps(run) == ["step0/rank0", "step0/rank1", "step1/rank1"]  # rank 1 is not there yet
    assert "steps 0-1 of rank0; steps 0-1 of rank2; steps 0-1 of rank3 deleted" in said(capsys)
    monkeypatch.setenv("RANK", "1")
    record(run, 1)
    assert steps(run) == ["step0/rank0", "step0/rank1"]
    monkeypatch.delenv("RANK")
    record(run, 1)
    assert steps(run) == ["step0/rank"]


def test_a_rank_that_is_being_written_stays(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "step5/rank3").mkdir(parents=True)
    (run / "step5/rank3/dump.json").write_text('{"probe": {}, "data": {}}')
    code = (
        "import sys, pathlib; from probe_recording.run_directory.directory import Lock;"
        "lock = Lock(pathlib.Path(sys.argv[1]), 'rank3'); print('held', flush=True); sys.stdin.read()"
    )
    other = PreloadedPopen(
        [sys.executable, "-c", code, str(run)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None and other.stdout.readline() == "held\n"
    try:
        record(run, 1)
        assert steps(run) == ["step0/rank", "step5/rank3"]
    finally:
        other.communicate("", timeout=30)


def test_a_rank_that_another_tool_recorded_stays(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "step0/rank3").mkdir(parents=True)
    (run / "step0/rank3/dump.json").write_text('{"task": "statistics", "data": {}}')
    record(run, 1)
    assert steps(run) == ["step0/rank", "step0/rank3"]


def test_links_among_the_old_steps_lead_nowhere(tmp_path: Path) -> None:
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    for place in (elsewhere / "rank", elsewhere / "data"):
        (place / "dump_tensor_data").mkdir(parents=True)
        (place / "dump.json").write_text("mine")
        (place / "dump_tensor_data/a.pt").write_text("mine")
    for step in (3, 4):
        (run / f"step{step}/rank").mkdir(parents=True)
    (run / "step3/rank/dump_tensor_data").symlink_to(elsewhere / "data/dump_tensor_data")
    (run / "step4/rank").rmdir()
    (run / "step4/rank").symlink_to(elsewhere / "rank")
    (run / "step5").symlink_to(elsewhere)
    removed = RemovalResult()
    remove_run(run, "rank", 0, removed)
    assert len([path for path in elsewhere.rglob("*") if path.is_file()]) == 4
    assert (run / "step4/rank").is_symlink() and (run / "step5").is_symlink()


def test_many_ranks_that_start_over_an_old_run(tmp_path: Path) -> None:
    """Each removes its steps, and the directories that become empty, while the others make theirs."""
    run = tmp_path / "run"
    for rank in range(6):
        for step in range(40):
            (run / f"step{step}/rank{rank}").mkdir(parents=True)
            (run / f"step{step}/rank{rank}/dump.json").write_text("{}")
    code = (
        "import sys, pathlib; from probe_recording.run_directory.directory import *;"
        "run, label = pathlib.Path(sys.argv[1]), sys.argv[2]; lock = Lock(run, label);"
        "remove_run(run, label, 0, RemovalResult());"
        "[StepDirectory(run, step, label).write('dump.json', label) for step in range(40)]"
    )
    ranks = [PreloadedPopen([sys.executable, "-c", code, str(run), f"rank{rank}"]) for rank in range(6)]
    assert [process.wait(60) for process in ranks] == [0] * 6
    assert len(steps(run)) == 240
    assert all(path.read_text() == path.parent.name for path in run.glob("step*/*/dump.json"))


@pytest.mark.slow
def test_probe_run_into_the_same_directory(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, torch\nw = torch.nn.Linear(2, 2)\no = torch.optim.SGD(w.parameters(), 0.1)\n"
        "for _ in range(int(sys.argv[1])):\n    w(torch.ones(2)).sum().backward()\n    o.step()\n"
    )
    for count in (3, 1):
        done = preloaded.run(
            [sys.executable, "-m", "probe_core.cli", "run", "-o", "run", str(script), str(count)],
            cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": ""},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert steps(tmp_path / "run") == ["step0/rank"]
    assert "steps 0-2 of rank deleted" in done.stderr


# -- a second debugger -----------------------------------------------------------------------------


def settings(path: Path, **fields: Any) -> Path:
    path.write_text(json.dumps(fields))
    return path


def test_the_same_settings_give_the_same_debugger(tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    config = settings(tmp_path / "a.json", dump_path=run, level="L1", step=[0, 1])
    first = PrecisionDebugger(config_path=config)
    assert PrecisionDebugger(config_path=config) is first
    assert PrecisionDebugger() is first
    assert PrecisionDebugger(dump_path=run, level="L1", step=[1, 0]) is first, "the same, said otherwise"
    copy = settings(tmp_path / "b.json", dump_path=run, level="L1", step=["0-1"], dump_enable=True)
    assert PrecisionDebugger(copy) is first


@pytest.mark.parametrize(
    "other, named",
    [
        ({"dump_path": "elsewhere"}, "dump_path"),
        ({"level": "mix"}, "level is 'L1' there and 'mix' here"),
        ({"task": "tensor"}, "task"),
        ({"step": [3]}, r"steps is \[\] there and \[3\] here"),
    ],
)
def test_other_settings_are_refused(other: dict[str, Any], named: str, tmp_path: Path) -> None:
    mine: dict[str, Any] = {"dump_path": str(tmp_path / "run"), "level": "L1"}
    first = PrecisionDebugger(**mine)
    if "dump_path" in other:
        other = {"dump_path": str(tmp_path / other["dump_path"])}
    with pytest.raises(UserError, match=named):
        PrecisionDebugger(**{**mine, **other})
    assert PrecisionDebugger() is first, "the first goes on"
    assert not hasattr(first, "_batches") and first._recorder.config.level == "L1"


def test_settings_that_are_wrong_leave_the_first_alone(tmp_path: Path) -> None:
    first = PrecisionDebugger(dump_path=str(tmp_path / "run"))
    with pytest.raises(UserError):
        PrecisionDebugger(dump_path=str(tmp_path / "run"), level="L7")
    assert PrecisionDebugger() is first


def test_a_second_debugger_may_bring_the_model(tmp_path: Path) -> None:
    mine = {"dump_path": str(tmp_path / "run"), "level": "L0"}
    PrecisionDebugger(**mine)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    with PrecisionDebugger(**mine, model=model):
        model(torch.ones(2))
    assert "Module" in (tmp_path / "run/step0/rank/dump.json").read_text()


def test_the_lock_is_let_go_after_ranks_were_removed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "step0/rank7").mkdir(parents=True)
    (run / "step0/rank7/dump.json").write_text('{"probe": {}, "data": {}}')
    record(run, 1)
    assert steps(run) == ["step0/rank"]
    assert not list(run.glob(".*.lock"))
    Lock(run, "rank7").release()
