"""Steps that end when an optimizer has stepped."""

from __future__ import annotations

from typing import Any

from probe_recording.recorder.step_follower import StepFollower


class RecorderStandIn:
    """A recorder that counts steps."""

    is_over = False

    def __init__(self) -> None:
        self.step_count = 0

    def step(self) -> None:
        self.step_count += 1

    def start(self, model: Any, token_range: Any) -> None:
        pass


class Optimizer:
    """An optimizer of a program."""


def test_only_the_first_optimizer_ends_steps() -> None:
    recorder: Any = RecorderStandIn()
    follower, first, second = StepFollower(recorder), Optimizer(), Optimizer()
    assert not follower.has_stepped
    for optimizer in (first, second, second, first):
        follower.end_step(optimizer)
    assert recorder.step_count == 2 and follower.has_stepped


def test_an_optimizer_that_replaces_the_first_one_ends_steps() -> None:
    recorder: Any = RecorderStandIn()
    follower, optimizer, other = StepFollower(recorder), Optimizer(), Optimizer()
    follower.end_step(optimizer)
    follower.end_step(other)
    optimizer = Optimizer()  # as a script does that loads a checkpoint
    for _ in range(2):
        follower.end_step(optimizer)
        follower.end_step(other)
    assert recorder.step_count == 3
