"""A disk that fails while a training is recorded: the training goes on, and nothing is claimed that is lost."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_pytorch.debugger import PrecisionDebugger
from probe_pytorch.reader import PyTorchReader
from probe_recording.recorder.recorder_state import RecorderState
from probe_recording.sessions import session as sessions
from support.faults.failing_writes import ERRORS, FailingWrites, small_disk
from support.runs.recording import Recording
from support.sampling import places
from torch import nn
from torch.nn import functional as F

from probe_core.errors import UserError

CASES: dict[str, dict[str, Any]] = {
    "statistics": {"level": "mix"},
    "packed": {"level": "mix", "task": "tensor"},
    "files": {"level": "L1", "task": "tensor", "store": "files"},
    "modules": {"level": "L0", "task": "tensor"},
    "delayed": {"level": "L1", "task": "tensor", "async_dump": True, "tensor": {"list": ["linear"]}},
    "delayed files": {
        "level": "L1", "task": "tensor", "async_dump": True, "store": "files", "tensor": {"list": ["linear"]}
    },
    "checksums": {"level": "L1", "statistics": {"summary_mode": "md5"}},
    "operators": {"level": "L2"},
    "structure": {"level": "mix", "task": "structure"},
    "overflows": {"level": "L1", "task": "overflow_check", "overflow_check": {"overflow_nums": -1}},
    "variables": {"level": "debug", "task": "tensor"},
}  # fmt: skip
STEPS = 3


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Steps are written while they go on, and a test that fails leaves no debugger to the next one."""
    monkeypatch.setattr(sessions, "FLUSH_INTERVAL_RECORDS", 4)
    yield
    instance, PrecisionDebugger._instance = PrecisionDebugger._instance, None
    if instance is not None:
        instance._recorder._control.remove()
        instance._recorder._states.state = RecorderState.FINISHED
        instance._recorder._sessions.claim.release()


@dataclass
class Outcome:
    """The outcome of a training that was recorded."""

    losses: list[str] = field(default_factory=list)
    refused: str = ""
    whole: list[int] = field(default_factory=list)
    lost: int | None = None
    written: dict[int, tuple[dict[str, Any], bool]] = field(default_factory=dict)
    """The head and whether it is unfinished, by step."""


def train(path: Path, case: str) -> Outcome:
    """Train for three steps, each recorded in two parts; nothing but the first start may raise."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    outcome = Outcome()
    found = Recording(path, **CASES[case])
    debug = CASES[case]["level"] == "debug"
    for step in range(STEPS):
        for part in range(2):
            try:
                if not debug:
                    found.start(model)
                elif step + part == 0:
                    found.debugger.save(torch.zeros(1), "begin")
            except UserError as error:
                assert (step, part) == (0, 0)
                outcome.refused = str(error)
                return outcome
            x = torch.randn(3, 4, generator=torch.Generator().manual_seed(step))
            loss = model(x).square().mean()
            loss.backward()
            F.relu(torch.tensor([torch.inf * (step + 1)]))
            if debug:
                found.debugger.save({"x": x, "loss": loss}, "values")
            outcome.losses.append(loss.item().hex())
            found.stop()
        optimizer.step()
        optimizer.zero_grad()
        found.step()
    recorder = found.debugger._recorder
    found.finish()
    outcome.whole = recorder.complete_steps
    outcome.lost = recorder.lost and recorder.lost.step
    return outcome


def read(path: Path) -> dict[int, tuple[dict[str, Any], bool]]:
    """The records of each step, with the data that they name checked; whether the step is unfinished."""
    found = {}
    for file in path.glob("step*/rank/d*.json"):
        head = json.loads(file.read_text())
        found[int(file.parts[-3].removeprefix("step"))] = head["data"], "unfinished" in head["probe"]
        if head["task"] in ("statistics", "tensor"):
            run = PyTorchReader().open(file)
            for record in run.records():
                for slot in record.slots:
                    if slot.value.data_name:
                        run.tensor(slot.value)
            run.close()
        else:
            for name in data_names(head["data"]):
                stored = file.parent / "dump_tensor_data" / "tensors.safetensors"
                assert name and stored.is_file()
    return found


def data_names(tree: Any) -> list[str]:
    if isinstance(tree, dict) and "data_name" in tree:
        return [tree["data_name"]]
    items = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    return [name for item in items for name in data_names(item)]


def check(path: Path, outcome: Outcome, clean: Outcome, told: str) -> None:
    """Check the leftovers of any failure: equal losses, one message, readable steps that say what they lack."""
    assert told.count("error:") == (outcome.lost is not None) and "Traceback" not in told
    if outcome.refused:
        assert not told and "cannot be written" in outcome.refused
        return
    assert outcome.losses == clean.losses
    if outcome.lost is None:
        assert outcome.whole == list(range(STEPS))
    else:
        assert f"step {outcome.lost}" in told and "the training goes on unrecorded" in told
    steps = read(path)
    assert set(outcome.whole) <= steps.keys()
    for step, (records, unfinished) in steps.items():
        expected = clean.written[step][0]
        if not unfinished:
            assert records == expected
            assert step in outcome.whole or step == outcome.lost  # whose very last write failed
        else:
            assert step == outcome.lost and step not in outcome.whole
            assert records.keys() <= expected.keys()


@pytest.fixture(scope="module")
def clean_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Outcome, int]]:
    """Each case on a disk that is sound, and how many writes it takes."""
    found: dict[str, tuple[Outcome, int]] = {}
    patch = pytest.MonkeyPatch()
    patch.setattr(sessions, "FLUSH_INTERVAL_RECORDS", 4)
    for case in CASES:
        path = tmp_path_factory.mktemp("clean") / "run"
        with FailingWrites(path) as writes:
            outcome = train(path, case)
        outcome.written = read(path)
        assert outcome.whole == list(range(STEPS)) and outcome.lost is None, case
        assert not any(unfinished for _, unfinished in outcome.written.values())
        found[case] = outcome, writes.count
    patch.undo()
    return found


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("share", [5, pytest.param(200, marks=pytest.mark.slow)])
def test_any_write_may_fail(
    case: str, share: int, clean_runs: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From a write on all fail, with one error or another; PROBE_TEST_EVERY takes each of the writes."""
    clean, count = clean_runs[case]
    capsys.readouterr()
    lost = 0
    for number in {1, *places(count, share, case)}:
        path = tmp_path / "run"
        with FailingWrites(path, ERRORS[number % len(ERRORS)], at=number):
            outcome = train(path, case)
        check(path, outcome, clean, capsys.readouterr().err)
        lost += outcome.lost is not None
        shutil.rmtree(path, ignore_errors=True)
        PrecisionDebugger._instance = None
    assert lost


@pytest.mark.parametrize("case", ["packed", "files", "delayed", "delayed files", "overflows", "variables"])
@pytest.mark.parametrize("at", [1, 4, 9, pytest.param(None, marks=pytest.mark.slow)])
def test_only_tensors_fail(
    case: str, at: int | None, clean_runs: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The records can be written all the while: they name no data that are not there."""
    clean, count = clean_runs[case]
    capsys.readouterr()
    for number in [at] if at else places(count - 1, 70, case):
        path = tmp_path / "run"
        with FailingWrites(path, errno.ENOSPC, at=number, part="dump_tensor_data") as writes:
            outcome = train(path, case)
        told = capsys.readouterr().err
        check(path, outcome, clean, told)
        if writes.count >= number:
            assert outcome.lost is not None and "No space left on device" in told
            head = json.loads(next(path.glob(f"step{outcome.lost}/rank/d*.json")).read_text())
            assert head["probe"]["unfinished"] and "No space left on device" in head["probe"]["lost"]
        shutil.rmtree(path)
        PrecisionDebugger._instance = None


def test_the_first_start_refuses_and_no_later_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A mistake in dump_path is told before the training begins, though step 5 is the first to be recorded."""
    (tmp_path / "file").write_text("mine")
    found = Recording(tmp_path / "file", step=[5])
    with pytest.raises(UserError, match="cannot be written"):
        found.start()
    found.finish()
    found = Recording(tmp_path / "run", step=[1, 2])
    for step in range(4):
        found.start()
        F.relu(torch.ones(2))
        found.stop()
        found.step()
        if step == 1:
            shutil.move(tmp_path / "run", tmp_path / "moved")
            (tmp_path / "run").write_text("in the way")
    found.finish()
    told = capsys.readouterr().err
    assert told.count("error:") == 1 and "Nothing of step 2 can be read." in told
    assert list(json.loads((tmp_path / "moved/step1/rank/dump.json").read_text())["data"])


def test_the_script_may_refuse_more_files(tmp_path: Path) -> None:
    """A limit that the first start meets is the user's to mend."""
    found = Recording(tmp_path / "run")
    with FailingWrites(tmp_path / "run", errno.EMFILE), pytest.raises(UserError, match="Too many open files"):
        found.start()
    found.start()
    found.finish()


def test_compare_says_that_a_run_is_unfinished(probe: Any, tmp_path: Path) -> None:
    for name, part in (("whole", "none"), ("lost", "dump_tensor_data")):
        with FailingWrites(tmp_path / name, errno.EDQUOT, at=30, part=part):
            train(tmp_path / name, "packed")
    lost = [tmp_path / name / "step0" for name in ("lost", "whole")]
    assert probe("compare", *lost, "-o", tmp_path / "out") == 0, probe.err
    assert "note: the target is unfinished" in probe.out and "golden is unfinished" not in probe.out
    assert os.strerror(errno.EDQUOT) in probe.out
    assert probe("compare", lost[1], lost[1], "-o", tmp_path / "out") == 0
    assert "unfinished" not in probe.out


def test_a_step_that_goes_on_is_unfinished(probe: Any, tmp_path: Path) -> None:
    """A step that goes on looks like one whose process was killed."""
    found = Recording(tmp_path / "run")
    found.start()
    F.relu(torch.ones(2))
    found.stop()
    assert probe("compare", found.directory(), found.directory(), "-o", tmp_path / "out") == 0
    assert "note: the golden is unfinished" in probe.out and "or goes on" in probe.out
    found.step()
    found.finish()
    assert "unfinished" not in found.head()["probe"]


@pytest.mark.parametrize("size", ["24k", "48k", "100k", "200k", "260k", "400k"])
@pytest.mark.parametrize("case", ["packed", "files", "statistics"])
def test_a_disk_that_is_full(
    case: str, size: str, clean_runs: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clean, _ = clean_runs[case]
    with small_disk(tmp_path / "disk", size) as disk:
        capsys.readouterr()
        outcome = train(disk / "run", case)
        check(disk / "run", outcome, clean, capsys.readouterr().err)
        PrecisionDebugger._instance = None
