"""The sessions of a recorder, one for each step, and the values that a session passes to the next one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from probe_core.errors import UserError, format_count
from probe_recording.capture.condition_capture import ConditionCapture
from probe_recording.messages import Notices
from probe_recording.recorder.framework_recorder import FrameworkRecorder
from probe_recording.run_directory.process import Process
from probe_recording.run_directory.run_claim import RunClaim
from probe_recording.sending.sender import Sender
from probe_recording.sending.session import SendingMixin
from probe_recording.sessions.loss import WriteFailure
from probe_recording.sessions.session import Session
from probe_recording.settings.config import Config
from probe_recording.settings.slices import DimensionSlice
from probe_recording.settings.stage_name import join_label
from probe_recording.step_facts.tokens import BatchTokens

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
    tokens: BatchTokens | None = None


class StepSessions(Generic[S]):
    """The sessions of a recorder, of which at most one is open.

    Args:
        recorder: The recorder, whose settings may change between steps.
        conditions: The capture of the conditions of steps.
        notices: The messages of the recorder.
        carryover: The values for the first session.

    Attributes:
        current: The session of the present step; None before anything of it is recorded.
        carryover: The values for the next session.
        claim: The claim on the run directory.
        comparison: The comparison with a golden; None without one.
        sender: The sender of calls, once one is needed; None if they are written.
        on_record: A function to call with each complete record; None for none.
        on_loss: A function to call when a write fails, with the failure and the number of records.
        request_slices: The rows of the request that is recorded.
    """

    on_loss: Callable[[WriteFailure, int], None]

    def __init__(
        self, recorder: FrameworkRecorder[S], conditions: ConditionCapture, notices: Notices, carryover: Carryover
    ) -> None:
        self.current: S | None = None
        self.carryover = carryover
        self.claim = RunClaim(recorder)
        self.comparison: GoldenComparison | None = None
        self.sender: Sender | None = None
        self.on_record: Callable[[], None] | None = None
        self.request_slices: tuple[DimensionSlice, ...] = ()
        self._recorder = recorder
        self._conditions = conditions
        self._notices = notices

    def open(self, step: int) -> S:
        """Return the session of a step; open it first if none is open.

        Raises:
            UserError: The directory of the step cannot be written.
        """
        if self.current is None:
            self.current = self._create(step)
        config = self._recorder.config
        if config.slices or config.request:
            self.current.collector.slices = (*config.slices, *self.request_slices)
        return self.current

    def _create(self, step: int) -> S:
        recorder = self._recorder
        config, label = recorder.config, recorder.label
        directory = self.claim.open_step(config, step)
        session = recorder.new_session(directory, self._format_place(step, join_label(config.stage, label)))
        session.overflows.left = self.carryover.overflows_left
        session.overflows.on_last = self._end_search
        session.on_loss = self.on_loss
        if self.comparison is not None:
            self.comparison.begin_step(session, step, self._notices)
        session.on_record = self.on_record
        if isinstance(session, SendingMixin):
            if self.sender is None:
                self.sender = Sender.from_config(
                    config, label, recorder.process_count, session.framework, recorder.versions
                )  # fmt: skip
            session.send_into(self.sender.outbox, step)
            self.sender.begin_step(step)
        elif config.conditions:
            self._conditions.begin(session)
        return session

    def choose_place(self, session: S, step: int) -> None:
        """Choose the directory of the process, if its rank is known only now; a failure ends the recording."""
        config = self._recorder.config
        try:
            label = self.claim.choose_label(config)
        except (OSError, UserError) as error:
            session.lose(error)
            return
        if label:
            session.rename(self._format_place(step, label))

    def _format_place(self, step: int, label: str) -> str:
        """Return the directory of a step as the user would write it."""
        return f"{self._recorder.config.shown_path.rstrip('/')}/step{step}/{label}"

    def complete(self, session: S) -> bool:
        """Complete the files of the open session; return False if they are not complete, or not kept."""
        self._conditions.end()
        self.carryover.room = session.close()
        is_kept = self.claim.complete_step()
        return session.lost is None and is_kept

    def drop_current(self) -> None:
        """Forget the session, whose files are complete."""
        if self.current is not None:
            self.carryover.overflows_left = self.current.overflows.left
        self.current = None

    def _end_search(self) -> None:
        """End the search after the last overflow that was asked for; the training goes on."""
        if self.current is not None:
            self.current.active = False
        self.carryover.overflows_left = 0
        self._notices.print_once(
            f"probe: {format_count(self._recorder.config.overflow_count, 'overflow')} recorded; the search ends, "
            "the program goes on unrecorded."
        )

    def note_tokens(self, ids: Any, positions: Any, lengths: Any) -> None:
        """Note the samples and tokens of the batch of this step, to be written with its records."""
        if self.current is None:
            self.carryover.tokens = BatchTokens.from_arguments(ids, positions, lengths)
            return
        with self.current.quiet():
            self.current.tokens = BatchTokens.from_arguments(ids, positions, lengths)

    def pass_tokens(self, session: S) -> None:
        """Give a session the tokens that were noted before it was opened."""
        session.tokens, self.carryover.tokens = self.carryover.tokens or session.tokens, None

    def report_comparison(self, *, is_complete: bool) -> None:
        """Print once which calls differ from the golden, if there is one and the recording is complete."""
        comparison, self.comparison = self.comparison, None
        if comparison is not None and is_complete:
            comparison.report()

    def leave_run(self) -> None:
        """Write nothing more, because the run belongs to the parent process."""
        self.claim.let_go()
        if self.sender is not None:
            self.sender.abandon()
        if self.current is not None:
            self.current.active = False
        self.current = self.sender = self.comparison = None


def create_comparison(config: Config, framework: str, process: Process) -> GoldenComparison | None:
    """Return the comparison of a recording with the golden that its settings name; None if they name none.

    Raises:
        UserError: The golden cannot be read, or was recorded in another way.
    """
    if config.diff_check is None:
        return None
    from probe_recording.diff_check.comparison import GoldenComparison  # loads the plugins

    return GoldenComparison(config, framework, process)
