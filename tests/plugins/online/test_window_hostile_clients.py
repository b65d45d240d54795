"""Clients that take more than their part: none costs memory beyond the window, and none keeps others waiting."""

from __future__ import annotations

import json
import re
import socket
from contextlib import suppress
from pathlib import Path

import pytest
from probe_online.server import MAX_SENDERS
from probe_recording.sending.message import PREFIX, FrameKind, encode_call_head, encode_frame
from support.runs.receiving import Client, Receiver, receiver, send_over

from probe_core.terminal.exit_codes import EXIT_DATA_LOST, EXIT_FINISHED

LOCAL = ("--listen", "127.0.0.1:0", "--lang", "en", "--patience", "1")
WITHIN = 60.0
"""Seconds in which a receiver that is not blocked answers, on any machine."""
MIB = 1 << 20


def largest_memory(found: Receiver) -> int:
    """Return the largest memory that the receiver's main process had so far, in bytes."""
    status = Path(f"/proc/{found.process.pid}/status").read_text()
    match = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert match is not None
    return int(match[1]) << 10


def crowded(values: str) -> bytes:
    """Return a call whose record holds many values."""
    head = encode_call_head(0, 0, 7, "Torch.relu.0.forward", f'{{"input_args": [{values}]}}')
    return b"".join(map(bytes, encode_frame(FrameKind.CALL, head)))


@pytest.mark.parametrize("value", ["[]", "{}", '{"":[]}', "0"])
def test_receiver_refuses_a_head_of_too_many_values(value: str, frames: list[bytes], tmp_path: Path) -> None:
    frame = crowded(",".join([value] * (14 * MIB // (len(value) + 1))))
    with receiver(*LOCAL, "-o", tmp_path) as found:
        client = Client(found.address)
        client.socket.settimeout(WITHIN)
        before = largest_memory(found)
        for _ in range(4):
            other = Client(found.address, rank=7)
            other.call(frame)
            with suppress(ConnectionError, EOFError):
                assert other.read().kind is FrameKind.REFUSED
            other.socket.close()
        send_over(client, frames)
        grown = largest_memory(found) - before
        code, _ = found.end()
    assert code == EXIT_DATA_LOST and grown < 100 * MIB, f"{grown / MIB:.0f} MiB"
    assert re.search(r"the head of a frame has [\d,]+ values; 262,144 are allowed", "".join(found.said))


@pytest.mark.parametrize("sent", [0, MIB])
def test_receiver_serves_others_while_bodies_are_announced(sent: int, frames: list[bytes], tmp_path: Path) -> None:
    announcement = PREFIX.pack(b"PRB1", FrameKind.CALL, bytes(3), 100, 1 << 30, 0)
    with receiver(*LOCAL, "-o", tmp_path) as found:
        client = Client(found.address)
        client.socket.settimeout(WITHIN)
        strangers = [Client(found.address, rank=7) for _ in range(3)]
        for stranger in strangers:
            stranger.call(announcement + bytes(sent))
        send_over(client, frames)
        for stranger in strangers:
            stranger.socket.close()
        assert found.end()[0] == EXIT_DATA_LOST


def large_call(size: int) -> bytes:
    """Return a call with a body of zeros, which is not a valid one."""
    head = encode_call_head(0, 0, 0, "Torch.relu.0.forward", json.dumps({"input_args": [], "output": []}))
    return b"".join(map(bytes, encode_frame(FrameKind.CALL, head, [bytes(size)])))


def test_receiver_closes_stalled_connections_whose_memory_others_need(tmp_path: Path) -> None:
    announcement = PREFIX.pack(b"PRB1", FrameKind.CALL, bytes(3), 100, 4 * MIB, 0)
    window = ("--window", 4 * MIB, "--most-body", 4 * MIB)
    with receiver(*LOCAL, *window, "-o", tmp_path) as found:
        client = Client(found.address)
        client.socket.settimeout(WITHIN)
        strangers = [Client(found.address, rank=7) for _ in range(5)]  # 16 MiB are for heads
        for stranger in strangers:
            stranger.socket.settimeout(WITHIN)
            stranger.socket.sendall(announcement + bytes(4 * MIB))
        send_over(client, [large_call(4 * MIB)])
        for stranger in strangers:
            stranger.socket.close()
        assert found.end()[0] == EXIT_DATA_LOST
    assert "others needed the memory" in "".join(found.said), found.said


def test_receiver_limits_the_number_of_senders(frames: list[bytes], tmp_path: Path) -> None:
    with receiver(*LOCAL, "-o", tmp_path) as found:
        client = Client(found.address)
        others = [Client(found.address, rank=rank) for rank in range(1, MAX_SENDERS + 20)]
        kinds = [other.first.kind for other in others]
        assert kinds == [FrameKind.WELCOME] * (MAX_SENDERS - 1) + [FrameKind.REFUSED] * 20
        assert "512 others are connected" in others[-1].first.head["text"]
        others[0].socket.close()
        client.socket.settimeout(WITHIN)
        send_over(client, frames)
        for other in others:
            other.socket.close()
        found.end()


def test_receiver_reads_no_further_if_its_answers_are_not_read(tmp_path: Path) -> None:
    ask = b"".join(map(bytes, encode_frame(FrameKind.STATUS, {}))) * 1000
    with receiver(*LOCAL, "-o", tmp_path) as found:
        client = Client(found.address)
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        client.socket.settimeout(3.0)
        with pytest.raises(TimeoutError):
            for _ in range(4000):  # 100 MiB, with answers of 3 GiB
                client.socket.sendall(ask)
        assert largest_memory(found) < 1 << 30
        client.socket.close()
        found.end()


def test_receiver_reads_the_whole_window_in_one_call(tmp_path: Path) -> None:
    with receiver(*LOCAL, "--window", 8 * MIB, "--most-body", 8 * MIB, "-o", tmp_path) as found:
        client = Client(found.address)
        client.socket.settimeout(WITHIN)
        send_over(client, [large_call(8 * MIB)])
        assert found.end()[0] == EXIT_FINISHED
