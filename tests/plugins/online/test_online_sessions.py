"""Two sessions of one rank, as of a training that is started again: both are judged, and told apart."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from probe_recording.sending.message import FrameKind, encode_frame, parse_call, parse_frame_file
from support.probe import Probe
from support.runs.receiving import RESULTS, Client, receiver, result_rows, send_over

from probe_core.terminal.exit_codes import EXIT_FINDINGS, EXIT_FINISHED

LOCAL = ("--listen", "127.0.0.1:0", "--lang", "en")
FIRST, SECOND = "a1" * 16, "b2" * 16
WRONG = "Functional.softmax.2"
"""The call whose output is wrong in the frames of the second session."""


def correct(frames: Iterable[bytes]) -> list[bytes]:
    """Return the frames of the calls with a right output."""
    return [frame for frame in frames if parse_call(parse_frame_file(frame)).name != f"{WRONG}.forward"]


def statuses(out: Path, session: str) -> dict[str, str]:
    """Return the status of each call of a session in the result files."""
    rows = result_rows(out)
    found = [row for name in RESULTS for row in rows.get(name.format(0), []) if row["Session"] == session]
    return {row.get("API name") or row["API Name"]: row["Forward Test Success"].strip() for row in found}


def test_receiver_judges_the_calls_of_a_second_session(frames: list[bytes], tmp_path: Path) -> None:
    same = correct(frames)
    with receiver(*LOCAL, "-o", tmp_path, "--fail-on", "error") as found:
        first, second = Client(found.address, session=FIRST), Client(found.address, session=SECOND)
        for frame in same:
            first.call(frame)
        first.wait_for(len(same))
        verdicts_of_first = first.end(len(same)).head["verdicts"]
        verdicts_of_second = send_over(second, frames).head["verdicts"]
        code, printed = found.end()
    assert code == EXIT_FINDINGS, found.said
    assert "error" not in verdicts_of_first
    assert verdicts_of_second["error"] == {"Functional.softmax": 1}
    assert sum(verdicts_of_second["pass"].values()) == len(same)
    assert set(statuses(tmp_path, FIRST).values()) == {"pass"}
    assert statuses(tmp_path, SECOND) == {**statuses(tmp_path, FIRST), WRONG: "error"}
    lines = printed.splitlines()
    assert lines[0] == (
        f"probe: rank 0 in session 2 (b2b2b2b2), step 0: {WRONG} is the only call in error; "
        f"{len(same) + len(frames)} calls were judged"
    )
    assert f"  rank 0 in session 1 (a1a1a1a1): 0 error, 0 warning, {len(same)} pass, 0 SKIP" in lines
    assert f"  rank 0 in session 2 (b2b2b2b2): 1 error, 0 warning, {len(same)} pass, 0 SKIP" in lines
    assert any("Rank 0 has a further session (2: b2b2b2b2)" in line for line in found.said)
    (state,) = tmp_path.glob("online_*.json")
    (rank,) = json.loads(state.read_text())["ranks"]
    assert [one["judged"] for one in rank["sessions"].values()] == [len(same), len(frames)]
    assert rank["judged"] == len(same) + len(frames) and rank["first_error"]["session"] == SECOND


def test_receiver_judges_a_second_session_of_a_shared_directory(frames: list[bytes], tmp_path: Path) -> None:
    shared, out = tmp_path / "shared", tmp_path / "out"
    shared.mkdir()

    def put(session: str, tag: str, content: bytes) -> None:
        part = shared / f".{session}.{tag}.part"
        part.write_bytes(content)
        part.rename(shared / f"{session}.r0.{tag}.prb")

    def message(kind: FrameKind, **head: object) -> bytes:
        return b"".join(map(bytes, encode_frame(kind, head)))

    with receiver("--watch", shared, "-o", out, "--lang", "en", "--patience", "60") as found:
        for session, calls in ((FIRST, correct(frames)), (SECOND, frames)):
            hello = {"version": 1, "session": session, "rank": 0, "framework": "pytorch", "versions": {}}
            put(session, "hello", message(FrameKind.HELLO, **hello))
            for frame in calls:
                put(session, f"{parse_call(parse_frame_file(frame)).seq:010d}", frame)
        for session, calls in ((FIRST, correct(frames)), (SECOND, frames)):
            put(session, "end", message(FrameKind.END, queued={"Torch.any": len(calls)}, dropped={}))
        code, printed = found.end()
    assert code == EXIT_FINISHED, found.said
    assert set(statuses(out, FIRST).values()) == {"pass"}
    assert statuses(out, SECOND) == {**statuses(out, FIRST), WRONG: "error"}
    assert printed.startswith(f"probe: rank 0 in session 2 (b2b2b2b2), step 0: {WRONG} is the only call")


def test_receiver_that_is_started_again_keeps_sessions_apart(frames: list[bytes], tmp_path: Path) -> None:
    with receiver(*LOCAL, "-o", tmp_path) as found:
        first, second = Client(found.address, session=FIRST), Client(found.address, session=SECOND)
        for client in (first, second):
            for frame in frames[:2]:
                client.call(frame)
            client.wait_for(2)
        os.kill(found.process.pid, 9)
    with receiver(*LOCAL, "-o", tmp_path) as found:
        assert any("4 calls were judged earlier" in line for line in found.said), found.said
        first, second = Client(found.address, session=FIRST), Client(found.address, session=SECOND)
        first.call(frames[0])  # its answer was lost
        first.wait_for(1)
        ended = first.end(2).head["verdicts"]
        for frame in frames[2:]:
            second.call(frame)
        second.wait_for(len(frames) - 2)
        second.end(len(frames))
        code, printed = found.end()
    assert code == EXIT_FINISHED, (found.said, printed)
    assert sum(ended["pass"].values()) == 2
    assert len(statuses(tmp_path, FIRST)) == 2 and len(statuses(tmp_path, SECOND)) == len(frames)
    assert "INCOMPLETE" not in printed


def test_receiver_refuses_the_files_of_an_earlier_version(probe: Probe, tmp_path: Path) -> None:
    (tmp_path / "online_20260101000000.json").write_text('{"schema": 1, "state": "running", "ranks": []}')
    assert probe("run-ut", "-d", "cpu", *LOCAL, "-o", tmp_path) == 2
    assert "is not the state of a receiver of this version" in probe.err and "-o" in probe.err
