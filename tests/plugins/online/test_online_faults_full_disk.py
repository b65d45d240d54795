"""A receiver whose disk fills up at any write: what it acknowledged is in its files, and the rest is judged later."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from probe_online.settings import ReceptionPlace
from support.faults.full_disk import ERRORS, full_disk
from support.runs.inprocess import Receiver, receiving
from support.runs.receiving import Client, names_in, result_rows
from support.sampling import places

SHORT, LONG = 3, 60
"""Number of faults that are tried: in the default suite, and in the slow one."""
SESSION = "5e" * 16


def faults(count: int, *, every: bool) -> Iterator[tuple[int, int, bool]]:
    """Yield faults: the number of the write that fails, its error, and True if only that one fails."""
    found = [(number, error, once) for number in range(count) for error in ERRORS for once in (False, True)]
    yield from (found[place - 1] for place in places(len(found), LONG if every else SHORT, "receiver"))


def send(found: Receiver, frames: Mapping[int, bytes], queued: int) -> list[int]:
    """Send calls until the receiver ends; return the numbers of those that it acknowledged."""
    done: list[int] = []
    with suppress(OSError, EOFError):
        client = Client(found.address, session=SESSION)
        done = client.done
        for frame in frames.values():
            client.call(frame)
        client.wait_for(len(frames))
        client.end(queued)
    return list(done)


def start(out: Path) -> Receiver | BaseException:
    """Start a receiver; return the error instead if it cannot begin."""
    try:
        return Receiver(ReceptionPlace("127.0.0.1", 0), out)
    except AssertionError as error:
        return error


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_receiver_with_a_full_disk_keeps_what_it_acknowledged(every: bool, frames: list[bytes], tmp_path: Path) -> None:
    out, calls = tmp_path / "out", dict(enumerate(frames))
    with full_disk(out) as disk, receiving(out) as found:
        assert len(send(found, calls, len(calls))) == len(calls)
    assert len(disk.calls) > len(frames)
    for number, error, once in faults(len(disk.calls), every=every):
        shutil.rmtree(out)
        done: list[int] = []
        with full_disk(out) as disk:
            disk.fails, disk.error, disk.once = number, error, once
            first = start(out)
            if isinstance(first, Receiver):
                done = send(first, calls, len(calls))
                first._thread.join(60)
        what = f"write {number}, {errno.errorcode[error]}{' once' if once else ''}"
        problem = first.problem if isinstance(first, Receiver) else first
        if problem is not None:
            assert "cannot be" in str(problem) or "cannot be" in getattr(problem, "what", ""), (what, problem)
            left = {seq: frame for seq, frame in calls.items() if seq not in done}
            with receiving(out) as second:
                assert len(send(second, left, len(calls))) == len(left), what
            assert "INCOMPLETE" not in second.verdict(), what
        names = names_in(result_rows_of_all(out))
        assert len(names) == len(set(names)) == len(calls), what
        assert not list(out.glob(".*")), what


def result_rows_of_all(out: Path) -> dict[str, list[dict[str, str]]]:
    """Return the rows of all csv files, whatever receiver wrote them."""
    stamps = {path.stem.split("_")[-2] for path in out.glob("*_result_*.csv")}
    assert len(stamps) == 1, stamps
    return result_rows(out)
