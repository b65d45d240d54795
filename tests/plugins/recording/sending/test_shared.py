"""Sending through a shared directory: whole files only, within a quota, and nothing raised if it fails."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from probe_recording.sending import shared, transport
from probe_recording.sending.body import SentTensor, SentTensors
from probe_recording.sending.message import FrameKind, parse_call, parse_frame_file
from probe_recording.sending.sender import Sender
from probe_recording.sending.shared import SharedName, parse_shared_name
from probe_recording.settings.destination import Destination

from probe_core.errors import UserError

NAMES = [f"Functional.linear.{i}.forward" for i in range(10)]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "FIRST_PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(transport, "MAX_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(shared, "FULL_DIRECTORY_POLL_SECONDS", 0.02)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Sender]]:
    made: list[Sender] = []

    def sender(**fields: Any) -> Sender:
        place = Destination(shared=tmp_path / "shared", **{"drain": 10, **fields})
        made.append(Sender(place, 3, "pytorch", {"probe": "0"}))
        return made[-1]

    (tmp_path / "shared").mkdir()
    yield sender
    for each in made:
        each._transport.stop()


def put(sender: Sender, names: list[str] = NAMES, size: int = 1000) -> None:
    for name in names:
        assert sender.outbox.reserve(size) is None
        sender.outbox.put(0, name, {}, [SentTensor("x", "uint8", (size,), bytes(size))], size)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def files(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "shared").iterdir())


def test_names_are_parsed_as_they_are_written() -> None:
    session = "0123456789abcdef" * 2
    for name in (
        SharedName(session, 0, FrameKind.CALL, 7),
        SharedName(session, 12, FrameKind.HELLO, -1),
        SharedName(session, 12, FrameKind.TALLY, -1),
        SharedName(session, 12, FrameKind.END, -1),
    ):
        assert parse_shared_name(str(name)) == name
    good = f"{session}.r0.0000000007.prb"
    assert parse_shared_name(good)
    for wrong in (f".{good}.part", good[1:], good + "x", "x.pt", f"{session}.r0.7.prb", f"../{good}", ""):
        assert parse_shared_name(wrong) is None


def test_each_frame_is_a_whole_file(make: Callable[..., Sender], tmp_path: Path) -> None:
    sender = make()
    put(sender)
    summary = sender.finish(tmp_path)
    assert summary is not None and summary.is_complete
    frames = {}
    for path in (tmp_path / "shared").iterdir():
        name = parse_shared_name(path.name)
        assert name is not None and (name.session, name.rank) == (sender._session, 3)
        frames[name.kind, name.seq] = frame = parse_frame_file(path.read_bytes())
        assert frame.kind is name.kind
        if name.kind is FrameKind.CALL:
            assert parse_call(frame).seq == name.seq and SentTensors(frame.body).names == ["x"]
    assert len(frames) == len(NAMES) + 2
    assert frames[FrameKind.HELLO, -1].head["rank"] == 3
    assert frames[FrameKind.END, -1].head == {"queued": {"Functional.linear": 10}, "dropped": {}}
    assert '"stored"' in (tmp_path / "online_rank3.json").read_text()


def test_a_quota_bounds_what_waits_for_a_receiver(make: Callable[..., Sender], tmp_path: Path) -> None:
    sender = make(disk=3500)
    put(sender)
    until(lambda: len(files(tmp_path)) == 3)  # the hello and two calls of 1,200 bytes with their heads
    time.sleep(0.2)
    assert len(files(tmp_path)) == 3
    seen: set[str] = set()

    def take() -> bool:
        for name in files(tmp_path):
            parsed = parse_shared_name(name)
            if parsed is not None and parsed.kind is FrameKind.CALL:
                seen.add(name)
                (tmp_path / "shared" / name).unlink()
        return len(seen) == len(NAMES)

    until(take)
    summary = sender.finish(tmp_path)
    assert summary is not None and summary.is_complete


def test_a_directory_that_is_not_there_or_cannot_be_written(
    make: Callable[..., Sender], tmp_path: Path, capfd: Any
) -> None:
    (tmp_path / "shared").rmdir()
    with pytest.raises(UserError, match=r"no directory .*shared"):
        make()
    (tmp_path / "shared").mkdir()
    sender = make()
    until(lambda: bool(list((tmp_path / "shared").glob("*.hello.prb"))))
    shutil.rmtree(tmp_path / "shared")
    put(sender)
    until(lambda: sender._transport.problem is not None)
    assert "cannot be written" in (sender._transport.problem or "")
    (tmp_path / "shared").mkdir()
    summary = sender.finish(tmp_path)
    assert summary is not None and summary.is_complete
    text = capfd.readouterr().err
    assert text.count("The training goes on") == 1 and text.count("again.") == 1


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.ESTALE, errno.EIO])
def test_a_disk_that_fails(
    number: int, make: Callable[..., Sender], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    sync, failures = os.fsync, [0]

    def fail(descriptor: int) -> None:
        failures[0] += 1
        if failures[0] in (3, 4, 6):
            raise OSError(number, os.strerror(number))
        sync(descriptor)

    monkeypatch.setattr(shared.os, "fsync", fail)
    sender = make()
    put(sender)
    summary = sender.finish(tmp_path)
    assert summary is not None and summary.is_complete
    calls = [parse_frame_file((tmp_path / "shared" / name).read_bytes()) for name in files(tmp_path)]
    assert sorted(parse_call(c).seq for c in calls if c.kind is FrameKind.CALL) == list(range(len(NAMES)))
    assert os.strerror(number) in capfd.readouterr().err


def test_a_disk_that_stays_full(
    make: Callable[..., Sender], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shared.os, "fsync", fail)
    sender = make(drain=0.5)
    put(sender)
    summary = sender.finish(tmp_path)
    assert summary is not None and summary.waiting.total() == 10
    assert files(tmp_path) == []  # no torn file stays
    assert "No space left on device" in capfd.readouterr().err


def test_a_sender_shows_again_and_again_that_it_is_alive(
    make: Callable[..., Sender], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Receivers remove what a sender that is silent for days has left."""
    monkeypatch.setattr(shared, "HELLO_INTERVAL_SECONDS", 0.05)
    monkeypatch.setattr(shared, "TALLY_INTERVAL_SECONDS", 0.05)
    put(make(), NAMES[:1])
    until(lambda: any(name.endswith(".hello.prb") for name in files(tmp_path)))
    (hello,) = (tmp_path / "shared").glob("*.hello.prb")
    first = hello.stat().st_mtime_ns
    until(lambda: hello.stat().st_mtime_ns > first)
    hello.unlink()
    until(hello.exists)
