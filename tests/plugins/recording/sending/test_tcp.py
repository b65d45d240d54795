"""Sending over TCP to receivers that behave and that do not: nothing raised, nothing lost, nothing twice."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from probe_recording.sending import tcp, transport
from probe_recording.sending.body import SentTensor
from probe_recording.sending.outbox import CALL_OVERHEAD_BYTES
from probe_recording.sending.sender import Sender, SendingSummary
from probe_recording.sending.tls import create_receiver_context
from probe_recording.settings.destination import Destination
from support.receiving import Receiver, certificate, receiver

from probe_core.errors import UserError

NAMES = [f"Functional.linear.{i}.forward" for i in range(20)]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts follow each other at once."""
    monkeypatch.setattr(transport, "FIRST_PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(transport, "MAX_PAUSE_SECONDS", 0.05)


Make = Callable[..., Sender]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Sender] = []

    def sender(to: Receiver | int, **fields: Any) -> Sender:
        port = to if isinstance(to, int) else to.port
        made.append(Sender(Destination("127.0.0.1", port, **{"drain": 20, **fields}), 0, "pytorch", {}))
        return made[-1]

    yield sender
    for each in made:
        each._transport.stop()


def put(sender: Sender, names: list[str] = NAMES, size: int = 1000) -> None:
    for name in names:
        assert sender.outbox.reserve(size) is None
        tensors = [SentTensor(f"{name}.input.0", "uint8", (size,), name.encode().ljust(size))]
        sender.outbox.put(0, name, {}, tensors, size)


def finish(sender: Sender, path: Path) -> SendingSummary:
    summary = sender.finish(path)
    assert summary is not None
    written = json.loads((path / "online_rank0.json").read_text())
    assert written["complete"] == summary.is_complete
    return summary


@pytest.mark.parametrize(
    "manners",
    [
        ("good",),
        ("cut:3", "cut:5", "good"),
        ("again",),
        ("silent", "good"),
        ("rubbish", "rubbish", "good"),
        ("mute:0", "good"),
        ("wrong", "good"),
    ],
    ids=lambda manners: manners[0],
)
def test_everything_arrives_in_the_end(
    manners: tuple[str, ...], make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tcp, "HELLO_TIMEOUT_SECONDS", 0.3)
    with receiver(*manners) as end:
        sender = make(end)
        put(sender)
        if manners[0] in ("mute:0", "wrong"):  # a connection that stays open is not given up: cut it
            deadline = time.monotonic() + 10
            while len(end.calls) < len(NAMES) and time.monotonic() < deadline:
                time.sleep(0.01)
            end._connections[0].shutdown(2)
        assert sender.outbox.wait_until_empty(20)
        summary = finish(sender, tmp_path)
    assert summary.is_complete and summary.problem is None
    last = {call.name: body for call, body in end.calls}
    assert sorted(last) == sorted(NAMES)
    assert all(body.endswith(name.encode().ljust(1000)) for name, body in last.items())
    assert end.ends == [{"queued": {"Functional.linear": 20}, "dropped": {}}]
    assert {hello["session"] for hello in end.hellos} == {sender._session}
    assert summary.verdicts == {"pass": {"Functional.linear": 1}}


def test_what_was_acknowledged_is_not_sent_again(make: Make, tmp_path: Path) -> None:
    with receiver("cut:7", "good") as end:
        sender = make(end)
        put(sender)
        assert finish(sender, tmp_path).is_complete
    names = end.names
    assert set(names) == set(NAMES)
    assert names[:7] == NAMES[:7] and sorted(names[7:]) == sorted(NAMES[6:])  # the seventh was not acknowledged


def test_a_receiver_that_is_killed_and_comes_back(make: Make, tmp_path: Path, capfd: Any) -> None:
    with receiver() as first:
        sender = make(first)
        put(sender, NAMES[:10])
        assert sender.outbox.wait_until_empty(10)
        port = first.port
    put(sender, NAMES[10:])
    time.sleep(0.3)
    with receiver(port=port) as second:
        assert finish(sender, tmp_path).is_complete
    assert first.names == NAMES[:10] and second.names == NAMES[10:]
    lines = capfd.readouterr().err.splitlines()
    assert sum("The training goes on" in line for line in lines) == 1
    assert sum("calls are sent to" in line for line in lines) == 1


def test_pauses_are_short_at_the_end(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "FIRST_PAUSE_SECONDS", 100.0)
    monkeypatch.setattr(transport, "MAX_PAUSE_SECONDS", 100.0)
    with receiver() as first:
        port = first.port
    sender = make(port)
    put(sender)
    while sender._transport.problem is None:
        time.sleep(0.01)
    with receiver(port=port) as end:
        assert finish(sender, tmp_path).is_complete
    assert end.names == NAMES


def test_nobody_listens(make: Make, tmp_path: Path, capfd: Any) -> None:
    with receiver() as end:
        port = end.port
    sender = make(port, drain=0.5)
    put(sender)
    begin = time.monotonic()
    summary = finish(sender, tmp_path)
    assert 0.4 < time.monotonic() - begin < 5
    assert summary.waiting == {"Functional.linear": 20} and not summary.is_complete
    text = capfd.readouterr().err
    assert text.count("Connection refused") == 2  # once when it happened, once in the summary
    assert "not acknowledged" in text and "20 (Functional.linear 20)" in text


def test_a_receiver_that_never_answers_is_not_waited_for_long(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    monkeypatch.setattr("probe_recording.sending.sender.UNREACHED_WAIT_SECONDS", 1.5)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        sender = make(unused.getsockname()[1], drain=600)
        put(sender)
        begin = time.monotonic()
        assert not finish(sender, tmp_path).is_complete
    assert time.monotonic() - begin < 30
    assert "at most 1.5 s (online_drain)" in capfd.readouterr().err


def test_a_receiver_that_refused_may_take_calls_later(make: Make, tmp_path: Path) -> None:
    with receiver("refuse", "good") as end:
        sender, begin = make(end), time.monotonic()
        while not end.hellos[1:] and time.monotonic() - begin < 30:
            time.sleep(0.01)
        while sender.outbox.refused and time.monotonic() - begin < 30:
            time.sleep(0.01)
        put(sender)
        assert finish(sender, tmp_path).is_complete


def test_a_receiver_that_refuses_ends_the_wait(make: Make, tmp_path: Path, capfd: Any) -> None:
    with receiver("refuse") as end:
        sender = make(end)
        put(sender)
        begin = time.monotonic()
        while not sender.outbox.refused and time.monotonic() - begin < 30:
            time.sleep(0.01)
        assert sender.outbox.reserve(1) == "refused"  # nothing more is copied
        begin = time.monotonic()
        finish(sender, tmp_path)
    assert time.monotonic() - begin < 5
    assert "refuses this training: rank 7 is not in rank_list [0]" in capfd.readouterr().err


def test_calls_that_arrive_damaged_are_counted(make: Make, tmp_path: Path) -> None:
    with receiver("damaged") as end:
        sender = make(end)
        put(sender)
        summary = finish(sender, tmp_path)
    assert summary.counts.dropped == {"damaged": {"Functional.linear": 20}}
    assert end.ends[0]["dropped"] == {"Functional.linear": 20}


def test_a_slow_receiver_fills_the_memory_and_calls_are_dropped(make: Make, tmp_path: Path) -> None:
    with receiver("slow:20000000") as end:
        sender = make(end, memory=4 << 20)
        dropped = 0
        for i in range(100):
            reason = sender.outbox.reserve(1 << 20)
            if reason is not None:
                dropped += 1
                sender.outbox.drop(f"Functional.linear.{i}.forward", reason)
                continue
            data = SentTensor("x", "uint8", (1 << 20,), bytes(1 << 20))
            sender.outbox.put(0, f"Functional.linear.{i}.forward", {}, [data], 1 << 20)
            time.sleep(0.001)
        summary = finish(sender, tmp_path)
    assert dropped > 10 and len(end.calls) == 100 - dropped
    assert summary.counts.dropped == {"no room": {"Functional.linear": dropped}}
    assert end.ends == [{"queued": {"Functional.linear": 100 - dropped}, "dropped": {"Functional.linear": dropped}}]


def test_a_call_that_cannot_be_encoded_keeps_back_no_other(make: Make, tmp_path: Path) -> None:
    with receiver() as end:
        sender = make(end)
        sender.outbox.put(0, "Torch.bad.0.forward", {}, [SentTensor("x", "float32", (3,), b"1")], CALL_OVERHEAD_BYTES)
        sender.outbox.reserve(CALL_OVERHEAD_BYTES)
        put(sender)
        summary = finish(sender, tmp_path)
    assert end.names == NAMES and summary.counts.dropped == {"recorder error": {"Torch.bad": 1}}


def test_sender_drops_a_call_of_too_many_values(make: Make, tmp_path: Path) -> None:
    with receiver() as end:
        sender = make(end)
        assert sender.outbox.reserve(CALL_OVERHEAD_BYTES) is None
        sender.outbox.put(0, "Torch.cat.0.forward", {"input_args": [0] * (1 << 18)}, [], CALL_OVERHEAD_BYTES)
        put(sender)
        summary = finish(sender, tmp_path)
    assert end.names == NAMES and summary.counts.dropped == {"too large": {"Torch.cat": 1}}


def test_drain_ends_with_ctrl_c(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    with receiver("mute") as end:
        sender = make(end, drain=600)
        put(sender)

        def interrupt(timeout: float) -> bool:
            raise KeyboardInterrupt

        monkeypatch.setattr(sender._transport.done, "wait", interrupt)
        summary = finish(sender, tmp_path)
    assert summary.waiting.total() == 20
    assert "interrupted" in capfd.readouterr().err


def test_a_forked_child_says_and_sends_nothing(make: Make, tmp_path: Path) -> None:
    with receiver() as end:
        sender = make(end)
        put(sender, NAMES[:1])
        assert sender.outbox.wait_until_empty(10)
        child = os.fork()
        if child == 0:
            sender.abandon()
            os._exit(0 if sender.finish(tmp_path / "child") is None else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        put(sender, NAMES[1:])
        assert finish(sender, tmp_path).is_complete
    assert end.names == NAMES and len(end.hellos) == 1 and not (tmp_path / "child").exists()


# -- TLS -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls")
    certificate(path / "receiver", host="localhost")
    certificate(path / "other")
    certificate(path / "client", "client")
    return path


def directory(path: Path, *files: Path) -> Path:
    path.mkdir()
    for file in files:
        shutil.copy(file, path / file.name)
    return path


def test_tls_with_the_receivers_own_certificate(certificates: Path, make: Make, tmp_path: Path) -> None:
    pinned = directory(tmp_path / "sender", certificates / "receiver" / "server.crt")
    with receiver(context=create_receiver_context(certificates / "receiver")) as end:
        sender = make(end, tls=pinned)
        put(sender, size=100_000)
        assert finish(sender, tmp_path).is_complete
    assert end.names == NAMES


def test_tls_of_both_ends(certificates: Path, make: Make, tmp_path: Path) -> None:
    theirs = directory(tmp_path / "theirs", *(certificates / "receiver").iterdir(), certificates / "client/client.crt")
    mine = directory(tmp_path / "mine", theirs / "server.crt", *(certificates / "client").iterdir())
    with receiver(context=create_receiver_context(theirs)) as end:
        sender = make(end, tls=mine)
        put(sender)
        assert finish(sender, tmp_path).is_complete
        stranger = make(end, tls=directory(tmp_path / "stranger", theirs / "server.crt"), drain=0.5)
        put(stranger)
        assert stranger.finish(tmp_path).waiting.total() == 20  # type: ignore[union-attr]
    assert len(end.calls) == 20


@pytest.mark.parametrize("which", ["another certificate", "plain text to TLS", "TLS to plain text"])
def test_ends_that_do_not_fit(which: str, certificates: Path, make: Make, tmp_path: Path, capfd: Any) -> None:
    wrong = "other" if which == "another certificate" else "receiver"
    tls = directory(tmp_path / "sender", certificates / wrong / "server.crt")
    context = None if which == "TLS to plain text" else create_receiver_context(certificates / "receiver")
    with receiver(context=context) as end:
        sender = make(end, tls=None if which == "plain text to TLS" else tls, drain=0.5)
        put(sender)
        assert finish(sender, tmp_path).waiting.total() == 20
    text = capfd.readouterr().err
    if which == "another certificate":
        assert "the certificate is not accepted: self-signed certificate" in text
    if which == "TLS to plain text":
        assert "it may expect plain text" in text or "does not speak TLS" in text
    if which == "plain text to TLS":
        assert "expects TLS, and this end" in text or "it may expect TLS (tls_path, --tls DIR)" in text
    assert text.count("The training goes on") == 1 and not end.calls


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for this machine that an authority signed, and one that has expired."""
    path = tmp_path_factory.mktemp("authority")
    certificate(path, "ca")
    for name, days in (("good", "2"), ("expired", "0")):
        (path / name).mkdir()
        request = ["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1", "-addext",
                   "subjectAltName=IP:127.0.0.1", "-keyout", str(path / name / "server.key"),
                   "-out", str(path / "request")]  # fmt: skip
        sign = ["openssl", "x509", "-req", "-in", str(path / "request"), "-CA", str(path / "ca.crt"), "-CAkey",
                str(path / "ca.key"), "-CAcreateserial", "-days", days, "-copy_extensions", "copy",
                "-out", str(path / name / "server.crt")]  # fmt: skip
        for command in (request, sign):
            subprocess.run(command, check=True, capture_output=True)
        (path / name / "server.key").chmod(0o600)
    time.sleep(1.1)
    return path


def test_an_authority_signs_for_a_host(authority: Path, make: Make, tmp_path: Path, capfd: Any) -> None:
    trusting = directory(tmp_path / "sender", authority / "ca.crt")
    with receiver(context=create_receiver_context(authority / "good")) as end:
        sender = make(end, tls=trusting)
        put(sender)
        assert finish(sender, tmp_path).is_complete
        other = Sender(Destination("localhost", end.port, trusting, drain=0.5), 0, "pytorch", {})
        put(other)
        assert not finish(other, tmp_path).is_complete
    assert "Hostname mismatch" in capfd.readouterr().err
    with receiver(context=create_receiver_context(authority / "expired")) as end:
        sender = make(end, tls=trusting, drain=0.5)
        put(sender)
        assert not finish(sender, tmp_path).is_complete
    assert "the certificate is not accepted: certificate has expired" in capfd.readouterr().err


def test_a_certificate_that_is_replaced_while_the_training_runs(certificates: Path, make: Make, tmp_path: Path) -> None:
    mine = directory(tmp_path / "sender", certificates / "receiver/server.crt")
    with receiver(context=create_receiver_context(certificates / "receiver")) as first:
        sender = make(first, tls=mine)
        put(sender, NAMES[:10])
        assert sender.outbox.wait_until_empty(10)
        port = first.port
    put(sender, NAMES[10:])
    with receiver(port=port, context=create_receiver_context(certificates / "other")) as second:
        time.sleep(0.3)
        assert not second.calls  # the old certificate is trusted, and no other
        shutil.copy(certificates / "other/server.crt", mine / "server.crt")
        assert finish(sender, tmp_path).is_complete
    assert second.names == NAMES[10:]


def test_files_of_certificates_are_checked(certificates: Path, tmp_path: Path) -> None:
    for make_wrong, message in (
        (lambda path: (path / "server.key").chmod(0o640), "can be read or changed by other users"),
        (lambda path: (path / "server.key").write_text("x"), "are no certificate and its key"),
        (lambda path: (path / "server.crt").unlink(), "holds no server.crt"),
        (lambda path: (path / "ca.crt").write_text("x"), "is no certificate in the PEM format"),
    ):
        path = tmp_path / message.replace(" ", "_")
        shutil.copytree(certificates / "receiver", path)
        make_wrong(path)
        with pytest.raises(UserError, match=message):
            create_receiver_context(path)
    with pytest.raises(UserError, match=r"holds neither server\.crt nor ca\.crt"):
        Sender(Destination("127.0.0.1", 1, tmp_path), 0, "pytorch", {})
