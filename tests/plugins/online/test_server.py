"""The receiver over TCP: rows of every call, whatever ends it or is sent to it."""

from __future__ import annotations

import json
import os
import pickle
import resource
import socket
import struct
import time
from pathlib import Path

import pytest
from probe_recording.sending.message import PREFIX, FrameKind
from support.probe import Probe
from support.runs.receiving import RESULTS, Client, names_in, receiver, result_rows, send_all
from support.runs.sent import with_rank

from probe_core.terminal.exit_codes import EXIT_DATA_LOST, EXIT_FINISHED, EXIT_INTERRUPTED, EXIT_USER_ERROR

LOCAL = ("--listen", "127.0.0.1:0", "--lang", "en")


def test_a_training_over_tcp_and_what_is_said_of_it(frames: list[bytes], tmp_path: Path) -> None:
    with receiver(*LOCAL, "-o", tmp_path) as found:
        ended = send_all(found.address, frames)
        code, printed = found.end()
    assert code == EXIT_FINISHED, found.said
    assert printed.splitlines()[0] == (
        f"probe: rank 0, step 0: Functional.softmax.2 is the only call in error; {len(frames)} calls were judged"
    )
    assert ended.head["verdicts"]["error"] == {"Functional.softmax": 1}
    rows = result_rows(tmp_path)
    names = names_in(rows)
    assert len(names) == len(set(names)) == len(frames)
    wrong = [row for row in rows[RESULTS[1].format(0)] if row["Forward Test Success"] == "error"]
    assert [row["API Name"] for row in wrong] == ["Functional.softmax.2"]
    (state,) = tmp_path.glob("online_*.json")
    assert json.loads(state.read_text())["state"] == "finished"
    assert not list(tmp_path.glob(".*"))


def test_a_receiver_that_is_killed_goes_on_without_loss_or_repetition(frames: list[bytes], tmp_path: Path) -> None:
    session, left = "5e" * 16, dict(enumerate(frames))
    for round_ in range(5):
        with receiver(*LOCAL, "-o", tmp_path) as found:
            assert any("probe resumes" in line for line in found.said) == (round_ > 0)
            client = Client(found.address, session=session)
            for seq in list(left):
                client.call(left[seq])
            target = 2 + round_
            while len(client.done) < min(target, len(left)):
                client.read()
            for seq in client.done:
                left.pop(seq)  # what is not acknowledged is sent again
            os.kill(found.process.pid, 9)
            client.socket.close()
    with receiver(*LOCAL, "-o", tmp_path) as found:
        client = Client(found.address, session=session)
        for frame in left.values():
            client.call(frame)
        client.wait_for(len(left))
        client.end(len(frames))
        code, printed = found.end()
    assert code == EXIT_FINISHED, (found.said, printed)
    assert "Functional.softmax.2 is the only call in error" in printed.splitlines()[0]
    names = names_in(result_rows(tmp_path))
    assert len(names) == len(set(names)) == len(frames)
    assert len(list(tmp_path.glob("online_*.json"))) == 1


def test_rubbish_at_the_port_disturbs_nobody(frames: list[bytes], tmp_path: Path) -> None:
    huge = PREFIX.pack(b"PRB1", FrameKind.HELLO, bytes(3), 1 << 31, 1 << 40, 0)
    rubbish = [
        b"GET / HTTP/1.1\r\n\r\n" * 4,
        os.urandom(4096),
        pickle.dumps({"a": 1}) * 20,
        struct.pack(">4Q", 100, 0, 0, 0) + b"0" * 32,
        huge,
    ]
    with receiver(*LOCAL, "-o", tmp_path) as found:
        client = Client(found.address)
        for frame in frames[:4]:
            client.call(frame)
        strangers = []
        for data in rubbish:
            with socket.create_connection(found.address, 10) as stranger:
                stranger.sendall(data)
                while stranger.recv(4096):  # told why, and closed
                    pass
        for _ in range(600):  # more idle ones than may wait
            strangers.append(socket.create_connection(found.address, 10))
        for frame in frames[4:]:
            client.call(frame)
        damaged = bytearray(frames[0])
        damaged[-1] ^= 1
        client.wait_for(len(frames))
        client.call(bytes(damaged))
        answer = client.read()
        assert (answer.kind, answer.head) == (FrameKind.AGAIN, {"place": len(frames)})
        client.end(len(frames))
        code, _ = found.end()
        for stranger in strangers:
            stranger.close()
    assert code == EXIT_FINISHED, found.said
    assert len(names_in(result_rows(tmp_path))) == len(frames)
    said = "".join(found.said)
    assert "does not begin as a frame of probe does" in said
    assert "did not say who they are" in said
    assert "announces a head of 2,147,483,648 bytes" in said


def test_who_is_not_wanted_is_told_why(frames: list[bytes], tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    section = {"is_online": True, "host": "127.0.0.1", "port": port, "rank_list": [1], "tls_path": "",
               "nfs_path": "", "white_list": ["matmul"], "black_list": []}  # fmt: skip
    config.write_text(json.dumps({"task": "run_ut", "run_ut": section}))
    with receiver("-config", config, "-o", tmp_path / "out", "--lang", "en") as found:
        for wrong, why in (
            ({"rank": 0}, "rank 0 is not in the receiver's rank_list"),
            ({"rank": 1, "framework": "mindspore"}, "its calls are of mindspore"),
            ({"rank": 1, "version": 9}, "version 9"),
        ):
            refused = Client(found.address, **wrong).first  # type: ignore[arg-type]
            assert refused.kind is FrameKind.REFUSED and why in refused.head["text"]
        ended = Client(found.address, rank=1)
        ended.call(frames[0].replace(b'"rank": 0', b'"rank": 1'))  # the checksum does not fit any more
        assert ended.read().kind is FrameKind.AGAIN
        code, printed = found.interrupt()
    assert code == EXIT_INTERRUPTED
    assert "no call was judged" in printed.splitlines()[0]
    assert any("PLAIN TEXT" in line for line in found.said)


def test_what_is_not_known_is_in_the_first_sentence(frames: list[bytes], tmp_path: Path) -> None:
    with receiver(*LOCAL, "-o", tmp_path, "--patience", "1") as found:
        client = Client(found.address)
        for frame in frames[:5]:
            client.call(frame)
        client.wait_for(5)
        client.send(FrameKind.TALLY, {"queued": {"Torch.any": 9}, "dropped": {"Torch.matmul": 3}})
        time.sleep(0.2)
        client.socket.close()
        code, printed = found.end()
    assert code == EXIT_DATA_LOST
    assert printed.splitlines()[0] == (
        "probe: no call of 5 judged is in error; INCOMPLETE: 3 calls were dropped by the training, "
        "4 calls did not arrive or were not judged, rank 0 sent no final message"
    )


def test_the_state_of_a_receiver_can_be_asked_for(
    frames: list[bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    probe = Probe(capsys)
    with receiver(*LOCAL, "-o", tmp_path) as found:
        client = Client(found.address)
        client.call(frames[0])
        client.wait_for(1)
        assert probe("run-ut", "--status", f"127.0.0.1:{found.address[1]}") == EXIT_FINISHED
        state = json.loads(probe.out)
        assert state["state"] == "running" and state["ranks"][0]["judged"] == 1
        client.end(1)
        found.end()


def test_two_ranks_have_files_of_their_own(frames: list[bytes], tmp_path: Path) -> None:
    with receiver(*LOCAL, "-o", tmp_path, "--workers", "2") as found:
        first, second = Client(found.address), Client(found.address, rank=1)
        for frame in frames:
            first.call(frame)
            second.call(with_rank(frame, 1))
        first.wait_for(len(frames))
        first.end(len(frames))
        second.wait_for(len(frames))
        second.end(len(frames))
        code, printed = found.end()
    assert code == EXIT_FINISHED, found.said
    assert "rank 0, step 0: Functional.softmax.2 is the first of 2 calls in error" in printed
    rows = result_rows(tmp_path)
    for rank in (0, 1):
        assert len(set(names_in(rows, rank))) == len(frames)


def test_a_full_disk_ends_the_receiver_and_not_the_training(frames: list[bytes], tmp_path: Path) -> None:
    with receiver(*LOCAL, "-o", tmp_path) as found:
        client = Client(found.address)
        client.call(frames[0])
        client.wait_for(1)
        size = max(path.stat().st_size for path in tmp_path.iterdir()) + 200
        resource.prlimit(found.process.pid, resource.RLIMIT_FSIZE, (size, size))
        for frame in frames[1:]:
            client.call(frame)
        with pytest.raises(EOFError):
            client.wait_for(len(frames))
        code, _ = found.end()
    assert code == EXIT_USER_ERROR
    assert "cannot be written" in "".join(found.said), found.said
    left = [frame for seq, frame in enumerate(frames) if seq not in client.done]
    assert left
    with receiver(*LOCAL, "-o", tmp_path) as found:
        again = Client(found.address, session=client.session)
        for frame in left:
            again.call(frame)
        again.wait_for(len(left))
        again.end(len(frames))
        code, printed = found.end()
    assert code == EXIT_FINISHED, (found.said, printed)
    names = names_in(result_rows(tmp_path))
    assert len(names) == len(set(names)) == len(frames)


def test_a_missing_device_is_told_of_before_calls_are_expected(probe: Probe, tmp_path: Path) -> None:
    assert probe("run-ut", "--listen", "127.0.0.1:0", "-d", "9999", "-o", tmp_path / "out") == 2
    assert "waits for calls" not in probe.out + probe.err and "device 9999" in probe.err
    assert not list((tmp_path / "out").glob("online_*"))
