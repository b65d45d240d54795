"""The receiver of a shared directory: claims, set-aside files, and two receivers at one directory."""

from __future__ import annotations

import json
import os
import time
import uuid
from pathlib import Path

import pytest
from probe_recording.sending.message import FrameKind, encode_frame
from support.runs.receiving import names_in, receiver, result_rows

from probe_core.terminal.exit_codes import EXIT_DATA_LOST, EXIT_FINISHED

SESSION = uuid.UUID(int=7).hex


def put(directory: Path, tag: str, frame: bytes, session: str = SESSION) -> Path:
    """Write a file as a sender does: under its final name when it is whole."""
    part, path = (directory / name for name in (f".{session}.{tag}.part", f"{session}.r0.{tag}.prb"))
    part.write_bytes(frame)
    part.rename(path)
    return path


def frame(kind: FrameKind, **head: object) -> bytes:
    return b"".join(map(bytes, encode_frame(kind, head)))


def hello(session: str = SESSION) -> bytes:
    return frame(FrameKind.HELLO, version=1, session=session, rank=0, framework="pytorch", versions={})


def end(count: int) -> bytes:
    return frame(FrameKind.END, queued={"Torch.any": count}, dropped={})


def test_files_are_judged_once_and_removed_and_what_is_torn_is_set_aside(frames: list[bytes], tmp_path: Path) -> None:
    shared, out = tmp_path / "shared", tmp_path / "out"
    shared.mkdir()
    put(shared, f"{0:010d}", frames[0])  # before its first message is listed
    (shared / "mine.txt").write_text("mine")
    (shared / "strange.prb").write_bytes(b"strange")
    (shared / f"{SESSION}.r0.{9:010d}.prb").symlink_to("/etc/passwd")
    with receiver("--watch", shared, "-o", out, "--lang", "en", "--patience", "3") as found:
        put(shared, "hello", hello())
        for seq, content in enumerate(frames[1:6], 1):
            put(shared, f"{seq:010d}", content)
        put(shared, f"{6:010d}", frames[6][:-1])  # torn
        put(shared, f"{7:010d}", frames[8])  # under the name of another call
        put(shared, "end", end(8))
        code, printed = found.end()
    assert code == EXIT_DATA_LOST, found.said
    first = printed.splitlines()[0]
    assert "2 calls did not arrive or were not judged" in first, printed
    assert len(names_in(result_rows(out))) == 6
    aside = {path.name for path in (shared / "set_aside").iterdir()}
    torn, other = (f"{SESSION}.r0.{seq:010d}.prb" for seq in (6, 7))
    assert {torn, f"{torn}.reason.txt", other, "strange.prb", "strange.prb.reason.txt"} <= aside
    assert "cut off" in (shared / "set_aside" / f"{torn}.reason.txt").read_text()
    assert (shared / "mine.txt").read_text() == "mine"
    assert not [path for path in shared.glob("*.r0.000*.prb") if path.is_file() and not path.is_symlink()]


def test_two_receivers_share_a_directory_and_one_that_is_killed_goes_on(frames: list[bytes], tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    outs = [tmp_path / "a", tmp_path / "b"]
    put(shared, "hello", hello())
    with receiver("--watch", shared, "-o", outs[0], "--window", "2e9") as first:
        for seq, content in enumerate(frames):
            put(shared, f"{seq:010d}", content)
        until = time.monotonic() + 60
        while not list(outs[0].glob("*_rank0.csv")) and time.monotonic() < until:
            time.sleep(0.01)
        os.kill(first.process.pid, 9)
    with (
        receiver("--watch", shared, "-o", outs[0], "--patience", "40") as first,
        receiver("--watch", shared, "-o", outs[1], "--patience", "40") as second,
    ):
        put(shared, "end", end(len(frames)))
        codes = [found.end()[0] for found in (first, second)]
    assert codes == [EXIT_FINISHED, EXIT_FINISHED], (first.said, second.said)
    names = [name for out in outs for name in names_in_either(out)]
    assert sorted(names) == sorted(set(names)) and len(names) == len(frames)
    assert not [path.name for path in shared.iterdir() if ".work" in path.name or ".r0.000" in path.name]
    for out in outs:
        (state,) = out.glob("online_*.json")
        assert json.loads(state.read_text())["state"] == "finished"


@pytest.mark.parametrize("size", [0, 5])
def test_a_receiver_that_was_killed_within_a_header_goes_on(size: int, frames: list[bytes], tmp_path: Path) -> None:
    shared, out = tmp_path / "shared", tmp_path / "out"
    shared.mkdir()
    put(shared, "hello", hello())
    put(shared, f"{0:010d}", frames[0])
    with receiver("--watch", shared, "-o", out, "--lang", "en", "--patience", "3") as first:
        until = time.monotonic() + 120
        while any(f".{0:010d}.prb" in path.name for path in shared.iterdir()) and time.monotonic() < until:
            time.sleep(0.01)  # the call is removed once its row is written
        os.kill(first.process.pid, 9)
    for path in out.glob("*_rank0.csv"):
        path.write_bytes(path.read_bytes()[:size])
    put(shared, f"{1:010d}", frames[1])
    with receiver("--watch", shared, "-o", out, "--lang", "en", "--patience", "3") as second:
        put(shared, "end", end(2))
        code, _ = second.end()
    assert "error: " not in "".join(second.said) and code == EXIT_DATA_LOST
    assert len(names_in(result_rows(out))) == 1, "the row that was cut is lost, and the next call has its own"


def test_a_directory_is_used_again(frames: list[bytes], tmp_path: Path) -> None:
    """Files of an earlier training do not end a receiver before the next training begins."""
    shared = tmp_path / "shared"
    shared.mkdir()
    for turn in (1, 2):
        session, out = uuid.UUID(int=turn).hex, tmp_path / str(turn)
        with receiver("--watch", shared, "-o", out, "--lang", "en", "--patience", "40") as found:
            time.sleep(1.0)  # it has looked at what is there
            put(shared, "hello", hello(session), session)
            for seq, content in enumerate(frames[:3]):
                put(shared, f"{seq:010d}", content, session)
            put(shared, "end", end(3), session)
            code, printed = found.end()
        assert code == EXIT_FINISHED, found.said
        assert printed.splitlines()[0].startswith("probe: no call of 3 judged is in error"), printed
        assert any("was used before: 1 sender" in line for line in found.said) == (turn == 2)


def test_a_receiver_removes_what_a_training_left_long_ago(frames: list[bytes], tmp_path: Path) -> None:
    """A training that was killed left no last message; the receiver does not wait for it."""
    shared, gone, refused = tmp_path / "shared", uuid.UUID(int=1).hex, uuid.UUID(int=2).hex
    shared.mkdir()
    mindspore = frame(FrameKind.HELLO, version=1, session=refused, rank=0, framework="mindspore", versions={})
    old = [put(shared, "hello", hello(gone), gone), put(shared, "tally", end(1), gone)]
    old += [put(shared, "hello", mindspore, refused), put(shared, f"{0:010d}", frames[0], refused)]
    for path in old:
        os.utime(path, (0, 0))
    with receiver("--watch", shared, "-o", tmp_path / "out", "--max-age", "2") as found:
        put(shared, "hello", hello())
        put(shared, f"{0:010d}", frames[0])
        put(shared, "end", end(1))
        assert found.end()[0] == EXIT_FINISHED, found.said
    said = [line for line in found.said if "removed from" in line]
    assert len(said) == 2, found.said
    assert "2 files of trainings that wrote nothing for 2 days removed from " in said[0]
    assert said[1].rstrip().endswith(", 1 call among them that nobody judged.")
    assert not any(path.exists() for path in old)


def names_in_either(out: Path) -> list[str]:
    """Return the names of the calls with a row, whatever the language of the file."""
    rows = result_rows(out)
    return [row.get("API name") or row["API Name"] for name in rows if "_result_" in name for row in rows[name]]
