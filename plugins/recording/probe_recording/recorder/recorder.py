"""The steps and ranks of a recording and its open session (docs/configuration.md#steps-and-ranks)."""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from probe_core.errors import UserError
from probe_core.files.atomic import create_path_error
from probe_recording.capture.captures import Capture, CaptureControl
from probe_recording.capture.threads import Threads
from probe_recording.capture.variables import save_variable
from probe_recording.interrupts import defer_interrupts
from probe_recording.messages import Notices
from probe_recording.recorder.activity import (
    NOTHING_RECORDED,
    Activity,
    Position,
    check_later_steps,
    is_past_last_step,
    is_step_selected,
)
from probe_recording.recorder.framework_recorder import FrameworkRecorder
from probe_recording.recorder.recorder_state import Change, RecorderState, StateMachine
from probe_recording.recorder.step_sessions import Carryover, StepSessions, create_comparison
from probe_recording.run_directory.run_claim import RunClaim, list_complete_steps
from probe_recording.sending.sender import Sender
from probe_recording.sessions.loss import Loss, WriteFailure, describe_failure, print_loss
from probe_recording.sessions.session import Session
from probe_recording.settings.config import Config
from probe_recording.settings.slices import find_request_slice

S = TypeVar("S", bound=Session)


class Recorder(FrameworkRecorder[S]):
    """A recorder of one process, which opens a session for each step and installs captures that record into it.

    Args:
        config: The settings of the recording.
        room: Bytes to keep free in the first tensor file for its header.
        writes_empty_steps: True to write the files of a step without records.

    Attributes:
        config: The settings of the recording.
        record_counts: The number of records of each step that was written completely.
        lost: The failed write that ended the recording; None if there was none.
        activity: What the program did, to explain what was not recorded.
    """

    reports_missing = True
    """True to print at the end what was not recorded although it was selected, and which calls differ from a golden."""

    def __init__(self, config: Config, room: int = 0, *, writes_empty_steps: bool = True) -> None:
        comparison = create_comparison(config, self.framework, self)
        self.config = config if comparison is None else comparison.config
        self.record_counts: dict[int, int] = {}
        self.lost: Loss | None = None
        self.activity = Activity(config)
        self._writes_empty_steps = writes_empty_steps
        self._has_begun = False
        self._step = 0
        self._threads = Threads()
        self._states = StateMachine()
        self._notices = Notices()
        self._conditions = self.new_conditions()
        self._sessions = StepSessions(self, self._conditions, self._notices, Carryover(room, config.overflow_count))
        self._sessions.comparison, self._sessions.on_loss = comparison, self._lose
        self._control: CaptureControl[S] = CaptureControl(self._hook_calls)
        self.captures.append(self._conditions)
        abandon_in_children(self)

    @property
    def captures(self) -> list[Capture[S]]:
        """The captures, in the order in which they are installed; subclasses append theirs."""
        return self._control.captures

    @captures.setter
    def captures(self, captures: list[Capture[S]]) -> None:
        self._control.captures = captures

    @property
    def sender(self) -> Sender | None:
        """The sender of calls, once one is needed; None if they are written."""
        return self._sessions.sender

    # -- the life of a step ----------------------------------------------------------------

    @property
    def state(self) -> RecorderState:
        """The state of the recorder."""
        return self._states.state

    @property
    def current_step(self) -> int:
        """The number of the current step."""
        return self._step

    @property
    def is_over(self) -> bool:
        """True once no later step can be recorded."""
        if self.state is RecorderState.FINISHED or not self._sessions.carryover.overflows_left:
            return True
        return is_past_last_step(self.config, self._step)

    @defer_interrupts()
    def start(self, model: Any, token_range: tuple[int, int] | None) -> None:
        """Start recording the current step, if it and the rank are selected.

        Args:
            model: The model or models of the script, or None.
            token_range: First and last token to record of a generation; None for all.

        Raises:
            UserError: The run cannot be written. Only the first start raises it; later, when the training is
                under way, such a failure ends the recording with a message instead.
        """
        self.activity.add_start()
        is_recorded = self._sessions.carryover.overflows_left and self._is_step_recorded()
        if self.config.level == "debug":
            return
        if not is_recorded or not self._can_record():
            self._check_later_steps()
            return
        session = self._try_open_session()
        if session is None:
            return
        try:
            self._control.install(session, model)
            if self.state is RecorderState.PAUSED:
                self._control.pause()
        except BaseException as error:
            self._states.apply(Change.STOP)
            self._control.remove()  # leave nothing of a failed start in place
            if not isinstance(error, Exception):
                raise
            self._handle_start_error(error, session)
            return
        self._has_begun = True
        self._sessions.pass_tokens(session)
        session.active = session.lost is None
        self._states.apply(Change.START)
        if token_range is not None and model is not None:
            self._control.select_tokens(session, model, token_range)

    def select_request(self, scheduled_tokens: Mapping[str, int] | None) -> bool:
        """Record only the rows of the request that the configuration names, until the next call.

        Args:
            scheduled_tokens: The number of rows of each request of the batch; None if there are no requests.

        Returns:
            False if the batch does not hold the request.
        """
        if not scheduled_tokens or not self.config.request:
            self._sessions.request_slices = ()
            return True
        request_slice = find_request_slice(self.config.request, scheduled_tokens)
        self._sessions.request_slices = () if request_slice is None else (request_slice,)
        self.activity.add_batch(has_request=request_slice is not None)
        return request_slice is not None

    def _check_later_steps(self) -> None:
        """Raise a UserError now if a later step is selected and its directory cannot be written."""
        if not self._has_begun:
            check_later_steps(self.config, self._step, self)
        self._has_begun = True

    def _handle_start_error(self, error: Exception, session: S | None = None) -> None:
        """Raise the error that keeps the run from being written; end the recording if training has begun."""
        if self._has_begun:
            if session is not None:
                session.lose(error)
            else:
                self._lose(describe_failure(error, self.config.dump_path))
        elif isinstance(error, OSError):
            raise create_path_error(self.config.dump_path, error) from error
        else:
            raise error

    def _lose(self, failure: WriteFailure, count: int = 0) -> None:
        """End the recording after a failed write, with one message.

        Args:
            failure: The failed write.
            count: The number of records that the step had by then.
        """
        if self._states.apply(Change.LOSE):
            complete_count = self._sessions.current.written_count if self._sessions.current is not None else 0
            self.lost = Loss(failure, self._step, complete_count, count)
            print_loss(self.lost, self.complete_steps)

    @property
    def complete_steps(self) -> list[int]:
        """The steps that were written completely and are still on disk."""
        return list_complete_steps(self.config, self.record_counts)

    @defer_interrupts()
    def step(self) -> None:
        """End the step and write it completely."""
        self._has_begun = True
        self.stop()
        self._close_session()
        self._sessions.carryover.tokens = None
        self._step += 1

    @defer_interrupts()
    def set_step(self, step: int) -> None:
        """Set the number of the current step."""
        self.stop()
        self._close_session()
        self._step = step
        if not self._sessions.claim.is_made:  # a resumed training keeps the recorded steps before this one
            self._sessions.claim.first_step = step

    def use_claim(self, claim: RunClaim) -> None:
        """Choose the directories of the run by another claim, before the first start."""
        self._sessions.claim = claim
        self._sessions.on_record = claim.note_rank

    def withdraw(self) -> None:
        """Stop recording in a forked child, and restore what the captures of its parent changed."""
        self.abandon()
        self._control.remove()

    @property
    def place(self) -> str:
        """The name of the directories of the process in its steps, such as ``rank0``."""
        return self._sessions.claim.label

    def join_at(self, other: Recorder[Any]) -> None:
        """Begin at the step of another recorder of this process, which need not record anything itself."""
        self._step = other._step
        self._sessions.claim.first_step = other._sessions.claim.first_step
        other.reports_missing = other.reports_missing and bool(other.activity.starts)

    def finish(self) -> None:
        """Write everything and release the run, or wait until everything sent is acknowledged."""
        self.complete()
        if self.reports_missing:
            self.report_comparison()
            for sentence in self.missing_records():
                self._notices.print_once(f"probe: {sentence}")
        if self.sender is not None:
            self.sender.finish(self.config.dump_path)

    @defer_interrupts()
    def complete(self) -> None:
        """Write everything and release the run; called at the end of the process."""
        if self.state is RecorderState.FINISHED:
            return
        self.stop()
        self._close_session()
        self._control.close()
        self._states.apply(Change.FINISH)
        self._sessions.claim.release()

    def missing_records(self) -> list[str]:
        """Return sentences on what was selected and not recorded, for the end of the program."""
        if self.lost is not None or self.config.online is not None:
            return []
        return self.activity.list_sentences(sum(self.record_counts.values()), self._get_position())

    def _get_position(self) -> Position:
        return Position(self._step, self.process_count, self.is_selected(self.config.ranks), self._has_compiled_code())

    def abandon(self) -> None:
        """Stop recording without writing anything; do nothing if no recording has begun."""
        if self._sessions.claim.is_made:
            self._leave_run()

    def _leave_run(self) -> None:
        """Stop recording without writing anything, because the run belongs to the parent process."""
        self._sessions.leave_run()
        self._states.apply(Change.FINISH)

    @defer_interrupts()
    def stop(self) -> None:
        """Stop recording and write the records."""
        if not self._states.apply(Change.STOP):
            return
        session = self._sessions.current
        if session is not None:
            self._control.complete(session)
        self._control.remove()
        if session is not None:
            session.active = False
            if session.has_content:
                self._sessions.choose_place(session, self._step)
            session.flush(although_empty=self._writes_empty_steps)

    # -- single values and modules -----------------------------------------------------------

    def save(self, variable: Any, name: str, backward: bool) -> None:
        """Record a variable at level debug; do nothing at other levels.

        Args:
            variable: A tensor, a number, a text, or lists and dicts of them.
            name: The name of its record, without count.
            backward: True to record the gradients of its tensors too.
        """
        if self.config.level != "debug":
            return
        if not self._is_step_recorded():
            self._check_later_steps()
            return
        session = self._try_open_session()
        if session is None:
            return
        self._has_begun = session.active = True
        save_variable(session, variable, name, backward)

    def monitor(self, model: Any) -> None:
        """Raise a UserError, because this recorder records from ``start`` to ``stop``."""
        raise UserError(
            f'The task "{self.config.task}" does not support monitor(), a method of grad_probe.',
            'Set "task": "grad_probe", or call start() and stop() around each step.',
        )

    def note_tokens(self, ids: Any, positions: Any, lengths: Any) -> None:
        """Note the samples and tokens of this step's batch, to be written with its records."""
        if not self._is_step_recorded():
            return
        self._sessions.note_tokens(ids, positions, lengths)

    def module_dump(self, module: Any, name: str) -> None:
        """Record one module and nothing else, until ``module_dump_end``."""
        if not self._is_step_recorded():
            return
        self._control.end_single()
        session = self._try_open_session()
        if session is None:
            return
        self._has_begun = session.active = True
        self._states.apply(Change.PAUSE)
        self._control.record_single(session, self.new_modules(), name, module)

    def module_dump_end(self) -> None:
        """End the recording of a single module and record as before."""
        if not self._control.end_single():
            return
        self._states.apply(Change.RESUME)
        if self._sessions.current is not None:
            self._sessions.current.flush()

    # -- sessions --------------------------------------------------------------------------

    def _try_open_session(self) -> S | None:
        """Return the session of this step; None if its files cannot be created after training has begun."""
        try:
            return self._sessions.open(self._step)
        except Exception as error:  # a training that has begun must go on whatever the error
            self._handle_start_error(error)
            return None

    def report_comparison(self) -> None:
        """Print once which calls differ from the golden, if there is one."""
        self._sessions.report_comparison(is_complete=self.lost is None)

    def _close_session(self) -> None:
        """Complete the step; after an interrupt it is still open and can be closed again."""
        session = self._sessions.current
        if session is not None:
            session.active = False
            self.activity.add_step(session.calls)
            if not session.count:
                session.note(
                    NOTHING_RECORDED, self.activity.explain(session.calls, self._get_position()).format_clause()
                )
            is_complete = self._sessions.complete(session)
            self._handle_closed_step(session)
            if is_complete:
                self.record_counts[self._step] = session.count
            self._sessions.drop_current()

    def _is_step_recorded(self) -> bool:
        return self._states.allows(Change.START) and self._is_step_selected() and self.config.read_enabled()

    def _is_step_selected(self) -> bool:
        return is_step_selected(self.config, self._step, self._notices) and self._sessions.claim.may_record(self.config)


# -- recorders in forked children, where the run belongs to the parent process ----------------------


class ForkedRecorder(Protocol):
    """A recorder that a fork copies.

    Attributes:
        reports_missing: True to print at the end what was not recorded.
    """

    reports_missing: bool

    def abandon(self) -> None:
        """Stop recording without writing anything."""


def abandon_in_children(recorder: ForkedRecorder) -> None:
    """Let each forked child of this process abandon its copy of a recorder."""
    if hasattr(os, "register_at_fork"):
        reference = weakref.ref(recorder)
        os.register_at_fork(after_in_child=lambda: _abandon(reference()))


def _abandon(recorder: ForkedRecorder | None) -> None:
    if recorder is not None:
        recorder.reports_missing = False
        recorder.abandon()


# -- creation of a framework's recorder by other plugins --------------------------------------------


def new_recorder(config: Config, framework: str) -> Recorder[Any]:
    """Return a recorder of a framework, which records whatever models are called.

    Args:
        config: The settings of the recording.
        framework: The name of the framework.

    Raises:
        UserError: No installed plugin records the framework.
        PluginError: The framework cannot be imported.
    """
    from probe_recording.installed import find_spec  # loads the plugins
    from probe_recording.specs import RecorderSpec

    spec = find_spec("recorders", RecorderSpec, framework)
    if spec is None:
        raise UserError(
            f"No installed plugin records {framework}.", f"Install the distribution for it: probe-{framework}."
        )
    recorder = replace(spec, values={"config": config, "finds_models": True}).make()
    assert isinstance(recorder, Recorder)
    return recorder
