"""Faults of either end: processes that are killed, a full disk, and strangers at the port."""

from __future__ import annotations

import json
import os
import pickle
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from probe_recording.sending import transport
from probe_recording.sending.message import PREFIX, FrameKind, encode_call_head, encode_frame
from support import TESTS
from support.programs import training
from support.programs.preloaded import PreloadedPopen
from support.runs.faulty import Truth, all_is_known, check, rows_in, trained, until
from support.runs.inprocess import receiving
from support.runs.receiving import Client, Receiver, receiver
from support.runs.relaying import relay

from probe_core.terminal.exit_codes import EXIT_FINISHED, EXIT_USER_ERROR

LOCAL = ("--listen", "127.0.0.1:0", "--lang", "en")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts to connect follow each other at once."""
    monkeypatch.setattr(transport, "FIRST_PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(transport, "MAX_PAUSE_SECONDS", 0.05)


# -- processes that are killed ---------------------------------------------------------------------


def rows_written(out: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in out.glob("*_result_*.csv"))


@pytest.mark.parametrize("times", [4, pytest.param(20, marks=pytest.mark.slow)])
def test_a_receiver_that_is_killed_at_random_moments(times: int, truth: Truth, tmp_path: Path) -> None:
    out, chance = tmp_path / "out", random.Random(times)
    ends = [Receiver(*LOCAL, "-o", out)]
    done = threading.Event()
    problems: list[BaseException] = []

    def kill_and_restart(between: Any) -> None:
        """Kill it some rows after it has begun to write, and at once every fourth time."""
        try:
            for number in range(times):
                more = 0 if number % 4 == 3 else chance.randint(1, truth.made // times)
                target = min(rows_written(out) + more, truth.made)
                until(lambda target=target: rows_written(out) >= target, 120)
                time.sleep(chance.uniform(0, 0.03))
                between.target = None
                os.kill(ends[-1].process.pid, signal.SIGKILL)
                ends[-1].process.wait()
                ends.append(Receiver(*LOCAL, "-o", out))
                between.target = ends[-1].address
        except BaseException as error:
            problems.append(error)
        finally:
            done.set()

    def last(number: int, frame: bytes) -> list[bytes]:
        """Keep the last message back until the last kill."""
        if frame[4] == FrameKind.END:
            done.wait(300)
        return [frame]

    try:
        with relay(ends[0].address, last) as between:
            killer = threading.Thread(target=kill_and_restart, args=(between,))
            killer.start()
            outcome, summary = trained(tmp_path / "run", port=between.port, online_drain=300)
            killer.join()
            code, printed = ends[-1].end()
    finally:
        for end in ends:
            end.kill()
    assert not problems and len(ends) == times + 1
    told = check(truth, outcome, summary, out)
    assert told["judged"] == truth.made and all_is_known(told), told
    assert len(list(out.glob("online_*.json"))) == 1 and not list(out.glob(".*"))
    assert all(any("probe resumes" in line for line in end.said) for end in ends[1:])
    assert code == EXIT_FINISHED, (printed, ends[-1].said)
    assert printed.splitlines()[0] == truth.sentence()


TRAINING = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from support.runs.faulty import trained
def wait(step):
    print("step", step, flush=True)
    sys.stdin.readline()
trained(Path({path!r}), wait, port={port})
"""


@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_receiver_judges_a_training_that_is_killed_and_started_again(times: int, truth: Truth, tmp_path: Path) -> None:
    """Each start is a session of its own; the calls of those that were killed have the rows of the last one."""
    chance = random.Random(times)
    with receiving(tmp_path / "out", patience=1.0) as end:
        waiting = Client(end.address, rank=1)  # or the receiver ends between two starts
        for number in range(times):
            kill_a_training(tmp_path / f"run{number}", end.address[1], chance.uniform(0, 0.1), tmp_path / "out")
        outcome, summary = trained(tmp_path / "run", port=end.address[1])
        waiting.end(0)
        verdict = end.verdict()
    (state,) = (tmp_path / "out").glob("online_*.json")
    sessions = next(one for one in json.loads(state.read_text())["ranks"] if one["rank"] == 0)["sessions"]
    assert len(sessions) == times + 1
    for session, account in sessions.items():
        rows = rows_in(tmp_path / "out", session=session)
        assert account["judged"] == len(rows)
        assert all(truth.rows[key] == found for key, found in rows.items())
        assert account["ended"] is (session == summary["session"])
    assert rows_in(tmp_path / "out", session=summary["session"]) == truth.rows
    assert training.differences(truth.outcome, outcome) == []
    assert "no call of" in verdict and "rank 0 in session 1 (" in verdict
    assert verdict.endswith(" sent no final message")


def kill_a_training(path: Path, port: int, seconds: float, out: Path) -> None:
    """Kill a training while it sends the calls of its second step."""
    written = rows_written(out)
    script = TRAINING.format(tests=str(TESTS), path=str(path), port=port)
    pipe = subprocess.PIPE
    process = PreloadedPopen([sys.executable, "-c", script], stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        assert process.stdout is not None and process.stdin is not None
        while b"step 0" not in (line := process.stdout.readline()):
            assert line, process.stderr and process.stderr.read()
        until(lambda: rows_written(out) > written + 4)
        process.stdin.write(b"\n")
        process.stdin.flush()
        time.sleep(seconds)
    finally:
        process.kill()
        process.wait()


# -- a full disk -----------------------------------------------------------------------------------


def test_a_full_disk_of_the_receiver_in_mid_training(truth: Truth, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with receiver(*LOCAL, "-o", out) as full, relay(full.address) as between:

        def fill(step: int) -> None:
            if step == 0:
                until(lambda: rows_written(out) > 5)
                size = max(path.stat().st_size for path in out.iterdir()) + 3000
                resource.prlimit(full.process.pid, resource.RLIMIT_FSIZE, (size, size))
            if step == 1:
                code, _ = full.end()
                assert code == EXIT_USER_ERROR and "cannot be written" in "".join(full.said), full.said
                between.target = None
            if step == 2:  # somebody has made room
                ends.append(Receiver(*LOCAL, "-o", out))
                between.target = ends[0].address

        ends: list[Receiver] = []
        try:
            outcome, summary = trained(tmp_path / "run", fill, port=between.port)
            code, _ = ends[0].end()
        finally:
            for end in ends:
                end.kill()
    told = check(truth, outcome, summary, out)
    assert told["judged"] == truth.made and all_is_known(told), told
    assert code == EXIT_FINISHED


# -- strangers -------------------------------------------------------------------------------------


class Trap:
    """A pickle that leaves a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


def frame(kind: FrameKind, head: Any, *body: bytes) -> bytes:
    return b"".join(map(bytes, encode_frame(kind, head, body)))


def told_and_closed(address: tuple[str, int], data: bytes) -> bytes:
    """Send data; return the answer, which may be lost if more was sent than read."""
    answer = b""
    with suppress(ConnectionError), socket.create_connection(address, 30) as stranger:
        stranger.sendall(data)
        while part := stranger.recv(4096):
            answer += part
    return answer


def test_strangers_while_a_training_sends(truth: Truth, tmp_path: Path) -> None:
    trap = tmp_path / "trapped"
    poison = pickle.dumps(Trap(trap))
    hello = {"version": 1, "session": "5e" * 16, "rank": 7, "framework": "pytorch", "versions": {}}
    strangers = {
        "rubbish": random.Random(2).randbytes(5000),
        "HTTP": b"POST / HTTP/1.1\r\nContent-Length: 9999999999\r\n\r\n",
        "TLS": bytes.fromhex("160301020001") + bytes(600),
        "a pickle": poison + bytes(40),
        "a pickle with its length, as sockets of other tools send it": struct.pack(">Q", len(poison))
        + poison
        + bytes(40),
        "a head of 2 GB": PREFIX.pack(b"PRB1", FrameKind.HELLO, bytes(3), 1 << 31, 0, 0),
        "a body of 2 GB": PREFIX.pack(b"PRB1", FrameKind.HELLO, bytes(3), 10, 1 << 31, 0),
        "a call at once": frame(FrameKind.CALL, {"seq": 0}, poison),
        "a pickle for a head": frame(FrameKind.HELLO, poison),
        "a list for a head": frame(FrameKind.HELLO, b"[1]"),
        "a rank that is none": frame(FrameKind.HELLO, {**hello, "rank": -1}),
        "a session that is a path": frame(FrameKind.HELLO, {**hello, "session": 5}),
        "a deep head": frame(FrameKind.HELLO, b"[" * 60000),
    }
    tensor = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "data_name": "x.pt"}
    command = {"type": "str", "value": f"touch {trap}"}
    record = {"input_args": [tensor, command], "input_kwargs": {}, "output": [tensor]}
    header = b'{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    tensors = struct.pack("<Q", len(header)) + header + bytes(8)
    wrong = {
        "Torch.relu.0": poison,
        "Torch.relu.1": struct.pack("<Q", 1 << 62) + bytes(80),
        "Torch.relu.2": tensors[:-3],
        "Torch.load.0": tensors,
        "Torch.os.system.0": tensors,
        "Torch.relu.__class__.0": tensors,
        "os.system.0": tensors,
        "../../etc.relu.0": tensors,
    }
    answers: dict[str, bytes] = {}
    with receiving(tmp_path / "out") as end:

        def knock(step: int) -> None:
            if step == 0:
                for what, data in strangers.items():
                    answers[what] = told_and_closed(end.address, data)
            if step == 1:  # one that says the right words, and sends a pickle in place of tensors
                insider = Client(end.address, rank=7)
                for seq, (name, body) in enumerate(wrong.items()):
                    head = encode_call_head(seq, 0, 7, f"{name}.forward", json.dumps(record))
                    insider.call(frame(FrameKind.CALL, head, body))
                insider.wait_for(len(wrong))
                insider.end(len(wrong))

        outcome, summary = trained(tmp_path / "run", knock, port=end.address[1])
    told = check(truth, outcome, summary, tmp_path / "out")
    assert told["judged"] == truth.made and all_is_known(told), told
    assert not trap.exists()
    heard = "".join(end.heard)
    assert "announces a head of 2,147,483,648 bytes" in heard and "announces a body of 2,147,483,648" in heard
    assert all(b"text" in answer for answer in answers.values() if answer) and len(answers) == len(strangers)
    assert sum(map(bool, answers.values())) > len(strangers) // 2
    assert "INCOMPLETE" not in end.verdict()
    judged = rows_in(tmp_path / "out", rank=7)
    assert {name for _, name in judged} == set(wrong)
    assert {rows[0]["Forward Test Success"] for rows in judged.values()} == {"SKIP"}


def test_a_thousand_connections_while_a_training_sends(truth: Truth, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    more = hard if hard != resource.RLIM_INFINITY else 4096
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(more, 4096)), hard))
    number = min(1000, max(soft, min(more, 4096)) // 3)
    opened: list[socket.socket] = []
    try:
        with receiving(tmp_path / "out") as end:

            def knock(step: int) -> None:
                for count in range(number // 2 if step < 2 else 0):
                    opened.append(socket.create_connection(end.address, 30))
                    if count % 2:
                        opened[-1].sendall(b"PRB1")  # the beginning of a frame

            outcome, summary = trained(tmp_path / "run", knock, port=end.address[1])
    finally:
        for each in opened:
            each.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(opened) >= 300
    told = check(truth, outcome, summary, tmp_path / "out")
    assert told["judged"] == truth.made and all_is_known(told), told
    assert "did not say who they are" in "".join(end.heard) and "INCOMPLETE" not in end.verdict()
