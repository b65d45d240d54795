"""The states of a recorder and the changes between them."""

from __future__ import annotations

from itertools import product

import pytest
from probe_recording.recorder.recorder_state import TRANSITIONS, Change, RecorderState, StateMachine

IDLE, RECORDING, PAUSED, LOST, FINISHED = RecorderState
REFUSED = {
    (IDLE, Change.RESUME),
    (IDLE, Change.STOP),
    (RECORDING, Change.RESUME),
    (LOST, Change.START),
    (LOST, Change.PAUSE),
    (LOST, Change.RESUME),
    (LOST, Change.LOSE),
    (FINISHED, Change.START),
    (FINISHED, Change.PAUSE),
    (FINISHED, Change.RESUME),
    (FINISHED, Change.LOSE),
    (FINISHED, Change.FINISH),
}


@pytest.mark.parametrize(("state", "change"), list(product(RecorderState, Change)))
def test_apply_every_change_in_every_state(state: RecorderState, change: Change) -> None:
    machine = StateMachine()
    machine.state = state

    assert machine.allows(change) is ((state, change) not in REFUSED)
    assert machine.apply(change) is ((state, change) not in REFUSED)

    assert machine.state is TRANSITIONS.get((state, change), state)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ((), IDLE),
        ((Change.START, Change.STOP, Change.START), RECORDING),
        ((Change.PAUSE, Change.RESUME), RECORDING),
        ((Change.PAUSE, Change.START), PAUSED),
        ((Change.PAUSE, Change.START, Change.RESUME, Change.STOP), IDLE),
        ((Change.START, Change.LOSE, Change.STOP, Change.START), LOST),
        ((Change.START, Change.LOSE, Change.FINISH), FINISHED),
        ((Change.START, Change.FINISH, Change.STOP, Change.START), FINISHED),
    ],
)
def test_apply_follows_a_recording(changes: tuple[Change, ...], expected: RecorderState) -> None:
    machine = StateMachine()
    for change in changes:
        machine.apply(change)
    assert machine.state is expected


def test_finished_recorder_stays_finished() -> None:
    assert {TRANSITIONS[FINISHED, change] for change in Change if (FINISHED, change) in TRANSITIONS} == {FINISHED}
