"""The activity of a program while a recorder is installed, to explain why calls were not recorded."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from probe_recording.messages import Notices
from probe_recording.recorder.empty_recording import (
    EmptyReason,
    EmptyRecording,
    find_unmatched,
    format_unmatched_entry,
)
from probe_recording.run_directory.directory import check_place
from probe_recording.run_directory.process import Process
from probe_recording.settings.config import Config

NOTHING_RECORDED = "nothing_recorded"
"""Field in the header of a step without records: a sentence with the reason."""


class Position(NamedTuple):
    """The state of a process when it ends a step or the recording.

    Attributes:
        last_step: The last step that the program reached.
        process_count: The number of processes of the run.
        is_rank_selected: True if the rank of this process is recorded.
        has_compiled_code: True if the program compiled code in which the recorder may miss calls.
    """

    last_step: int = 0
    process_count: int = 1
    is_rank_selected: bool = True
    has_compiled_code: bool = False


@dataclass(slots=True)
class Activity:
    """The events of a run that decide what is recorded.

    Attributes:
        config: The settings of the recording.
        starts: Number of times that ``start`` was called.
        is_stopped_first: True if ``stop`` was called before ``start``.
        missed_requests: Number of batches without the request that the configuration names.
        has_request: True if a batch held this request.
        sessions: Number of steps for which the recording was started.
        calls: The largest number of calls in a step, including calls that are not recorded, by name without
            count and phase.
    """

    config: Config
    starts: int = 0
    is_stopped_first: bool = False
    missed_requests: int = 0
    has_request: bool = False
    sessions: int = 0
    calls: dict[str, int] = field(default_factory=dict)

    def add_start(self) -> None:
        """Count a call of ``start``."""
        self.starts += 1

    def add_batch(self, *, has_request: bool) -> None:
        """Note a batch of requests, with or without the request that is recorded."""
        self.missed_requests += not has_request
        self.has_request = self.has_request or has_request

    def add_stop(self) -> None:
        """Note a call of ``stop``."""
        self.is_stopped_first = self.is_stopped_first or not self.starts

    def add_step(self, calls: Mapping[str, int]) -> None:
        """Add the calls of a step."""
        self.sessions += 1
        for name, count in calls.items():
            self.calls[name] = max(self.calls.get(name, 0), count)

    def list_sentences(self, record_count: int, position: Position) -> list[str]:
        """Return sentences on selected calls that were not recorded.

        Args:
            record_count: The number of records of all steps.
            position: The state of the process at the end.
        """
        config = self.config
        if record_count:
            unmatched = find_unmatched(config.names, self.calls)
            return [f"{format_unmatched_entry(entry, config.level)}." for entry in unmatched]
        if not position.is_rank_selected and any(rank < position.process_count for rank in config.ranks):
            return []  # another process records
        explanation = self.explain(self.calls, position)
        if explanation.reason is EmptyReason.REFUSED:
            return []
        if (error := _find_uncaught_exception()) is not None:
            kind = type(error).__name__
            return [f"nothing was recorded: {kind} ended the program before a selected step had a record."]
        return [f"nothing was recorded: {explanation.format_clause()}"]

    def explain(self, calls: Mapping[str, int], position: Position) -> EmptyRecording:
        """Return the reason why there are no records.

        Args:
            calls: The calls, including calls that are not recorded.
            position: The state of the process.
        """
        reason = self._find_reason(calls, position)
        unmatched = find_unmatched(self.config.names, calls) if reason is EmptyReason.NO_MATCH else ()
        return EmptyRecording(reason, self.config, position.last_step, position.process_count, unmatched)

    def _find_reason(self, calls: Mapping[str, int], position: Position) -> EmptyReason:
        config = self.config
        if not position.is_rank_selected:
            return EmptyReason.RANK_ABSENT
        if not self.sessions:
            return self._find_sessionless_reason()
        if config.task == "overflow_check":
            return EmptyReason.NO_OVERFLOW
        if calls and find_unmatched(config.names, calls):
            return EmptyReason.NO_MATCH
        if calls and config.scope:
            return EmptyReason.OUT_OF_SCOPE
        if calls and "forward" not in config.directions:
            return EmptyReason.NO_BACKWARD
        return EmptyReason.COMPILED if position.has_compiled_code else EmptyReason.NO_CALLS

    def _find_sessionless_reason(self) -> EmptyReason:
        if self.config.enabled is False:
            return EmptyReason.DISABLED
        if self.config.level == "debug":
            return EmptyReason.NOTHING_SAVED
        if self.missed_requests and not self.has_request:
            return EmptyReason.REQUEST_ABSENT
        if self.starts:
            return EmptyReason.STEP_NOT_REACHED if self.config.steps else EmptyReason.REFUSED
        return EmptyReason.STOPPED_FIRST if self.is_stopped_first else EmptyReason.NOT_STARTED


def _find_uncaught_exception() -> BaseException | None:
    """Return the exception that ended the program; None in an interactive session, which continues."""
    return None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)


# -- the selection of steps by a configuration (docs/configuration.md#steps-and-ranks) --------------


def has_later_steps(config: Config, step: int) -> bool:
    """Return True if a step after this one is selected by its number."""
    return bool(config.steps) and step < max(config.steps)


def is_past_last_step(config: Config, step: int) -> bool:
    """Return True if neither this step nor a later one is selected."""
    return bool(config.steps) and step > max(config.steps)


def is_step_selected(config: Config, step: int, notices: Notices) -> bool:
    """Return True if a step is selected; print once that all selected steps are over."""
    if not config.steps or step in config.steps:
        return True
    if is_past_last_step(config, step):
        notices.print_once(
            f"probe: step {max(config.steps)} was the last step to record; later steps are not recorded."
        )
    return False


def check_later_steps(config: Config, step: int, process: Process) -> None:
    """Check at the first start that a later step can be written, so that a mistake is reported early.

    Raises:
        UserError: A later step of the process is selected, and the directory cannot be written.
    """
    if has_later_steps(config, step) and process.is_selected(config.ranks) and config.read_enabled():
        check_place(config.dump_path)
