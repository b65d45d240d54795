"""A recorder that keeps the last steps in memory (docs/watch.md#the-moment-before)."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np

from probe_core.errors import UserError, format_count
from probe_recording import messages
from probe_recording.interrupts import defer_interrupts
from probe_recording.keeping.event import Cause, Trigger
from probe_recording.keeping.event_claim import EventClaim
from probe_recording.keeping.keeper import Keeper
from probe_recording.keeping.options import KeepOptions
from probe_recording.keeping.readings import list_readings
from probe_recording.keeping.signal_hook import SignalHook
from probe_recording.keeping.step_memory import StoredStep
from probe_recording.keeping.verdict_text import format_event, format_rerun, format_written_steps
from probe_recording.keeping.watched_values import collect_watched_values, has_scaler
from probe_recording.recorder.recorder import Recorder
from probe_recording.recorder.recorder_state import RecorderState
from probe_recording.run_directory.directory import StepDirectory, check_place
from probe_recording.sessions.session import Session
from probe_recording.sites import Stack
from probe_recording.values.leaves import Tree
from probe_recording.values.tensor_store import Entry

S = TypeVar("S", bound=Session)


class MemorySession(Session):
    """A session whose outputs of forward calls are noted while their records are added; a mixin.

    Attributes:
        outputs: The name and the output of each forward call, in the order of time.
        passed_losses: The losses that the script passed.
    """

    outputs: list[tuple[str, Tree]]
    passed_losses: list[Tree]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.outputs = []
        self.passed_losses = []
        self._may_write = False
        self._writes_although_empty = False

    def add(self, key: str, fields: dict[str, Tree], stack: Stack | None = None, parent: str | None = None) -> Entry:
        """Add a complete record."""
        output = fields.get("output")
        if output is not None and ".backward" not in key:
            self.outputs.append((key, output))
        return super().add(key, fields, stack, parent)

    def flush(self, although_empty: bool = False) -> None:
        """Make the texts of the files only when the step is closed, or when it is written unfinished."""
        self._writes_although_empty |= although_empty
        if self._may_write:
            super().flush(although_empty)

    def flush_unfinished(self) -> None:
        """Make the texts of everything recorded so far."""
        super().flush(self._has_phases)

    @property
    def _has_phases(self) -> bool:
        """True if a phase was recorded, also where no module inside the model was."""
        return self.step_phases is not None and bool(self.step_phases.phases)

    def close(self) -> int:
        """Complete the step."""
        self._may_write = True
        self.flush(self._writes_although_empty or self._has_phases)
        return super().close()


class KeepingRecorder(Recorder[S]):
    """A recorder whose steps stay in memory; a mixin for the recorder of a framework.

    Attributes:
        keeper: The kept steps.
        signal_hook: The handler of the chosen signal; None for no signal.
        is_complete: False once steps of an event could not be written.
    """

    reports_missing = False
    keeper: Keeper
    signal_hook: SignalHook | None

    def keep(self, options: KeepOptions, *, replaces: bool = False) -> None:
        """Begin to keep steps.

        Args:
            options: The settings.
            replaces: True if an earlier recording in the directory may be replaced.

        Raises:
            UserError: The directory cannot be written.
        """
        check_place(self.config.dump_path)
        self.keeper = Keeper(options)
        self.is_complete = True
        self._event_claim = EventClaim(self, self._notices, replaces=replaces)
        self._sessions.claim = self._event_claim
        self._busy = 0
        self._process = os.getpid()
        self._has_signal = False
        self.signal_hook = None
        if options.signal is not None:
            self.signal_hook = SignalHook(options.signal, self._receive_signal)
            self.signal_hook.install()

    # -- steps -----------------------------------------------------------------------------

    def start(self, model: Any, token_range: tuple[int, int] | None) -> None:
        """Start recording the current step."""
        with self._defer_signals():
            super().start(model, token_range)

    def step(self) -> None:
        """End the step, keep it, and write the kept steps if it triggers an event."""
        with self._defer_signals():
            super().step()
            self.record_counts.clear()  # it would grow with the training

    def add_loss(self, value: Any) -> None:
        """Note a loss that the script passes, in place of those of backward passes."""
        session: Any = self._sessions.current
        if session is not None and session.active:
            with session.quiet(), session.lock:
                session.passed_losses.append(session.collector.tree(value, "", None))

    def _handle_closed_step(self, session: S) -> None:
        directory, self._event_claim.memory_directory = self._event_claim.memory_directory, None
        if directory is None or not directory.files or self.state is RecorderState.FINISHED:
            return
        try:
            trigger = self.keeper.end_step(
                self._step,
                directory.path.name,
                directory.files,
                list_readings(session.step_phases, getattr(session, "outputs", [])),
                collect_watched_values(session.step_phases, getattr(session, "passed_losses", [])),
                is_scaled=session.step_phases is not None and has_scaler(session.step_phases.phases),
            )
        except Exception as error:  # the training must go on whatever the error
            self._notices.print_once(f"probe: a step could not be judged: {type(error).__name__}: {error}")
            return
        if trigger is not None:
            self._write_event(trigger)
        self._report_memory()

    def _report_memory(self) -> None:
        if self.keeper.dropped_for_memory:
            self._notices.print_once(
                f"probe: fewer than {format_count(self.keeper.options.keep_last, 'step')} fit into "
                f"{self.keeper.options.memory:,} bytes, so older steps are dropped. "
                "Allow more with keep_memory."
            )
        if self.keeper.left_out_quantities:
            self._notices.print_once("probe: some quantities are not judged, because their history exceeds the memory.")

    # -- events ----------------------------------------------------------------------------

    def interrupt(self, cause: Cause, name: str) -> None:
        """End the current step and write the kept steps because of an exception.

        Args:
            cause: The reason.
            name: The class of the exception.
        """
        if self.state is RecorderState.FINISHED or os.getpid() != self._process:
            return
        with self._defer_signals():
            number = self._step
            event_count = len(self.keeper.events)
            super().step()
            if len(self.keeper.events) > event_count:
                return  # the step itself triggered an event
            trigger = self.keeper.begin_interrupt_event(Trigger(cause, number, name=name))
            if trigger is not None:
                self._write_event(trigger)

    def _write_event(self, trigger: Trigger, unfinished: StoredStep | None = None) -> None:
        try:
            event = self.keeper.explain(trigger)
            messages.note(format_event(event))
            with defer_interrupts():
                place = self.keeper.write(event, self._create_directory, unfinished)
            if place is not None:
                steps = [*event.steps, *(() if unfinished is None else (unfinished.number,))]
                messages.note(format_written_steps(steps, self.config.shown_path))
        except Exception as error:  # the training must go on whatever the error
            self.is_complete = False
            problem = error.what if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
            fix = error.fix if isinstance(error, UserError) else "The training goes on."
            messages.print_error(f"The last steps could not be written: {problem}", fix)

    def _create_directory(self, step: StoredStep) -> StepDirectory:
        self.config, directory = self._event_claim.open_event_step(self.config, step.number, step.label)
        return directory

    def print_rerun(self, step: int, place: str) -> None:
        """Print that a step ran again, and where its tensors are."""
        messages.note(format_rerun(step, place))

    def print_error(self, error: UserError) -> None:
        """Print an error that does not end the training."""
        messages.print_error(error.what, error.fix)

    # -- signals ---------------------------------------------------------------------------

    def _defer_signals(self) -> _SignalDeferral:
        return _SignalDeferral(self)

    def _receive_signal(self) -> bool:
        if self._busy:
            self._has_signal = True
            return False
        with self._defer_signals():
            self._write_at_signal()
        return True

    def _write_at_signal(self) -> None:
        self._has_signal = False
        if self.state is RecorderState.FINISHED or self.keeper.options.signal is None:
            return
        name = self.keeper.options.signal.name
        trigger = self.keeper.begin_interrupt_event(Trigger(Cause.SIGNAL, self._step, name=name))
        if trigger is not None:
            self._write_event(trigger, self._collect_unfinished_step())

    def _collect_unfinished_step(self) -> StoredStep | None:
        """Return what is recorded of the current step so far; None if nothing can be written."""
        session: Any = self._sessions.current
        directory = self._event_claim.memory_directory
        if session is None or directory is None:
            return None
        session.flush_unfinished()
        if not directory.files:
            return None
        return StoredStep(self._step, directory.path.name, dict(directory.files), -1, np.array([], np.int32))

    # -- the end ---------------------------------------------------------------------------

    def complete(self) -> None:
        """Release the run; the step that is being recorded is not judged."""
        if self.state is RecorderState.FINISHED:
            return
        self._event_claim.memory_directory = None
        super().complete()
        if self.signal_hook is not None:
            self.signal_hook.remove()

    def abandon(self) -> None:
        """Keep nothing any more, because the run belongs to the parent process."""
        self._leave_run()


class _SignalDeferral:
    """A context in which a signal waits until the recorder has finished what it does."""

    def __init__(self, recorder: KeepingRecorder[Any]) -> None:
        self._recorder = recorder

    def __enter__(self) -> None:
        self._recorder._busy += 1

    def __exit__(self, *_: object) -> None:
        recorder = self._recorder
        recorder._busy -= 1
        if recorder._busy:
            return
        if recorder._has_signal:
            with suppress(Exception):
                recorder._write_at_signal()
            if recorder.signal_hook is not None:
                recorder.signal_hook.resume()
