"""Random numbers that recorded calls draw, with the states before and after them."""

from __future__ import annotations

import hashlib
import os
import threading
import weakref
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from probe_recording.api import Session
from probe_recording.step_facts.conditions import Draw, state_hash

from probe_mindspore import compat
from probe_mindspore.capture.random_primitives import PrimitiveSeeds, find_seeds
from probe_mindspore.generators import DEFAULT_GENERATOR_NAME, GLOBAL_SEED_NAME

TOKEN_BYTES = 8
"""Size of the random text that stands for the state of a kernel that the operating system seeded."""


@dataclass(frozen=True, slots=True)
class DrawEvent:
    """A call of a primitive that draws random numbers.

    Attributes:
        generator: The name of what it draws from.
        before: The state before the call.
        after: The state after it; None for a generator, whose state is read when it is needed.
        step: The step of a generator; None for other primitives.
    """

    generator: str
    before: bytes
    after: bytes | None
    step: compat.GeneratorStep | None = None


class _ThreadEvents(threading.local):
    """The events of a thread, in the order of time."""

    def __init__(self) -> None:
        self.events: list[DrawEvent] = []


class DrawWatch:
    """A watcher of the random numbers that recorded calls draw.

    The state of a kernel is not readable. It depends on the seeds of its primitive and on the number of calls, so
    these represent the state. Calls before the step and calls of compiled code are not counted.

    Errors are written to the error log of the step and do not reach the program.

    Attributes:
        session: The session of the step; None between steps, and if conditions are not recorded.
    """

    def __init__(self) -> None:
        self.session: Session | None = None
        self._thread = _ThreadEvents()
        self._counts: Counter[Hashable] = Counter()
        self._alive: dict[int, weakref.ref[Any]] = {}
        self._digest = hashlib.blake2b(digest_size=TOKEN_BYTES)

    def begin(self, session: Session) -> None:
        """Begin a step, which is recorded into a new session."""
        self.session = session
        self._thread = _ThreadEvents()
        self._counts.clear()
        self._alive.clear()
        self._digest = hashlib.blake2b(digest_size=TOKEN_BYTES)

    def end(self) -> None:
        """End the step."""
        self.session = None

    @property
    def state(self) -> bytes:
        """The hash of what all kernels drew in the step so far."""
        return self._digest.digest()

    def note(self, primitive: Any, args: Sequence[Any]) -> None:
        """Note a call of a primitive that begins, if it draws random numbers."""
        session = self.session
        if session is None or not session.active:
            return
        try:
            seeding = find_seeds(primitive, args)
            if seeding is not None:
                event = self._create_event(seeding, primitive)
                self._thread.events.append(event)
                self._digest.update(event.before)
            elif (step := compat.find_generator_step(primitive, args)) is not None:
                with session.quiet():
                    name = DEFAULT_GENERATOR_NAME if step.is_default else f"generator {step.seed()}"
                    self._thread.events.append(DrawEvent(name, step.state(), None, step))
        except Exception as error:  # the call must go on whatever the recorder's error
            session.log_failure("conditions", "draws", error)

    @property
    def place(self) -> int:
        """The number of events of this thread."""
        return len(self._thread.events)

    def record(self, op: str, place: int) -> None:
        """Record the random numbers that a call drew.

        Args:
            op: The key of the call.
            place: The number of events before the call.
        """
        session = self.session
        events = self._thread.events[place:]
        if session is None or session.conditions is None or not events:
            return
        try:
            with session.quiet(), session.lock:
                session.conditions.add_draws(_list_draws(op, events))
        except Exception as error:  # the call must go on whatever the recorder's error
            session.log_failure("conditions", op, error)

    def _create_event(self, seeding: PrimitiveSeeds, primitive: Any) -> DrawEvent:
        if seeding.is_unseeded:
            return DrawEvent(GLOBAL_SEED_NAME, os.urandom(TOKEN_BYTES), os.urandom(TOKEN_BYTES))
        count = self._count(primitive if seeding.seeds else None, seeding.name)
        before, after = (repr((seeding.name, seeding.seeds, n)).encode() for n in (count, count + 1))
        return DrawEvent(GLOBAL_SEED_NAME, before, after)

    def _count(self, primitive: Any, name: str) -> int:
        """Count a call, and return the number of calls before it; None counts all primitives of the name."""
        key: Hashable = name
        if primitive is not None:
            key = number = id(primitive)
            if number not in self._alive:
                self._alive[number] = weakref.ref(primitive, lambda _: self._forget(number))
        count = self._counts[key]
        self._counts[key] += 1
        return count

    def _forget(self, number: int) -> None:
        """Forget a primitive that was deleted, because another object may have its id."""
        self._alive.pop(number, None)
        self._counts.pop(number, None)


def _list_draws(op: str, events: Sequence[DrawEvent]) -> list[Draw]:
    """Return what a call drew, one entry for each generator."""
    draws = []
    for name in dict.fromkeys(event.generator for event in events):
        of_generator = [event for event in events if event.generator == name]
        step = of_generator[-1].step
        if step is not None:
            before, after = [of_generator[0].before], [step.state()]
        else:
            before = [event.before for event in of_generator]
            after = [event.after or b"" for event in of_generator]
        draws.append(Draw(op, name, state_hash(*before), state_hash(*after)))
    return draws
