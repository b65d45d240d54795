"""Faults of the connection between a training and its receiver: nothing changes, and every call is counted.

Both ends are the real ones. In each test the training's outcome is that without a recorder to the bit, each row is
that of a run without faults, and what was judged, dropped and left without an answer is what was made.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from probe_precheck.settings import Settings
from probe_recording.sending import tcp, transport
from probe_recording.sending.message import PREFIX, FrameKind
from support.runs.faulty import Truth, all_is_known, check, trained
from support.runs.inprocess import receiving
from support.runs.relaying import Cut, relay

CALL, DONE, END = bytes([FrameKind.CALL]), bytes([FrameKind.DONE]), bytes([FrameKind.END])


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts to connect follow each other at once."""
    monkeypatch.setattr(transport, "FIRST_PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(transport, "MAX_PAUSE_SECONDS", 0.05)


def kind_of(frame: bytes) -> bytes:
    return frame[4:5]


def flipped(frame: bytes, place: int) -> bytes:
    """The frame with a wrong bit."""
    return (
        frame[:place] + bytes([frame[place] ^ 1]) + frame[place + 1 :]
        if place != -1
        else flipped(frame, len(frame) - 1)
    )


def test_a_connection_that_is_cut_in_mid_frame(truth: Truth, tmp_path: Path) -> None:
    chance = random.Random(1)
    cuts = {3, 4, 20, 60, 61, 150, 300}

    def cut(number: int, frame: bytes) -> list[bytes]:
        if number in cuts:
            raise Cut(frame[: chance.choice((1, 27, 28, 60, len(frame) - 1))])
        return [frame]

    def cut_answers(number: int, frame: bytes) -> list[bytes]:
        if number in (7, 21):  # an acknowledgement that is lost: the call was judged and is sent again
            raise Cut(frame[:30])
        return [frame]

    with receiving(tmp_path / "out") as end, relay(end.address, cut, cut_answers) as between:
        outcome, summary = trained(tmp_path / "run", port=between.port)
    told = check(truth, outcome, summary, tmp_path / "out")
    assert told["judged"] == truth.made and all_is_known(told), told
    assert between.connections > len(cuts) and summary["sent_again"]
    assert end.verdict() == truth.sentence()


def test_frames_that_are_reordered_and_repeated(truth: Truth, tmp_path: Path) -> None:
    held: list[bytes] = []
    earlier: list[bytes] = []

    def shuffle(number: int, frame: bytes) -> Sequence[bytes]:
        if kind_of(frame) == END:
            return [frame, frame]
        if kind_of(frame) != CALL:
            return [frame]
        earlier.append(frame)
        if number < 200 and number % 5 < 3:
            held.append(frame)
            return []
        pieces = [*reversed(held), frame, frame, earlier[number // 2 % len(earlier)]]
        held.clear()
        return pieces

    answers: list[bytes] = []

    def repeat(number: int, frame: bytes) -> Sequence[bytes]:
        if kind_of(frame) != DONE:
            return [frame]
        answers.append(frame)
        return [frame, answers[len(answers) // 2], frame]

    skipped = {"relu", "relu_"}
    left = [key for key in truth.rows if key[1].split(".")[1] in skipped]
    settings = Settings(black_list=frozenset(skipped))
    with (
        receiving(tmp_path / "out", settings=settings) as end,
        relay(end.address, shuffle, repeat) as between,
    ):
        outcome, summary = trained(tmp_path / "run", port=between.port)
    told = check(truth, outcome, summary, tmp_path / "out", left=len(left))
    assert left and told["left_out"] == len(left)
    assert told["judged"] == truth.made - len(left) and all_is_known(told), told
    assert "INCOMPLETE" not in end.verdict()


def test_checksums_that_are_wrong_once_twice_and_three_times(truth: Truth, tmp_path: Path) -> None:
    wrong = {b"Functional.conv2d.0.": 1, b"Functional.conv2d.2.": 2, b"Functional.conv2d.4.": 3}
    seen: Counter[bytes] = Counter()

    def spoil(number: int, frame: bytes) -> list[bytes]:
        for name, times in wrong.items():
            if kind_of(frame) == CALL and name in frame[:300] and b'"step": 0' in frame[:100]:
                seen[name] += 1
                return [flipped(frame, -1) if seen[name] <= times else frame]
        return [frame]

    with receiving(tmp_path / "out") as end, relay(end.address, spoil) as between:
        outcome, summary = trained(tmp_path / "run", port=between.port)
    told = check(truth, outcome, summary, tmp_path / "out")
    assert seen == {b"Functional.conv2d.0.": 2, b"Functional.conv2d.2.": 3, b"Functional.conv2d.4.": 3}
    assert told["judged"] == truth.made - 1 and told["dropped: damaged"] == 1
    assert all_is_known(told), told
    assert end.verdict() == (f"{truth.sentence(lost=1)}; INCOMPLETE: 1 call was dropped by the training")


PLACES: dict[str, Any] = {
    "the mark": 0,
    "the kind": 4,
    "zeros": 6,
    "the length of the head": 11,
    "the length of the body": 18,
    "the checksum": 20,
    "the number": lambda frame: frame.index(b'"seq": ') + 7,
    "the form of the head": PREFIX.size,
}


def test_a_wrong_bit_anywhere(truth: Truth, tmp_path: Path) -> None:
    places = dict(zip(range(10, 300, 11), [*PLACES.values()] * 2))
    done: list[int] = []

    def spoil(number: int, frame: bytes) -> list[bytes]:
        if number < min([*places], default=1000) or kind_of(frame) != CALL or not places:
            return [frame]
        place = places.pop(min(places))
        done.append(number)
        return [flipped(frame, place(frame) if callable(place) else place)]

    def spoil_answers(number: int, frame: bytes) -> list[bytes]:
        return [flipped(frame, 20 + number) if number in (5, 9, 14) else frame]

    with receiving(tmp_path / "out") as end, relay(end.address, spoil, spoil_answers) as between:
        outcome, summary = trained(tmp_path / "run", port=between.port, online_drain=20)
    told = check(truth, outcome, summary, tmp_path / "out")
    assert len(done) == 2 * len(PLACES)
    assert told["judged"] == truth.made and all_is_known(told), (told, end.heard)
    assert "INCOMPLETE" not in end.verdict()


@pytest.mark.parametrize("what", ["the number", "the kind"])
def test_a_wrong_bit_of_the_last_call_when_the_training_has_ended(what: str, truth: Truth, tmp_path: Path) -> None:
    ended = threading.Event()
    (last,) = [name for step, name in list(truth.rows)[-1:]]
    done: list[int] = []

    def spoil(number: int, frame: bytes) -> list[bytes]:
        call = kind_of(frame) == CALL and b'"step": 2' in frame[:100]
        if done or not call or f'"{last}.forward"'.encode() not in frame[:300]:
            return [frame]
        ended.wait(60)
        time.sleep(0.1)
        done.append(number)
        place = PLACES[what]
        return [flipped(frame, place(frame) if callable(place) else place)]

    def note(step: int) -> None:
        if step == 2:
            ended.set()

    with receiving(tmp_path / "out") as end, relay(end.address, spoil) as between:
        outcome, summary = trained(tmp_path / "run", note, port=between.port, online_drain=20)
    told = check(truth, outcome, summary, tmp_path / "out")
    assert done and told["judged"] == truth.made and all_is_known(told), (told, end.heard)
    assert "INCOMPLETE" not in end.verdict()


@pytest.mark.parametrize("policy", ["drop", "wait"])
def test_a_link_of_100_kilobytes_a_second(
    policy: str, truth: Truth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tcp, "TALLY_INTERVAL_SECONDS", 0.2)
    fields = {"online_policy": policy, "online_wait": 1, "online_memory": "1MiB", "online_drain": 3}
    began = time.monotonic()
    with (
        receiving(tmp_path / "out", patience=1.0) as end,
        relay(end.address, speed=100_000) as between,
    ):
        outcome, summary = trained(tmp_path / "run", port=between.port, **fields)
        passed, seconds = between.passed, time.monotonic() - began
        between.cut()
    told = check(truth, outcome, summary, tmp_path / "out")
    assert passed < 100_000 * seconds + 10_000
    assert told["dropped: no room"] and told["waiting"] and told["judged"]
    assert told["judged"] + told["dropped: no room"] + told["waiting"] >= truth.made
    assert "rank 0 sent no final message" in end.verdict()


def test_a_receiver_that_takes_one_call_at_a_time(truth: Truth, tmp_path: Path) -> None:
    with receiving(tmp_path / "out", calls=1) as end:
        outcome, summary = trained(tmp_path / "run", port=end.address[1])
    told = check(truth, outcome, summary, tmp_path / "out")
    assert told["judged"] == truth.made and all_is_known(told), told


def test_clocks_that_jump(truth: Truth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, asked = time.time, [0]

    def jumping() -> float:
        asked[0] += 1
        return real() + (-1) ** asked[0] * asked[0] * 1e6

    def cut(number: int, frame: bytes) -> list[bytes]:
        if number in (3, 40, 200):
            raise Cut
        return [frame]

    monkeypatch.setattr(time, "time", jumping)
    with receiving(tmp_path / "out") as end, relay(end.address, cut) as between:
        outcome, summary = trained(tmp_path / "run", lambda step: asked.append(time.time()), port=between.port)  # type: ignore[arg-type]
    monkeypatch.undo()
    told = check(truth, outcome, summary, tmp_path / "out")
    assert told["judged"] == truth.made and all_is_known(told), told
    assert "INCOMPLETE" not in end.verdict()
