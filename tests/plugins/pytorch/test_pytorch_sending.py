"""A training that sends its calls: what is sent equals what is recorded, and the training does not change."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_pytorch.ptfile import load_pt
from probe_pytorch.session import TorchSendingSession
from probe_recording.api import leaf_of
from probe_recording.reading.tensors import Tensors
from probe_recording.sending import transport
from probe_recording.sending.body import SentTensors
from probe_recording.sending.message import FrameKind, parse_call, parse_frame_file
from support.programs import models, training
from support.programs.interrupts import let_interrupts_in
from support.programs.preloaded import PreloadedPopen
from support.receiving import Receiver, receiver
from support.runs.recording import Recording, recording
from support.runs.records import record_of

CASES = {f"{program.name}-{variant.name}": (program, variant) for program, variant in models.cases()}
NAMES = [name for name in CASES if name.endswith("-plain") and not CASES[name][0].needs]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Any:
    """One thread, for sums depend on their number; attempts to connect follow each other at once."""
    monkeypatch.setattr(transport, "FIRST_PAUSE_SECONDS", 0.02)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def online(end: Receiver | int, **fields: Any) -> dict[str, Any]:
    """The fields of a configuration that sends to a receiver."""
    port = end if isinstance(end, int) else end.port
    section = {"online_run_ut": True, "host": "127.0.0.1", "port": port, "online_drain": 20, **fields}
    return {"task": "tensor", "level": "L1", "tensor": section}


@cache
def bare(name: str) -> training.Outcome:
    return training.run(*CASES[name])


def program(found: Recording) -> None:
    """A step with the forms of tensors that matter: strided, in place, shared, 0-d, of many dtypes."""
    torch.manual_seed(0)
    found.start()
    x = torch.randn(4, 6)
    torch.add(x.T, x.T)
    x.add_(1)
    torch.mul(x, x[:, :1])
    torch.relu(x.to(torch.bfloat16))
    torch.add(torch.tensor(2.5), 1)
    torch.logical_not(x > 0)
    torch.abs(torch.view_as_complex(torch.randn(3, 2)).conj())
    torch.neg(x.double())
    torch.cat([x, x], dim=1)
    torch.nn.functional.dropout(x, p=0.0)
    torch.masked_fill(x, x > 1, float("-inf"))
    torch.sum(torch.empty(0, 3))
    torch.split(x, 2)
    found.stop()
    found.step()


# -- what is sent ----------------------------------------------------------------------------------


def test_a_sent_call_is_what_the_recorder_writes(tmp_path: Path) -> None:
    with recording(tmp_path / "offline", task="tensor", level="L1") as found:
        program(found)
    with receiver() as end, recording(tmp_path / "online", **online(end)) as found:
        program(found)
    written = json.loads((tmp_path / "offline/step0/rank/dump.json").read_text())["data"]
    sent = {call.name: call.fields for call, _ in end.calls}
    assert list(sent) == list(written)

    def without_statistics(value: Any) -> Any:
        if isinstance(value, list):
            return [without_statistics(item) for item in value]
        if isinstance(value, dict):
            leaf = {"Max", "Min", "Mean", "Norm"} if "dtype" in value else set()
            return {key: without_statistics(item) for key, item in value.items() if key not in leaf}
        return value

    assert str(without_statistics(sent)) == str(without_statistics(written))  # as text, nan is nan
    load = Tensors(tmp_path / "offline/step0/rank/dump_tensor_data", load_pt)
    checked = 0
    for call, body in end.calls:
        tensors = SentTensors(body)
        for slot in record_of(0, call.name, call.fields).slots:
            if slot.value.data_name is not None:
                mine, theirs = tensors(slot.value), load(slot.value)
                assert mine.dtype == theirs.dtype and mine.shape == theirs.shape, slot.name
                assert mine.tobytes() == theirs.tobytes(), slot.name
                checked += 1
    assert checked > 30
    assert not list((tmp_path / "online").rglob("dump.json"))
    assert [path.name for path in (tmp_path / "online").iterdir()] == ["online_rank0.json"]


def test_the_tensors_are_those_of_the_moment(tmp_path: Path) -> None:
    with receiver() as end, recording(tmp_path / "run", **online(end)) as found:
        found.start()
        x = torch.arange(6.0).reshape(2, 3)
        before = x.clone()
        torch.relu(x)
        x.add_(5)
        x.data.fill_(0)
        found.stop()
        found.step()

    def array(name: str, side: str, index: int = 0) -> Any:
        call, body = next(pair for pair in end.calls if pair[0].name == name)
        return SentTensors(body)(leaf_of(call.fields[side][index], "0"))

    assert (array("Torch.relu.0.forward", "input_args") == before.numpy()).all()
    assert (array("Tensor.add_.0.forward", "input_args") == before.numpy()).all()
    assert (array("Tensor.add_.0.forward", "output") == before.numpy() + 5).all()


def test_only_forward_calls_of_the_selected_steps_are_sent(tmp_path: Path) -> None:
    with receiver() as end, recording(tmp_path / "run", **online(end), step=[1]) as found:
        model = torch.nn.Linear(3, 2)
        for _ in range(3):
            found.start(model)
            model(torch.ones(1, 3)).sum().backward()
            found.stop()
            found.step()
    assert end.names == ["Functional.linear.0.forward", "Tensor.sum.0.forward"]
    assert {call.step for call, _ in end.calls} == {1}


def test_list_and_level_mix(tmp_path: Path) -> None:
    fields = online(end := Receiver(), list=["linear"])
    with recording(tmp_path / "run", **{**fields, "level": "mix"}) as found:
        model = torch.nn.Linear(3, 2)
        found.start(model)
        model(torch.ones(1, 3)).relu()
        found.stop()
        found.step()
    end.close()
    assert end.names == ["Functional.linear.0.forward"]


def test_a_call_that_raises_is_not_sent_and_leaves_no_memory_behind(tmp_path: Path) -> None:
    with receiver() as end, recording(tmp_path / "run", **online(end)) as found:
        found.start()
        with pytest.raises(RuntimeError):
            torch.matmul(torch.ones(2, 3), torch.ones(2, 3))
        torch.relu(torch.ones(2))
        found.stop()
        found.step()
        outbox = found.debugger._recorder.sender.outbox
    assert end.names == ["Torch.relu.0.forward"] and outbox._reserved == 0


def test_an_earlier_run_in_the_same_directory_stays(tmp_path: Path) -> None:
    with recording(tmp_path / "run", task="tensor", level="L1") as found:
        program(found)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and "step" in str(path)}
    with receiver() as end, recording(tmp_path / "run", **online(end)) as found:
        program(found)
    assert before and {path: path.read_bytes() for path in before} == before


# -- the training does not change ------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_training_is_the_same_to_the_bit(name: str, tmp_path: Path) -> None:
    expected = bare(name)
    with receiver() as end, recording(tmp_path / "run", **online(end)) as found:
        outcome = training.run(*CASES[name], recorder=found)
    assert training.differences(expected, outcome) == []
    assert end.calls and found.errors == ""
    summary = json.loads((tmp_path / "run/online_rank0.json").read_text())
    assert summary["complete"] and sum(summary["queued"].values()) == len(end.calls)


@pytest.mark.parametrize("manners", [("cut:5", "cut:1", "good"), ("mute",), ("rubbish",), ("silent",)], ids=str)
def test_and_when_the_receiver_fails(manners: tuple[str, ...], tmp_path: Path) -> None:
    name = NAMES[0]
    with receiver(*manners) as end, recording(tmp_path / "run", **online(end, online_drain=0.5)) as found:
        outcome = training.run(*CASES[name], recorder=found)
    assert training.differences(bare(name), outcome) == []
    if manners[0] == "cut:5":
        assert len(set(end.names)) > 5


def test_and_when_the_receiver_dies_in_mid_run(tmp_path: Path, capfd: Any) -> None:
    name = NAMES[0]
    end = Receiver()

    def kill() -> None:
        while not end.calls:
            time.sleep(0.001)
        end.close()

    threading.Thread(target=kill, daemon=True).start()
    with recording(tmp_path / "run", **online(end, online_drain=0.5)) as found:
        outcome = training.run(*CASES[name], recorder=found)
    assert training.differences(bare(name), outcome) == []
    assert capfd.readouterr().err.count("The training goes on") == 1
    summary = json.loads((tmp_path / "run/online_rank0.json").read_text())
    assert not summary["complete"] and sum(summary["not_acknowledged"].values()) > 0


def test_and_when_the_receiver_is_killed_and_restarted_many_times(tmp_path: Path) -> None:
    name = NAMES[0]
    chance = random.Random(3)
    ends = [Receiver()]
    stop = threading.Event()

    def kill() -> None:
        while len(ends) <= 20 and not stop.is_set():
            deadline = time.monotonic() + chance.uniform(0.02, 0.2)
            while time.monotonic() < deadline or (not ends[-1].calls and not stop.is_set()):
                time.sleep(0.002)
            ends[-1].close()
            time.sleep(chance.uniform(0, 0.05))
            ends.append(Receiver(port=ends[0].port))

    killer = threading.Thread(target=kill)
    with recording(tmp_path / "run", **online(ends[0], online_drain=60)) as found:
        killer.start()
        outcome = training.run(*CASES[name], recorder=found)
        while found.debugger._recorder.sender.outbox.count_unacknowledged():
            time.sleep(0.05)
        stop.set()
        killer.join()
    ends[-1].close()
    assert training.differences(bare(name), outcome) == []
    summary = json.loads((tmp_path / "run/online_rank0.json").read_text())
    assert summary["complete"]
    received = {(call.step, call.name): call.seq for end in ends for call, _ in end.calls}
    assert len(received) == sum(summary["queued"].values()) == len(set(received.values()))


def test_a_full_queue_drops_before_copying_and_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[int] = []
    copy = TorchSendingSession.copy_to_host
    monkeypatch.setattr(
        TorchSendingSession, "copy_to_host", lambda self, x: (copied.append(x.numel()), copy(self, x))[1]
    )
    fields = online(end := Receiver(("mute",)), online_memory="1MiB", online_drain=0.2)
    with recording(tmp_path / "run", **fields) as found:
        found.start()
        x = torch.ones(100_000)  # 400 kB: one call of two tensors fits, no second one
        for _ in range(10):
            torch.relu(x)
        found.stop()
        found.step()
    end.close()
    summary = json.loads((tmp_path / "run/online_rank0.json").read_text())
    assert summary["queued"] == {"Torch.relu": 1} and summary["dropped"] == {"no room": {"Torch.relu": 9}}
    assert copied == [100_000] * 2


def test_waiting_for_room_is_bounded(tmp_path: Path) -> None:
    fields = online(end := Receiver(("mute",)), online_memory="1MiB", online_drain=0.1,
                    online_policy="wait", online_wait=0.4)  # fmt: skip
    with recording(tmp_path / "run", **fields) as found:
        for _ in range(2):
            found.start()
            begin = time.monotonic()
            for _ in range(10):
                torch.relu(torch.ones(100_000))
            assert time.monotonic() - begin < 2
            found.stop()
            found.step()
    end.close()
    summary = json.loads((tmp_path / "run/online_rank0.json").read_text())
    assert summary["dropped"]["no room"]["Torch.relu"] == 19


def test_a_failure_of_the_copy_drops_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Any, tensor: torch.Tensor) -> Any:
        raise MemoryError("no memory")

    with receiver() as end:
        found = Recording(tmp_path / "run", **online(end))
        found.start()
        monkeypatch.setattr(TorchSendingSession, "copy_to_host", fail)
        result = torch.cat([torch.ones(2), torch.zeros(1)])
        monkeypatch.undo()
        torch.relu(torch.ones(2))
        found.stop()
        found.step()
        found.finish()
    assert result.tolist() == [1, 1, 0] and end.names == ["Torch.relu.0.forward"]
    assert end.ends[0]["dropped"] == {"Torch.cat": 1}
    assert "no memory" in found.errors


# -- processes -------------------------------------------------------------------------------------

SCRIPT = """
    import os, sys, time, torch
    from torch.utils.data import DataLoader
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    def loop():
        for number in range(3):
            for batch in DataLoader(torch.ones(4, 4), batch_size=4, num_workers=WORKERS):
                model(batch).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    loop()
    child = os.fork()
    if not child:
        loop()
        sys.exit(0)
    os.waitpid(child, 0)
    print("done", model.weight.sum().item())
"""


def run(tmp_path: Path, *arguments: str, workers: int = 0) -> subprocess.Popen[str]:
    """Start ``probe run`` in a process of its own."""
    (tmp_path / "train.py").write_text(textwrap.dedent(SCRIPT).replace("WORKERS", str(workers)))
    command = [sys.executable, "-m", "probe_core.cli", "run", "--step", "all", "-o", "run", *arguments]
    return PreloadedPopen(
        [*command, "train.py"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=let_interrupts_in,
    )  # fmt: skip


def test_forked_children_are_silent(tmp_path: Path) -> None:
    with receiver() as end:
        out, err = run(tmp_path, "--send-to", f"127.0.0.1:{end.port}", workers=1).communicate(timeout=120)
    assert "done" in out and len(end.hellos) == len(end.ends) == 1
    linear = [name for name in end.names if name.startswith("Functional.linear")]
    assert len(linear) == 3, err
    assert "probe: " in err and "Traceback" not in err


def test_ctrl_c_ends_the_wait_at_the_end(tmp_path: Path) -> None:
    with receiver("mute") as end:
        process = run(tmp_path, "--send-to", f"127.0.0.1:{end.port}")
        assert process.stderr is not None
        line = ""
        while "Ctrl-C ends the wait" not in line:
            line = process.stderr.readline()
            assert line
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 3 and "interrupted" in err and "not acknowledged" in err


def test_probe_run_with_a_shared_directory(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    process = run(tmp_path, "--send-to", str(shared))
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0 and "were stored in" in err
    frames = {path.name.partition(".")[2]: parse_frame_file(path.read_bytes()) for path in shared.iterdir()}
    names = [parse_call(frame).name for _, frame in sorted(frames.items()) if frame.kind is FrameKind.CALL]
    assert names.count("Functional.linear.0.forward") == 3 and len(names) == len(frames) - 2
    assert frames["r0.end.prb"].kind is FrameKind.END and frames["r0.hello.prb"].kind is FrameKind.HELLO
    assert sum(frames["r0.end.prb"].head["queued"].values()) == len(names)


def test_the_recorder_without_sending_starts_no_thread(tmp_path: Path) -> None:
    with recording(tmp_path / "run", task="tensor", level="L1") as found:
        program(found)
        assert not [thread for thread in threading.enumerate() if thread.name == "probe-sender"]
