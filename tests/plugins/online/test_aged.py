"""The age limit of a shared directory: what is removed, what stays, and by whose clock."""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path

import pytest
from probe_online.aged import DAY_SECONDS, RemovalCounts, SenderPlace, find_senders_with_calls, remove_aged

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
