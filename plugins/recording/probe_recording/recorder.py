"""The life of a recording, whatever the framework: steps, ranks, and the one session that is open."""

from __future__ import annotations

import itertools
import json
import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar

from probe_core.errors import UserError
from probe_core.files.atomic import refused
from probe_recording import messages
from probe_recording.config import Config
from probe_recording.directory import (
    DEBUG_FILE,
    DUMP_FILE,
    Lock,
    Removed,
    StepDirectory,
    check_place,
    is_recorded,
    labels_in,
    remove_run,
)
from probe_recording.interrupts import interrupts_deferred
from probe_recording.loss import Failure, Loss, failure_of, tell
from probe_recording.session import Session
from probe_recording.threads import Threads
from probe_recording.variables import save_variable

S = TypeVar("S", bound=Session)
C = TypeVar("C", bound=Session, contravariant=True)

SINGLE = "rank"
"""The directory of a process that belongs to no group."""


class Modules(Protocol[C]):
    """The capture of modules by hooks: level L0, and ``module_dump``."""

    paused: bool

    def begin_step(self, session: C) -> None:
        """Record into ``session`` from now on."""

    def install(self, named: Iterable[tuple[str, Any]], gradients: bool) -> None:
        """Hook the modules; names are ``{path}.{Class}``."""

    def remove(self) -> None:
        """Take all hooks away."""


class NoModules:
    """The capture of a framework without modules."""

    paused = False

    def begin_step(self, session: Any) -> None:
        """Record nothing."""

    def install(self, named: Iterable[tuple[str, Any]], gradients: bool) -> None:
        """Hook nothing."""

    def remove(self) -> None:
        """Remove nothing."""


class Recorder(ABC, Generic[S]):
    """Which step and rank it is, and its session; a framework says what is seen while it runs.

    Args:
        config: What to record.
        room: Bytes kept free in the first tensor file.

    Attributes:
        recorded: How many records each step has that was written to its end.
        lost: What could not be written, after which nothing more is recorded; None where all is well.
    """

    rank_variable, size_variable = "RANK", "WORLD_SIZE"
    """Variables of the environment by which a launcher tells a process its rank, and how many there are."""

    _modules: Modules[S]

    def __init__(self, config: Config, room: int = 0) -> None:
        self.config = config
        self.recorded: dict[int, int] = {}
        self.lost: Loss | None = None
        self._has_begun = False
        self._step = 0
        self._first = 0
        self._session: S | None = None
        self._room = room
        self._overflows_left = config.overflow_count
        self._searched = False
        self._locks: dict[str, Lock] = {}
        self._threads = Threads()
        self._running = False
        self._finished = False
        self._modules = self.new_modules()
        self._single: Modules[S] | None = None
        self._token_handles: list[Any] = []
        if hasattr(os, "register_at_fork"):
            recorder = weakref.ref(self)
            os.register_at_fork(after_in_child=lambda: _leave_alone(recorder()))
        self._told: set[str] = set()

    # -- what a framework says -------------------------------------------------------------

    @abstractmethod
    def new_session(self, directory: StepDirectory, shown: str) -> S:
        """A session of this framework."""

    def new_modules(self) -> Modules[S]:
        """A capture of modules."""
        return NoModules()

    @abstractmethod
    def register(self, holder: Any, attribute: str, name: str) -> None:
        """Record calls of ``holder.attribute``."""

    @abstractmethod
    def restore(self, holder: Any, attribute: str) -> bool:
        """Record them no longer; False where they were not recorded."""

    def _can_record(self) -> bool:
        """False where the program runs in a way that cannot be recorded; says so."""
        return True

    @abstractmethod
    def _see(self, session: S, model: Any) -> None:
        """Let the captures of this level see."""

    def _blind(self) -> None:
        """Uninstall all captures; a framework uninstalls its own behind these."""
        self._running = False
        self._end_module_dump()
        self._forget_tokens()

    def _pause_calls(self) -> None:
        """Record no calls while a single module is recorded."""

    def _resume_calls(self) -> None:
        """Record calls again, if they were recorded before."""

    def _stopped(self, session: S) -> None:
        """Note at the head of the run what is known only now."""

    def _close_last(self) -> None:
        """Whatever else ends with the recording."""

    def _group(self) -> tuple[int, int] | None:
        """Return the rank of this process and the number of all, once they have met."""
        return None

    # -- the life of a step ----------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """True once no later step can be recorded."""
        steps = self.config.steps
        return self._finished or self._searched or (bool(steps) and self._step > max(steps))

    @interrupts_deferred()
    def start(self, model: Any, token_range: tuple[int, int] | None) -> None:
        """Begin to record; again, if it had begun, with the model that is given now.

        Raises:
            UserError: The run cannot be written; the first time only, for by then training has begun.
        """
        if self._searched or not self._wanted() or self.config.level == "debug" or not self._can_record():
            if self.config.level != "debug":
                self._look_ahead()
            return
        session = self._opened()
        if session is None:
            return
        try:
            self._see(session, model)
        except BaseException as error:
            self._blind()  # nothing of a start that failed stays
            if not isinstance(error, Exception):
                raise
            self._refuse(error, session)
            return
        self._has_begun = True
        session.active = session.lost is None
        self._running = True
        if token_range is not None and model is not None:
            self._count_tokens(session, model, token_range)

    def _look_ahead(self) -> None:
        """Tell before the training that the run cannot be written, though a later step is the first of it."""
        later = bool(self.config.steps) and self._step < max(self.config.steps)
        if not self._has_begun and later and self._rank_is_selected() and self._enabled():
            check_place(self.config.dump_path)
        self._has_begun = True

    def _refuse(self, error: Exception, session: S | None = None) -> None:
        """Raise what keeps the run from being written, unless training has begun; then stop recording."""
        if self._has_begun:
            if session is not None:
                session.lose(error)
            else:
                self._lose(failure_of(error, self.config.dump_path))
        elif isinstance(error, OSError):
            raise refused(self.config.dump_path, error) from error
        else:
            raise error

    def _lose(self, failure: Failure, count: int = 0) -> None:
        """Record nothing more, and say once why."""
        if self.lost is None:
            kept = self._session.kept if self._session is not None else 0
            self.lost = Loss(failure, self._step, kept, count)
            tell(self.lost, self.whole)

    @property
    def whole(self) -> list[int]:
        """The steps that were written to their end and are still there."""
        file = DEBUG_FILE if self.config.level == "debug" else DUMP_FILE
        try:
            there = {path.parent.parent.name for path in self.config.dump_path.glob(f"step*/*/{file}")}
        except OSError:  # a disk that fails cannot be read either
            there = set()
        return [step for step, count in self.recorded.items() if count and f"step{step}" in there]

    def _count_tokens(self, session: S, model: Any, tokens: tuple[int, int]) -> None:
        """Record only while the model's own forwards are within ``tokens``, counted from 0 at start."""
        outer = model[0] if isinstance(model, (list, tuple)) else model
        count = itertools.count()
        session.active = False

        def before(*_: Any) -> None:
            session.active = tokens[0] <= next(count) <= tokens[1] and session.lost is None

        self._token_handles.append(self._hook_calls(outer, before))

    def _hook_calls(self, model: Any, before: Callable[..., None]) -> Any:
        """Have ``before`` called before each forward of the model; return what undoes it by ``remove``."""
        return model.register_forward_pre_hook(before)

    def _forget_tokens(self) -> None:
        for handle in self._token_handles:
            handle.remove()
        self._token_handles.clear()

    @interrupts_deferred()
    def step(self) -> None:
        """End the step."""
        self._has_begun = True
        self.stop()
        self._close_session()
        self._step += 1

    @interrupts_deferred()
    def set_step(self, step: int) -> None:
        """Give the current step another number."""
        self.stop()
        self._close_session()
        self._step = step
        if not self._locks:  # training is resumed: what was recorded of the steps before stays
            self._first = step

    @interrupts_deferred()
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

    @interrupts_deferred()
    def stop(self) -> None:
        """Cease to record and write."""
        if not self._running:
            return
        self._blind()
        session = self._session
        if session is not None:
            session.active = False
            self._stopped(session)
            session.flush(although_empty=True)

    # -- single values and modules -----------------------------------------------------------

    def save(self, variable: Any, name: str, backward: bool) -> None:
        """Record a variable at level debug."""
        if self.config.level != "debug":
            return
        if not self._wanted():
            self._look_ahead()
            return
        session = self._opened()
        if session is None:
            return
        self._has_begun = session.active = True
        save_variable(session, variable, name, backward)

    def module_dump(self, module: Any, name: str) -> None:
        """Record one module and nothing else."""
        if not self._wanted():
            return
        self._end_module_dump()
        session = self._opened()
        if session is None:
            return
        self._has_begun = session.active = self._running = True
        self._pause_calls()
        self._modules.paused = True
        self._single = self.new_modules()
        self._single.begin_step(session)
        self._single.install([(f"{name}.{type(module).__name__}", module)], gradients=False)

    def module_dump_end(self) -> None:
        """Record as before."""
        if self._single is None:
            return
        self._end_module_dump()
        if self._session is not None:
            self._session.flush()

    def _end_module_dump(self) -> None:
        """The single module is let go, and what was seen before is seen again."""
        if self._single is None:
            return
        self._single.remove()
        self._single = None
        self._modules.paused = False
        self._resume_calls()

    # -- sessions --------------------------------------------------------------------------

    def _opened(self) -> S | None:
        """The session of this step; None where its files cannot be made though training has begun."""
        try:
            return self._open_session()
        except Exception as error:  # whatever it is, a training that has begun goes on
            self._refuse(error)
            return None

    def _open_session(self) -> S:
        label = self._label()
        if self._session is None:
            if label not in self._locks:
                self._locks[label] = Lock(self.config.dump_path, label)
                self._remove_last_run(label)
            directory = StepDirectory(self.config.dump_path, self._step, label)
            shown = f"{self.config.shown_path.rstrip('/')}/step{self._step}/{label}"
            session = self.new_session(directory, shown)
            session.overflows_left = self._overflows_left
            session.on_last_overflow = self._last_overflow
            session.on_loss = self._lose
            self._session = session
        return self._session

    def _remove_last_run(self, label: str) -> None:
        """Remove the steps of an earlier run in this directory, and say so.

        Each rank removes its own. The first also removes those that probe recorded of ranks that this run
        does not have, unless another process writes them.
        """
        root, removed = self.config.dump_path, Removed()
        remove_run(root, label, self._first, removed)
        size = self._size()
        for other in labels_in(root) if size and label in (SINGLE, f"{SINGLE}0") else ():
            number = other.removeprefix(SINGLE)
            if other == label or (number and label != SINGLE and int(number) < size):
                continue
            try:
                lock = Lock(root, other)
            except UserError:
                continue
            if is_recorded(root, other):
                remove_run(root, other, self._first, removed)
            lock.release()
        for sentence in removed.sentences(root):
            messages.note(sentence)

    def _close_session(self) -> None:
        """Complete the step. Interrupted, it is still open, and can be closed again."""
        session = self._session
        if session is not None:
            session.active = False
            self._room = session.close()
            if session.lost is None:
                self.recorded[self._step] = session.count
            self._overflows_left = session.overflows_left
            self._session = None

    def _last_overflow(self) -> None:
        """As many overflows as were asked for: the search ends, training goes on."""
        if self._session is not None:
            self._session.active = False
        self._searched = True
        self._tell(f"probe: {self.config.overflow_count} overflow(s) recorded; the search ends.")

    def _label(self) -> str:
        """Return the name of this process in the run: ``rank``, or ``rank{n}`` as one of several."""
        if (group := self._group()) is not None:
            return f"{SINGLE}{group[0]}"
        rank, size = (os.environ.get(name, "") for name in (self.rank_variable, self.size_variable))
        if rank.isdigit() and size.isdigit() and int(size) > 1:
            return f"{SINGLE}{rank}"  # launched as one of several that have not met yet
        return SINGLE

    def _size(self) -> int:
        """Return how many processes the run has, as far as is known."""
        if (group := self._group()) is not None:
            return group[1]
        size = os.environ.get(self.size_variable, "")
        return int(size) if size.isdigit() else 1

    def _wanted(self) -> bool:
        return not self._finished and self.lost is None and self._selected() and self._enabled()

    def _selected(self) -> bool:
        if self.config.steps and self._step not in self.config.steps:
            if self._step > max(self.config.steps):
                self._tell("probe: the last step to record is over; the program goes on unrecorded.")
            return False
        return self._rank_is_selected()

    def _rank_is_selected(self) -> bool:
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
            messages.note(text)


def _leave_alone(recorder: Recorder[Any] | None) -> None:
    """In a forked child: the run is the parent's, and nothing is written from here."""
    if recorder is not None:
        recorder.abandon()
