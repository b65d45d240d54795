"""Run of a receiver: from its options to the verdict, with all that it opens and closes."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from probe_precheck.api import RunnerOptions
from probe_precheck.assignment import Assignment
from probe_precheck.checking import find_runner_spec, find_tables
from probe_precheck.settings import Settings, check_names
from probe_precheck.supervisor import ProcessPool
from probe_recording.sending.tls import create_receiver_context
from probe_reporters.api import claim_time_stamp

from probe_core.errors import UserError
from probe_core.files.atomic import make_directory, remove_leftovers
from probe_core.model.plan import parse_time_stamp
from probe_core.plugins.manager import Manager
from probe_online.desk import Desk
from probe_online.files import ResultDirectory
from probe_online.judging import JudgeSetup, create_tables, load_sent_runner, parse_status
from probe_online.ledger import STATE_NAME, Ledger
from probe_online.server import Server
from probe_online.settings import ReceiverSettings
from probe_online.watch import Watcher

FINISHED, INTERRUPTED = "finished", "interrupted"
PRELOADED = ("probe_online.judging", "probe_precheck.checking")
POLL_SECONDS = 0.25
STATE_INTERVAL_SECONDS = 1.0
"""Seconds between two writes of the state file."""


class ReceptionReporter(Protocol):
    """Display of a running receiver to a person."""

    def report_start(self, address: str, files: ResultDirectory, earlier_call_count: int | None) -> None:
        """Report the address, and the number of calls judged earlier if the receiver resumes a state."""

    def report_refusal(self, sentence: str) -> None:
        """Report a refused connection or message."""

    def show(self, ledger: Ledger) -> None:
        """Show the state. The receiver calls this several times a second."""

    def finish(self) -> None:
        """Remove what ``show`` left on the terminal."""


@dataclass(frozen=True, slots=True)
class ReceptionPlan:
    """Order for a receiver: its place and limits, and the options of the check.

    Attributes:
        receiving: The place and the limits.
        framework: The framework of the trainings.
        output: The directory of the result files.
        time_stamp: The time of the program's start, 14 digits.
        devices: ``cpu``, or indices of accelerators; empty for an accelerator if there is one, else the CPU.
        workers: The number of processes.
        timeout: The seconds that one call may take.
        settings: The contents of the configuration file.
        release: The release of msprobe whose thresholds apply.
        language: The language of headers and messages.
        standards: A yaml file that assigns APIs to standards; None for the built-in lists alone.
        seed: The number from which the reference's rounding of inputs is drawn.
        jit_compile: True to compile operators just in time, on devices with that option.
    """

    receiving: ReceiverSettings
    framework: str
    output: Path
    time_stamp: str
    devices: tuple[str, ...] = ()
    workers: int = 1
    timeout: float = 600.0
    settings: Settings = field(default_factory=Settings)
    release: str = "guide"
    language: str = "zh"
    standards: Path | None = None
    seed: int = 1234
    jit_compile: bool = False


@dataclass(slots=True)
class ReceptionResult:
    """Receiver that has ended.

    Attributes:
        ledger: What it knows.
        files: The result files.
        interrupted: True if Ctrl-C ended it.
    """

    ledger: Ledger
    files: ResultDirectory
    interrupted: bool = False


def receive(plan: ReceptionPlan, manager: Manager, voice: ReceptionReporter) -> ReceptionResult:
    """Judge calls until every sender has ended or Ctrl-C is pressed.

    Raises:
        UserError: The device or the framework is missing, the place cannot be used, or a file not be written.
    """
    setup = _create_setup(plan)
    runner = load_sent_runner(manager, plan.framework)
    if plan.settings.white_list or plan.settings.black_list:
        check_names(plan.settings, runner.apis())
    assignment = Assignment(manager, plan.release, plan.standards)
    local_tables = find_tables(manager, plan.framework)
    tables = {parties: create_tables(parties, local_tables, assignment) for parties in (2, 3)}
    make_directory(plan.output)
    remove_leftovers(plan.output)
    with ExitStack() as stack:
        time_stamp, state = _claim_state(stack, plan)
        files = stack.enter_context(closing(ResultDirectory(plan.output, time_stamp, tables, plan.language)))
        ledger = Ledger(plan.output / STATE_NAME.format(time_stamp), plan.receiving.ranks)
        earlier = None
        if state is not None:
            rows = ((row.key, parse_status(row.cells)) for row in files.resume())
            earlier = ledger.load(state, rows)
        processes = stack.enter_context(_create_processes(plan, setup, manager))
        processes.set_up()  # a missing device is reported before calls are expected
        desk = Desk(processes, ledger, files, setup.create_row_maker(manager), plan.settings)
        received = ReceptionResult(ledger, files)
        state_name = INTERRUPTED
        try:
            source = _create_source(plan, desk)
            address = source.start()
            stack.callback(source.stop)
            ledger.write()
            voice.report_start(address, files, earlier)
            _judge(plan, desk, ledger, voice)
            state_name = FINISHED
        except KeyboardInterrupt:
            received.interrupted = True
        finally:
            ledger.write(state_name)
        voice.finish()
        return received


def _create_setup(plan: ReceptionPlan) -> JudgeSetup:
    return JudgeSetup(
        plan.framework,
        RunnerOptions(plan.output / "dump.json", jit_compile=plan.jit_compile, seed=plan.seed),
        plan.devices or ("",),
        plan.release,
        plan.standards,
        plan.language,
        plan.settings.precision,
    )


def _create_processes(plan: ReceptionPlan, setup: JudgeSetup, manager: Manager) -> ProcessPool:
    return ProcessPool(
        setup,
        plan.workers,
        plan.timeout,
        preload=(*PRELOADED, *find_runner_spec(manager, plan.framework).preload),
        most=max(plan.receiving.calls, plan.workers) * 4,
    )


def _judge(plan: ReceptionPlan, desk: Desk, ledger: Ledger, voice: ReceptionReporter) -> None:
    """Write rows until every sender has ended."""
    written = time.monotonic()
    while not ledger.is_over(plan.receiving.patience):
        for sentence in desk.process_answers(POLL_SECONDS):
            voice.report_refusal(sentence)
        if time.monotonic() > written + STATE_INTERVAL_SECONDS:
            written = time.monotonic()
            ledger.write()
        voice.show(ledger)


def _create_source(plan: ReceptionPlan, desk: Desk) -> Server | Watcher:
    place = plan.receiving.place
    if place.directory is not None:
        return Watcher(plan.receiving, place.directory, plan.framework, desk)
    return Server(plan.receiving, plan.framework, desk, None if place.tls is None else _Contexts(place.tls))


class _Contexts:
    """TLS contexts of new connections; a certificate that was replaced is used at once.

    Args:
        directory: The directory with the certificates.

    Raises:
        UserError: A file is missing or wrong, or others can read the key.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._changed = self._state()
        self._context = create_receiver_context(directory)

    def __call__(self) -> ssl.SSLContext:
        """Return the context; the former one while the files are being replaced."""
        state = self._state()
        if state != self._changed:
            with suppress(UserError):
                self._context, self._changed = create_receiver_context(self._directory), state
        return self._context

    def _state(self) -> list[tuple[str, int]]:
        try:
            return sorted((path.name, path.stat().st_mtime_ns) for path in self._directory.iterdir())
        except OSError:
            return []


def _claim_state(stack: ExitStack, plan: ReceptionPlan) -> tuple[str, dict[str, Any] | None]:
    """Take over the latest state in the output directory that no receiver works with, or begin a new one.

    Returns:
        The time stamp, and the state; None for a new one.
    """
    for path in _iterate_unfinished_states(plan.output):
        time_stamp = parse_time_stamp(path)
        try:
            stack.enter_context(claim_time_stamp(plan.output, time_stamp, is_resumed=True))
        except UserError:
            continue  # another receiver works with it
        again = _read(path)  # it may have ended meanwhile
        if again is not None and again.get("state") != FINISHED:
            return time_stamp, again
        stack.close()
    return stack.enter_context(claim_time_stamp(plan.output, plan.time_stamp)), None


def _iterate_unfinished_states(directory: Path) -> Iterator[Path]:
    """Yield the state files of receivers that have not come to their end, the latest first."""
    for path in sorted(directory.glob(STATE_NAME.format("[0-9]" * 14)), reverse=True):
        state = _read(path)
        if state is not None and state.get("state") != FINISHED:
            yield path


def _read(path: Path) -> dict[str, Any] | None:
    try:
        state = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return state if isinstance(state, dict) else None
