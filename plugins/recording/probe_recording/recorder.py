"""The steps and ranks of a recording and its open session (docs/configuration.md#steps-and-ranks)."""

from __future__ import annotations

import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from probe_core.errors import UserError, format_count
from probe_core.files.atomic import create_path_error
from probe_recording.activity import NOTHING_RECORDED, Activity, Position
from probe_recording.capture import Capture, TokenWindow
from probe_recording.condition_capture import ConditionCapture
from probe_recording.config import Config
from probe_recording.directory import StepDirectory, check_place
from probe_recording.former_hooks import FormerHooks
from probe_recording.interrupts import defer_interrupts
from probe_recording.loss import Loss, WriteFailure, describe_failure, print_loss
from probe_recording.messages import Notices
from probe_recording.module_hook_interface import ModuleHookInterface, NoModuleHooks
from probe_recording.process import Process
from probe_recording.recorder_state import Change, RecorderState, StateMachine
from probe_recording.run_claim import RunClaim, list_complete_steps
from probe_recording.sending.sender import Sender
from probe_recording.sending.session import SendingMixin
from probe_recording.session import Session
from probe_recording.slices import DimensionSlice, find_request_slice
from probe_recording.stage_name import join_label
from probe_recording.threads import Threads
from probe_recording.tokens import TokenNote
from probe_recording.variables import save_variable

if TYPE_CHECKING:
    from probe_recording.diff_check.comparison import GoldenComparison

S = TypeVar("S", bound=Session)


@dataclass(slots=True)
class Carryover:
    """The values that the session of a step passes to that of the next step.

    Attributes:
        room: Bytes to keep free in the tensor file for its header.
        overflows_left: The number of overflows to record until the search ends; negative for no end.
        tokens: The samples and tokens of a batch that the script noted before the session was opened.
    """

    room: int
    overflows_left: int
    tokens: TokenNote | None = None


class Recorder(Process, ABC, Generic[S]):
    """A recorder of one process, which opens a session for each step and installs captures that record into it.

    Args:
        config: The settings of the recording.
        room: Bytes to keep free in the first tensor file for its header.
        writes_empty_steps: True to write the files of a step without records.

    Attributes:
        framework: The name of the framework.
        config: The settings of the recording.
        captures: The captures, in the order in which they are installed; subclasses append theirs.
        record_counts: The number of records of each step that was written completely.
        lost: The failed write that ended the recording; None if there was none.
        sender: The sender of calls, once one is needed; None if they are written.
        activity: What the program did, to explain what was not recorded.
    """

    reports_missing = True
    """True to print at the end what was not recorded although it was selected, and which calls differ from a golden."""

    framework = ""
    captures: list[Capture[S]]

    def __init__(self, config: Config, room: int = 0, *, writes_empty_steps: bool = True) -> None:
        self._comparison = self._create_comparison(config)
        self.config = config if self._comparison is None else self._comparison.config
        self.record_counts: dict[int, int] = {}
        self.lost: Loss | None = None
        self.sender: Sender | None = None
        self.activity = Activity(config)
        self._writes_empty_steps = writes_empty_steps
        self._has_begun = False
        self._step = 0
        self._session: S | None = None
        self._carryover = Carryover(room, config.overflow_count)
        self._claim = RunClaim(self)
        self._on_record: Callable[[], None] | None = None
        self._threads = Threads()
        self._states = StateMachine()
        self._notices = Notices()
        self._conditions = self.new_conditions()
        self._single: ModuleHookInterface[S] | None = None
        self._request_slices: tuple[DimensionSlice, ...] = ()
        self._token_window: TokenWindow[S] = TokenWindow(self._hook_calls)
        self.captures = [self._conditions]
        if hasattr(self, "_see"):
            self.captures.append(FormerHooks(self))
        if hasattr(os, "register_at_fork"):
            recorder = weakref.ref(self)
            os.register_at_fork(after_in_child=lambda: _abandon_in_child(recorder()))

    # -- to be overridden for a framework -------------------------------------------------

    @abstractmethod
    def new_session(self, directory: StepDirectory, displayed_path: str) -> S:
        """Return a new session of this framework.

        Args:
            directory: The directory of the step.
            displayed_path: The path of the directory as the user wrote it, for the header of the run.
        """

    def new_modules(self) -> ModuleHookInterface[S]:
        """Return new hooks of modules."""
        return NoModuleHooks()

    def new_conditions(self) -> ConditionCapture:
        """Return a new capture of the conditions of steps."""
        return ConditionCapture()

    @property
    def versions(self) -> dict[str, str]:
        """Versions of the framework and its devices' packages, for the receiver of calls."""
        return {}

    @abstractmethod
    def register(self, holder: Any, attribute: str, name: str) -> None:
        """Start recording the calls of ``holder.attribute``, under ``name`` and a count."""

    @abstractmethod
    def restore(self, holder: Any, attribute: str) -> bool:
        """Stop recording the calls of ``holder.attribute``; return False if they were not recorded."""

    def _can_record(self) -> bool:
        """Return False, after a warning, if the program runs in a way that cannot be recorded."""
        return True

    def _hook_calls(self, model: Any, before: Callable[..., None]) -> Any:
        """Install a hook before each forward of the model; return a handle with a method ``remove``."""
        return model.register_forward_pre_hook(before)

    def _has_compiled_code(self) -> bool:
        """Return True if the program compiled code, inside which the recorder may see no calls."""
        return False

    def _handle_closed_step(self, session: S) -> None:
        """Use the complete files of a step; called after each step."""

    def _blind(self) -> None:
        """Do nothing; plugins with the former interface call this method of their base."""

    # -- captures ----------------------------------------------------------------------------

    def _install_captures(self, session: S, model: Any) -> None:
        for capture in self.captures:
            capture.install(session, model)
        if self.state is RecorderState.PAUSED:
            self._pause_captures()

    def _pause_captures(self) -> None:
        for capture in self.captures:
            capture.pause()

    def _remove_captures(self) -> None:
        self._end_module_dump()
        self._token_window.remove()
        for capture in reversed(self.captures):
            capture.remove()

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
        if self.state is RecorderState.FINISHED or not self._carryover.overflows_left:
            return True
        return bool(self.config.steps) and self._step > max(self.config.steps)

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
        is_recorded = self._carryover.overflows_left and self._is_step_recorded()
        if self.config.level == "debug":
            return
        if not is_recorded or not self._can_record():
            self._check_later_steps()
            return
        session = self._try_open_session()
        if session is None:
            return
        try:
            self._install_captures(session, model)
        except BaseException as error:
            self._states.apply(Change.STOP)
            self._remove_captures()  # leave nothing of a failed start in place
            if not isinstance(error, Exception):
                raise
            self._handle_start_error(error, session)
            return
        self._has_begun = True
        session.tokens, self._carryover.tokens = self._carryover.tokens or session.tokens, None
        session.active = session.lost is None
        self._states.apply(Change.START)
        if token_range is not None and model is not None:
            self._token_window.install(session, model, token_range)

    def select_request(self, scheduled_tokens: Mapping[str, int] | None) -> bool:
        """Record only the rows of the request that the configuration names, until the next call.

        Args:
            scheduled_tokens: The number of rows of each request of the batch; None if there are no requests.

        Returns:
            False if the batch does not hold the request.
        """
        self._request_slices = ()
        if not scheduled_tokens or not self.config.request:
            return True
        request_slice = find_request_slice(self.config.request, scheduled_tokens)
        self.activity.add_batch(has_request=request_slice is not None)
        if request_slice is not None:
            self._request_slices = (request_slice,)
        return request_slice is not None

    def _check_later_steps(self) -> None:
        """Raise a UserError now if a later step is selected and its directory cannot be written."""
        later = bool(self.config.steps) and self._step < max(self.config.steps)
        if not self._has_begun and later and self.is_selected(self.config.ranks) and self._is_enabled():
            check_place(self.config.dump_path)
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
            complete_count = self._session.written_count if self._session is not None else 0
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
        self._carryover.tokens = None
        self._step += 1

    @defer_interrupts()
    def set_step(self, step: int) -> None:
        """Set the number of the current step."""
        self.stop()
        self._close_session()
        self._step = step
        if not self._claim.is_made:  # a resumed training keeps the recorded steps before this one
            self._claim.first_step = step

    def use_claim(self, claim: RunClaim) -> None:
        """Choose the directories of the run by another claim, before the first start."""
        self._claim = claim
        self._on_record = claim.note_rank

    def withdraw(self) -> None:
        """Stop recording in a forked child, and restore what the captures of its parent changed."""
        self.abandon()
        self._remove_captures()

    @property
    def place(self) -> str:
        """The name of the directories of the process in its steps, such as ``rank0``."""
        return self._claim.label

    def join_at(self, other: Recorder[Any]) -> None:
        """Begin at the step of another recorder of this process, which need not record anything itself."""
        self._step = other._step
        self._claim.first_step = other._claim.first_step
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
        for capture in self.captures:
            capture.close()
        self._states.apply(Change.FINISH)
        self._claim.release()

    def missing_records(self) -> list[str]:
        """Return sentences on what was selected and not recorded, for the end of the program."""
        if self.lost is not None or self.config.online is not None:
            return []
        return self.activity.list_sentences(sum(self.record_counts.values()), self._get_position())

    def _get_position(self) -> Position:
        return Position(self._step, self.process_count, self.is_selected(self.config.ranks), self._has_compiled_code())

    def abandon(self) -> None:
        """Stop recording without writing anything; do nothing if no recording has begun."""
        if self._claim.is_made:
            self._leave_run()

    def _leave_run(self) -> None:
        """Stop recording without writing anything, because the run belongs to the parent process."""
        self._claim.let_go()
        if self.sender is not None:
            self.sender.abandon()
        if self._session is not None:
            self._session.active = False
        self._session = self.sender = self._comparison = None
        self._states.apply(Change.FINISH)

    @defer_interrupts()
    def stop(self) -> None:
        """Stop recording and write the records."""
        if not self._states.apply(Change.STOP):
            return
        session = self._session
        if session is not None:
            for capture in self.captures:
                capture.complete(session)
        self._remove_captures()
        if session is not None:
            session.active = False
            if session.has_content:
                self._choose_place(session)
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
        session = self._session
        if session is None:
            self._carryover.tokens = TokenNote.from_arguments(ids, positions, lengths)
            return
        with session.quiet():
            session.tokens = TokenNote.from_arguments(ids, positions, lengths)

    def module_dump(self, module: Any, name: str) -> None:
        """Record one module and nothing else, until ``module_dump_end``."""
        if not self._is_step_recorded():
            return
        self._end_module_dump()
        session = self._try_open_session()
        if session is None:
            return
        self._has_begun = session.active = True
        self._states.apply(Change.PAUSE)
        self._pause_captures()
        self._single = self.new_modules()
        self._single.begin_step(session)
        self._single.install([(f"{name}.{type(module).__name__}", module)], gradients=False)

    def module_dump_end(self) -> None:
        """End the recording of a single module and record as before."""
        if self._single is None:
            return
        self._end_module_dump()
        self._states.apply(Change.RESUME)
        if self._session is not None:
            self._session.flush()

    def _end_module_dump(self) -> None:
        """Remove the hooks of the single module and resume the captures that it paused."""
        if self._single is None:
            return
        self._single.remove()
        self._single = None
        for capture in self.captures:
            capture.resume()

    # -- sessions --------------------------------------------------------------------------

    def _try_open_session(self) -> S | None:
        """Return the session of this step; None if its files cannot be created after training has begun."""
        try:
            return self._open_session()
        except Exception as error:  # a training that has begun must go on whatever the error
            self._handle_start_error(error)
            return None

    def _open_session(self) -> S:
        label = self.label
        if self._session is None:
            directory = self._open_directory()
            session = self.new_session(directory, self._format_place(join_label(self.config.stage, label)))
            session.overflows_left = self._carryover.overflows_left
            session.on_last_overflow = self._end_search
            session.on_loss = self._lose
            if self._comparison is not None:
                self._comparison.begin_step(session, self._step, self._notices)
            session.on_record = self._on_record
            if isinstance(session, SendingMixin):
                self.sender = self.sender or Sender.of(
                    self.config, label, self.process_count, session.framework, self.versions
                )
                session.send_into(self.sender.outbox, self._step)
                self.sender.begin_step(self._step)
            elif self.config.conditions:
                self._conditions.begin(session)
            self._session = session
        if self.config.slices or self.config.request:
            self._session.collector.slices = (*self.config.slices, *self._request_slices)
        return self._session

    def _create_comparison(self, config: Config) -> GoldenComparison | None:
        if config.diff_check is None:
            return None
        from probe_recording.diff_check.comparison import GoldenComparison  # loads the plugins

        return GoldenComparison(config, self.framework, self)

    def report_comparison(self) -> None:
        """Print once which calls differ from the golden, if there is one."""
        comparison, self._comparison = self._comparison, None
        if comparison is not None and self.lost is None:
            comparison.report()

    def _format_place(self, label: str) -> str:
        """Return the directory of the current step as the user would write it."""
        return f"{self.config.shown_path.rstrip('/')}/step{self._step}/{label}"

    def _choose_place(self, session: S) -> None:
        """Choose the directory of the process, if its rank is known only now; a failure ends the recording."""
        try:
            label = self._claim.choose_label(self.config)
        except (OSError, UserError) as error:
            session.lose(error)
            return
        if label:
            session.rename(self._format_place(label))

    def _open_directory(self) -> StepDirectory:
        """Return the directory of the current step."""
        return self._claim.open_step(self.config, self._step)

    def _close_session(self) -> None:
        """Complete the step; after an interrupt it is still open and can be closed again."""
        session = self._session
        if session is not None:
            session.active = False
            self.activity.add_step(session.calls)
            if not session.count:
                session.note(
                    NOTHING_RECORDED, self.activity.explain(session.calls, self._get_position()).format_sentence()
                )
            self._conditions.end()
            self._carryover.room = session.close()
            is_kept = self._claim.complete_step()
            self._handle_closed_step(session)
            if session.lost is None and is_kept:
                self.record_counts[self._step] = session.count
            self._carryover.overflows_left = session.overflows_left
            self._session = None

    def _end_search(self) -> None:
        """End the search after the last overflow that was asked for; the training goes on."""
        if self._session is not None:
            self._session.active = False
        self._carryover.overflows_left = 0
        self._notices.print_once(
            f"probe: {format_count(self.config.overflow_count, 'overflow')} recorded; the search ends, "
            "the program goes on unrecorded."
        )

    def _is_step_recorded(self) -> bool:
        return self._states.allows(Change.START) and self._is_step_selected() and self._is_enabled()

    def _is_step_selected(self) -> bool:
        if self.config.steps and self._step not in self.config.steps:
            last = max(self.config.steps)
            if self._step > last:
                self._notices.print_once(
                    f"probe: step {last} was the last step to record; later steps are not recorded."
                )
            return False
        return self._claim.may_record(self.config)

    def _is_enabled(self) -> bool:
        return self.config.read_enabled()


def _abandon_in_child(recorder: Recorder[Any] | None) -> None:
    """Stop the recorder of a forked child, because the run belongs to the parent process."""
    if recorder is not None:
        recorder.reports_missing = False
        recorder.abandon()
