"""The life of a recording, whatever the framework: steps, ranks, and the one session that is open."""

from __future__ import annotations

import json
import os
import weakref
from typing import Any, Generic, TypeVar

from probe_core.cli import console
from probe_core.recording.config import Config
from probe_core.recording.directory import Lock, StepDirectory
from probe_core.recording.session import Session
from probe_core.recording.threads import Threads

S = TypeVar("S", bound=Session)

SINGLE = "rank"
"""The directory of a process that belongs to no group."""


class Recorder(Generic[S]):
    """Which step and rank it is, and its session; a framework says what is seen while it runs.

    Args:
        config: What to record.
        room: Bytes kept free in the first tensor file.

    Attributes:
        recorded: How many records each step that is over has.
    """

    def __init__(self, config: Config, room: int = 0) -> None:
        self.config = config
        self.recorded: dict[int, int] = {}
        self._step = 0
        self._session: S | None = None
        self._room = room
        self._overflows_left = config.overflow_count
        self._searched = False
        self._locks: dict[str, Lock] = {}
        self._threads = Threads()
        self._running = False
        self._finished = False
        if hasattr(os, "register_at_fork"):
            recorder = weakref.ref(self)
            os.register_at_fork(after_in_child=lambda: _leave_alone(recorder()))
        self._told: set[str] = set()

    # -- what a framework says -------------------------------------------------------------

    def stop(self) -> None:
        """Cease to record and write."""
        raise NotImplementedError

    def new_session(self, directory: StepDirectory, shown: str) -> S:
        """A session of this framework."""
        raise NotImplementedError

    def _close_last(self) -> None:
        """Whatever else ends with the recording."""

    def _label(self) -> str:
        """What this process is called in the run: ``rank``, or ``rank{n}`` as one of several."""
        raise NotImplementedError

    # -- the life of a step ----------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """True once no later step can be recorded."""
        steps = self.config.steps
        return self._finished or self._searched or (bool(steps) and self._step > max(steps))

    def step(self) -> None:
        """End the step."""
        self.stop()
        self._close_session()
        self._step += 1

    def set_step(self, step: int) -> None:
        """Give the current step another number."""
        self.stop()
        self._close_session()
        self._step = step

    def finish(self) -> None:
        """Write what there is; at the end of the process, or of the search for overflows."""
        if self._finished:
            return
        self.stop()
        self._close_session()
        self._close_last()
        self._finished = True
        for lock in self._locks.values():
            lock.release()

    def abandon(self) -> None:
        """Record no more and write nothing, not even what there is; unless nothing had begun yet."""
        if not self._locks:
            return
        for lock in self._locks.values():
            lock.let_go()
        if self._session is not None:
            self._session.active = False
        self._session = None
        self._finished = True

    # -- sessions --------------------------------------------------------------------------

    def _open_session(self) -> S:
        label = self._label()
        if self._session is None:
            if label not in self._locks:
                self._locks[label] = Lock(self.config.dump_path, label)
            directory = StepDirectory(self.config.dump_path, self._step, label)
            shown = f"{self.config.shown_path.rstrip('/')}/step{self._step}/{label}"
            self._session = self.new_session(directory, shown)
            self._session.overflows_left = self._overflows_left
            self._session.on_last_overflow = self._last_overflow
        return self._session

    def _close_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.active = False
            self._room = session.close()
            self.recorded[self._step] = session.count
            self._overflows_left = session.overflows_left

    def _last_overflow(self) -> None:
        """As many overflows as were asked for: the search ends, training goes on."""
        if self._session is not None:
            self._session.active = False
        self._searched = True
        self._tell(f"probe: {self.config.overflow_count} overflow(s) recorded; the search ends.")

    def _selected(self) -> bool:
        if self.config.steps and self._step not in self.config.steps:
            if self._step > max(self.config.steps):
                self._tell("probe: the last step to record is over; the program goes on unrecorded.")
            return False
        if self.config.ranks:
            label = self._label()
            number = int(label.removeprefix(SINGLE) or 0)
            return number in self.config.ranks
        return True

    def _enabled(self) -> bool:
        """What ``dump_enable`` says now; the file is read again at each start."""
        if self.config.enabled is None or self.config.path is None:
            return self.config.enabled is not False
        try:
            return bool(json.loads(self.config.path.read_text("utf-8")).get("dump_enable", True))
        except (OSError, ValueError, AttributeError):
            return self.config.enabled

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            console.note(text)


def _leave_alone(recorder: Recorder[Any] | None) -> None:
    """In a forked child: the run is the parent's, and nothing is written from here."""
    if recorder is not None:
        recorder.abandon()
