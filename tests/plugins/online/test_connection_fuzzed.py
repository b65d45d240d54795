"""Thousands of damaged and forged frames against a receiver that judges a training: nothing changes for it."""

from __future__ import annotations

import json
import random
import re
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from probe_recording.sending.message import PREFIX, FrameKind, encode_frame, parse_prefix
from support.runs.receiving import Client, Receiver, names_in, receiver, result_rows

from probe_core.terminal.exit_codes import EXIT_DATA_LOST

LOCAL = ("--listen", "127.0.0.1:0", "--lang", "en", "--patience", "1", "--timeout", "30")
FUZZ_RANK = 7
WRONG = "Functional.softmax.2"
WITHIN = 60.0
"""Seconds in which a receiver that is not blocked answers, on any machine."""
MAX_GROWTH = 48 << 20
"""Bytes by which the receiver may grow after its first frames: less than a leak of 10 KB a frame."""
ODD_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1 << 63, 1e308, "", "\x1b[2J", "../../x", "9" * 500, [], {}, [[[]]], {"a": {"b": []}},
    float("nan"), [0] * 1000, "Torch.relu.0.forward", "torch.Tensor", {"type": "torch.Tensor"},
)  # fmt: skip


class Fuzzer:
    """Source of damaged and forged frames.

    Args:
        frames: Frames of a training.
        chance: The source of random numbers.
    """

    def __init__(self, frames: list[bytes], chance: random.Random) -> None:
        hello = {
            "version": 1,
            "session": "5e" * 16,
            "rank": FUZZ_RANK,
            "framework": "pytorch",
            "versions": {},
        }
        counts = {"queued": {"Torch.any": 3}, "dropped": {"Torch.mul": 1}}
        kinds = {FrameKind.HELLO: hello, FrameKind.TALLY: counts, FrameKind.END: counts, FrameKind.STATUS: {}}
        self._chance = chance
        self._whole = [b"".join(map(bytes, encode_frame(kind, head))) for kind, head in kinds.items()]
        self._calls = frames
        self._ways: list[Callable[[bytes], bytes]] = [
            self._flip, self._flip_and_sign, self._cut, self._repeat, self._change_head, self._change_head,
            self._change_prefix, self._change_body, self._invent,
        ]  # fmt: skip

    def __call__(self) -> bytes:
        """Return the next frame."""
        frame = self._chance.choice(self._whole if self._chance.random() < 0.3 else self._calls)
        return self._chance.choice(self._ways)(frame)

    def _flip(self, frame: bytes) -> bytes:
        """Change bits anywhere, so that the checksum is wrong."""
        data = bytearray(frame)
        for _ in range(self._chance.randint(1, 8)):
            data[self._chance.randrange(len(data))] ^= 1 << self._chance.randrange(8)
        return bytes(data)

    def _flip_and_sign(self, frame: bytes) -> bytes:
        """Change bits after the prefix, with a checksum that fits."""
        data = bytearray(frame[PREFIX.size :] or b"{}")
        for _ in range(self._chance.randint(1, 4)):
            data[self._chance.randrange(len(data))] ^= 1 << self._chance.randrange(8)
        head = parse_prefix(frame).head
        return signed(frame[4], bytes(data[:head]), bytes(data[head:]))

    def _cut(self, frame: bytes) -> bytes:
        return frame[: self._chance.randrange(len(frame))]

    def _repeat(self, frame: bytes) -> bytes:
        return frame * self._chance.randint(1, 3)

    def _change_head(self, frame: bytes) -> bytes:
        """Replace a value of the head by an odd one, with a checksum that fits."""
        size = parse_prefix(frame).head
        head = json.loads(frame[PREFIX.size : PREFIX.size + size])
        place: Any = head
        for _ in range(self._chance.randint(1, 6)):
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = self._chance.choice(keys)
            if not isinstance(place[key], (dict, list)) or self._chance.random() < 0.3:
                place[key] = self._chance.choice(ODD_VALUES)
                break
            place = place[key]
        return signed(frame[4], json.dumps(head).encode(), frame[PREFIX.size + size :])

    def _change_prefix(self, frame: bytes) -> bytes:
        """Announce other lengths, another kind, or another protocol."""
        fields = list(PREFIX.unpack_from(frame))
        sizes = (0, 1, 27, 1 << 16, (1 << 24) + 1, (1 << 32) - 1)
        place = self._chance.choice((0, 1, 2, 3, 4, 5))
        fields[place] = {
            0: b"PRB2", 1: self._chance.randrange(256), 2: b"\1\0\0", 3: self._chance.choice(sizes),
            4: self._chance.choice((*sizes, 1 << 30, (1 << 64) - 1)), 5: self._chance.getrandbits(64),
        }[place]  # fmt: skip
        return PREFIX.pack(*fields) + frame[PREFIX.size :]

    def _change_body(self, frame: bytes) -> bytes:
        """Replace the header of the body, with a checksum that fits."""
        head = parse_prefix(frame).head
        text = self._chance.choice(
            (b"", b"{}", b"[]" * 1000, b'{"x":{"dtype":"F32","shape":[-1],"data_offsets":[0,8]}}',
             b'{"x":{"dtype":"F64","shape":[1,99999999999],"data_offsets":[0,8]}}', self._chance.randbytes(60))
        )  # fmt: skip
        length = self._chance.choice((len(text), 0, 1 << 40, (1 << 64) - 1))
        body = struct.pack("<Q", length) + text + bytes(self._chance.randrange(64))
        return signed(frame[4], frame[PREFIX.size : PREFIX.size + head], body)

    def _invent(self, frame: bytes) -> bytes:
        head = self._chance.choice((b"", b"[]", b"{", b'{"a":1,"a":2}', b"[" * 5000, b"9" * 9000, b"\xff" * 40))
        return signed(self._chance.randrange(14), head, self._chance.randbytes(self._chance.choice((0, 0, 90))))


def signed(kind: int, head: bytes, body: bytes) -> bytes:
    """Return a frame with a checksum that fits."""
    whole = b"".join(map(bytes, encode_frame(FrameKind.CALL, head, [body] if body else ())))
    return whole[:4] + bytes([kind]) + whole[5:]


class Attacker:
    """Client that sends frames over a connection until it is closed, and then over the next."""

    def __init__(self, address: tuple[str, int], chance: random.Random) -> None:
        self._address, self._chance = address, chance
        self._socket: socket.socket | None = None

    def send(self, frame: bytes) -> None:
        if self._socket is None:
            self._socket = self._connect()
        try:
            self._socket.sendall(frame)
            self._read()
        except (OSError, EOFError):
            self.close()
        if self._chance.random() < 0.1:
            self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def _connect(self) -> socket.socket:
        if self._chance.random() < 0.3:  # as a stranger
            connection = socket.create_connection(self._address, WITHIN)
        else:
            session = f"{self._chance.randrange(20):032x}"
            connection = Client(self._address, rank=FUZZ_RANK, session=session).socket
        connection.settimeout(0.001)
        return connection

    def _read(self) -> None:
        """Read what has arrived, without waiting for it."""
        assert self._socket is not None
        with suppress(TimeoutError):
            while True:
                if not self._socket.recv(1 << 16):
                    raise EOFError


def memory(found: Receiver) -> int:
    """Return the memory of the receiver's main process, in bytes."""
    match = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{found.process.pid}/status").read_text())
    assert match is not None
    return int(match[1]) << 10


@pytest.mark.parametrize("count", [400, pytest.param(10_000, marks=pytest.mark.slow)])
def test_receiver_survives_forged_frames(count: int, frames: list[bytes], tmp_path: Path) -> None:
    chance = random.Random(count)
    fuzzer = Fuzzer(frames, chance)
    with receiver(*LOCAL, "-o", tmp_path) as found:
        client = Client(found.address)
        client.socket.settimeout(WITHIN)
        attackers = [Attacker(found.address, chance) for _ in range(4)]
        before, begun = 0, count // 10
        for number in range(count):
            chance.choice(attackers).send(fuzzer())
            if number * len(frames) // count > (number - 1) * len(frames) // count:
                client.call(frames[number * len(frames) // count])
                client.wait_for(number * len(frames) // count)
            if number == begun:
                before = memory(found)
        sent = (count - 1) * len(frames) // count + 1
        for frame in frames[sent:]:
            client.call(frame)
        client.wait_for(len(frames))
        grown = memory(found) - before
        assert found.process.poll() is None
        ended = client.end(len(frames))
        for attacker in attackers:
            attacker.close()
        code, _ = found.end()
    said = "".join(found.said)
    assert code == EXIT_DATA_LOST and "Traceback" not in said, said
    assert grown < MAX_GROWTH, f"{grown >> 20} MiB"
    verdicts = {status: sum(counts.values()) for status, counts in ended.head["verdicts"].items()}
    assert verdicts == {"error": 1, "pass": len(frames) - 1}
    rows = result_rows(tmp_path)
    for name, table in rows.items():
        rows[name] = [row for row in table if row["Session"] == client.session]
        for row in rows[name] if "_result_" in name else ():
            call = row.get("API name") or row["API Name"]
            assert row["Forward Test Success"].strip() == ("error" if call == WRONG else "pass")
    names = names_in(rows)
    assert len(names) == len(set(names)) == len(frames)
