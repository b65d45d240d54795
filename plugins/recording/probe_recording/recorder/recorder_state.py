"""The states of a recorder and the changes between them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType


class RecorderState(Enum):
    """The state of a recorder."""

    IDLE = "no calls are recorded; the recording may start again, in this step or a later one"
    RECORDING = "the captures record into the session of the step"
    PAUSED = "a single module is recorded, and the captures wait"
    LOST = "a write failed, so nothing more can be recorded"
    FINISHED = "the run is complete, or belongs to the parent process"


class Change(Enum):
    """An event that may change the state of a recorder."""

    START = "the script starts the recording"
    PAUSE = "the script starts the recording of a single module"
    RESUME = "the recording of a single module ends"
    STOP = "the script stops the recording, or the step ends"
    LOSE = "a write fails"
    FINISH = "the process ends, or leaves the run to its parent"


_IDLE, _RECORDING, _PAUSED, _LOST, _FINISHED = RecorderState

TRANSITIONS: Mapping[tuple[RecorderState, Change], RecorderState] = MappingProxyType(
    {
        (_IDLE, Change.START): _RECORDING,
        (_RECORDING, Change.START): _RECORDING,
        (_PAUSED, Change.START): _PAUSED,
        (_IDLE, Change.PAUSE): _PAUSED,
        (_RECORDING, Change.PAUSE): _PAUSED,
        (_PAUSED, Change.PAUSE): _PAUSED,
        (_PAUSED, Change.RESUME): _RECORDING,
        (_RECORDING, Change.STOP): _IDLE,
        (_PAUSED, Change.STOP): _IDLE,
        (_LOST, Change.STOP): _LOST,
        (_FINISHED, Change.STOP): _FINISHED,
        (_IDLE, Change.LOSE): _LOST,
        (_RECORDING, Change.LOSE): _LOST,
        (_PAUSED, Change.LOSE): _LOST,
        (_IDLE, Change.FINISH): _FINISHED,
        (_RECORDING, Change.FINISH): _FINISHED,
        (_PAUSED, Change.FINISH): _FINISHED,
        (_LOST, Change.FINISH): _FINISHED,
    }
)
"""The state after each change that is allowed; all other changes are refused.

A recorder without a step to write can still be stopped, which removes captures that are left.
"""


class StateMachine:
    """The present state of a recorder.

    Attributes:
        state: The state.
    """

    def __init__(self) -> None:
        self.state = RecorderState.IDLE

    def allows(self, change: Change) -> bool:
        """Return True if ``change`` is allowed in the present state."""
        return (self.state, change) in TRANSITIONS

    def apply(self, change: Change) -> bool:
        """Change the state; return False, and leave the state as it is, if the change is refused."""
        following = TRANSITIONS.get((self.state, change))
        if following is None:
            return False
        self.state = following
        return True
