"""Judgement of sent calls: each becomes rows of the two files of its kind (docs/online.md#judgement).

Two-party: the sender's outputs are judged by the receiver's. Three-party: the outputs of both are judged by a
reference, and the sender's rows then by the receiver's.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from probe_precheck.api import Call, CsvColumn, NotRun, Outcome, Outputs, RunnerOptions, Skipped, Status, Unbuildable
from probe_precheck.assignment import Assignment
from probe_precheck.checking import INSTALLATION_ERRORS, create_status_rule, find_runner_spec, find_tables
from probe_precheck.comparison import DetailsComparison, build_comparison_cells, compare_rows
from probe_precheck.csvfile import format_cell_text
from probe_precheck.judging import CallJudge
from probe_precheck.memory import OUT_OF_MEMORY_TEXT
from probe_precheck.model import Result, format_one_line
from probe_precheck.protocols import SentRunner
from probe_precheck.results import build_detail_cells, build_result_cells
from probe_precheck.tables import COMPARE_DETAILS, COMPARE_RESULT, Tables
from probe_precheck.translation import select_statuses
from probe_recording.sending.body import SentTensors
from probe_recording.sending.message import SentCall, parse_call_head

from probe_core.errors import UnreadableTensor, UserError
from probe_core.plugins.manager import Manager

TWO_PARTY_STANDARDS = frozenset({"absolute_threshold", "binary_consistency", "dual_thousandth"})
"""Standards that judge the sender's outputs by the receiver's."""
SUFFIX = ".forward"
"""End of a sent record's name, behind that of its call."""
WORST = (Status.ERROR, Status.WARNING, Status.PASS)


class SentRows(NamedTuple):
    """Rows of a call.

    Attributes:
        parties: 2 or 3, by which the files are chosen.
        result: The cells of the row of the call, by column key.
        details: The cells of the rows of its outputs.
        status: The verdict on the sender's outputs.
        message: Its reason in English; empty if there is none.
        lost: True if the call took its process with it.
    """

    parties: int
    result: Mapping[str, str]
    details: tuple[Mapping[str, str], ...]
    status: Status
    message: str = ""
    lost: bool = False


class SentPayload(NamedTuple):
    """Sent call on its way to a worker process, which parses it: parsed records take much more memory.

    Attributes:
        content: The bytes of its frame, which were checked.
        head_start: The offset of the head in these.
        body_start: The offset of the body, which follows the head.
    """

    content: bytes | bytearray
    head_start: int
    body_start: int

    @property
    def call(self) -> SentCall:
        """The call that the head describes."""
        return parse_call_head(memoryview(self.content)[self.head_start : self.body_start])

    @property
    def body(self) -> memoryview:
        """The tensors."""
        return memoryview(self.content)[self.body_start :]


def call_name(record: str) -> str:
    """Return the name of a call from that of its record."""
    return record.removesuffix(SUFFIX)


def count_parties(assignment: Assignment, name: str) -> int:
    """Return 2 or 3 for a call, by the list that its API is in."""
    api = name.rpartition(".")[0].partition(".")[2]
    return 2 if assignment.get_listed_standard(api) in TWO_PARTY_STANDARDS else 3


class RowMaker:
    """Conversion of outcomes to rows.

    Args:
        judge: The judge of single outputs.
        assignment: The standards.
        tables: The columns of the first stage.
        language: The language of messages, ``zh`` or ``en``.
        precision: Digits after the point of numbers.
    """

    def __init__(self, judge: CallJudge, assignment: Assignment, tables: Tables, language: str, precision: int) -> None:
        self._judge = judge
        self._assignment = assignment
        self._columns = (*tables.details, *Tables().details, *list_standard_columns(assignment))
        self._language = language
        self._precision = precision

    def create_skipped_rows(self, name: str, reason: str, *, lost: bool = False) -> SentRows:
        """Return the rows of a call that was not judged."""
        outcome = Outcome(Skipped(reason))
        rows = self.create_rows(Call(name, 0, {}), outcome, None)
        return rows._replace(message=reason, lost=lost)

    def create_rows(self, call: Call, outcome: Outcome, sent: Any) -> SentRows:
        """Return the rows of a call from its outcome on this machine and the sent outputs."""
        parties = count_parties(self._assignment, call.name)
        forward = outcome.forward
        if forward is None or isinstance(forward, Skipped):
            of_sender = outcome
        elif parties == 2:
            of_sender = replace(outcome, forward=Outputs(forward.device, sent), moved=None)
        else:
            of_sender = replace(outcome, forward=Outputs(forward.bench, sent))
        result = self._judge.judge_call(call, of_sender)
        if parties == 2:
            result = self._apply_standard(result)
        if parties == 2 or not result.details:
            return self._create_first_stage_rows(parties, result)
        receiver = result if isinstance(forward, Skipped) else self._judge.judge_call(call, outcome)
        comparison = compare_rows(
            self._list_details(result), self._list_details(receiver), self._assignment, self._language
        )
        return self._create_second_stage_rows(call.name, comparison)

    def _apply_standard(self, result: Result) -> Result:
        """Return a result of two parties, in error if the standard says so and the first stage does not.

        The standards of two parties judge the numbers of one comparison, so the rows stand for both machines.
        """
        if result.forward is find_worst(result.statuses) is Status.ERROR:
            return result
        rows = self._list_details(result)
        comparison = compare_rows(rows, rows, self._assignment, self._language)
        wrong = {row.name: row.judgement for row in comparison.rows if row.judgement.status is Status.ERROR}
        if not wrong:
            return result
        details = tuple(
            replace(detail, messages=(*detail.messages, *wrong[detail.name].messages), standard=Status.ERROR)
            if detail.name in wrong
            else detail
            for detail in result.details
        )
        messages = next(iter(wrong.values())).messages
        return replace(result, forward=Status.ERROR, messages=(*result.messages, *messages), details=details)

    def _create_first_stage_rows(self, parties: int, result: Result) -> SentRows:
        cells = tuple(build_detail_cells(detail, self._language, self._precision) for detail in result.details)
        message = " ".join(message.text("en") for message in result.messages)
        return SentRows(
            parties, build_result_cells(result, self._language), cells, find_worst(result.statuses), message
        )

    def _create_second_stage_rows(self, name: str, comparison: DetailsComparison) -> SentRows:
        results, details = build_comparison_cells(comparison, self._language)
        assert len(results) == 1, f"{name} has {len(results)} rows"
        ((api, (forward, _, messages)),) = comparison.apis.items()
        status = Status.ERROR if api in comparison.beyond else forward or Status.SKIP
        message = " ".join(message.text("en") for message in messages)
        return SentRows(3, results[0], tuple(details), status, message)

    def _list_details(self, result: Result) -> list[dict[str, str]]:
        """Return the rows of details as a csv file that holds them is read."""
        rows = []
        for detail in result.details:
            cells = build_detail_cells(detail, self._language, self._precision)
            rows.append({column.key: format_cell_text(cells.get(column.key, "")) for column in self._columns})
        return rows


def list_standard_columns(assignment: Assignment) -> tuple[CsvColumn, ...]:
    """Return the columns of the details that installed standards add."""
    return tuple(CsvColumn(*names) for names in assignment.list_columns())


def find_worst(statuses: tuple[Status, ...]) -> Status:
    """Return the worst of several statuses; SKIP counts only if all are skipped."""
    return next((status for status in WORST if status in statuses), Status.SKIP)


def parse_status(row: Mapping[str, str]) -> Status:
    """Return the verdict that the row of a call in a result file tells."""
    texts = select_statuses((row["forward"].strip(),), row.get("message", ""))
    return find_worst(tuple(status for status in Status if status.value in texts))


STEP = CsvColumn("step", "步数", "Step")
SESSION = CsvColumn("session", "会话", "Session")


def create_tables(parties: int, tables: Tables, assignment: Assignment) -> Tables:
    """Return the columns of the two files of a kind; the last ones are the step and the session."""
    if parties == 3:
        return Tables((*COMPARE_RESULT, STEP, SESSION), (*COMPARE_DETAILS, STEP, SESSION))
    details = *tables.details, *list_standard_columns(assignment)
    return Tables((*tables.result, STEP, SESSION), (*details, STEP, SESSION))


@dataclass(frozen=True, slots=True)
class JudgeSetup:
    """Setup of a worker process that judges sent calls; it can be pickled.

    Attributes:
        framework: The framework of the training.
        options: The options of the runner.
        devices: The devices; worker number ``slot`` takes number ``slot`` modulo their number.
        release: The release of msprobe whose thresholds apply.
        standards: A yaml file that assigns APIs to standards; None for the built-in lists alone.
        language: The language of messages.
        precision: Digits after the point of numbers.
    """

    framework: str
    options: RunnerOptions
    devices: tuple[str, ...]
    release: str
    standards: Path | None = None
    language: str = "zh"
    precision: int = 14

    def __call__(self, slot: int) -> Callable[[SentPayload], SentRows]:
        """Return the function that judges a call in worker number ``slot``.

        Raises:
            UserError: The device is missing, or the framework is not installed.
        """
        manager = Manager()
        runner = load_sent_runner(manager, self.framework)
        runner.open(replace(self.options, device=self.devices[slot % len(self.devices)]))
        rows = self.create_row_maker(manager)

        def check(payload: SentPayload) -> SentRows:
            record = payload.call
            call = Call(call_name(record.name), 0, record.fields)
            outcome, sent = run_sent_call(runner, call, payload.body)
            try:
                return rows.create_rows(call, outcome, sent)
            except MemoryError:
                return rows.create_rows(call, Outcome(Skipped(OUT_OF_MEMORY_TEXT)), None)

        return check

    def create_row_maker(self, manager: Manager) -> RowMaker:
        """Return the conversion of outcomes to rows."""
        assignment = Assignment(manager, self.release, self.standards)
        judge = CallJudge(create_status_rule(manager, self.framework), assignment)
        return RowMaker(judge, assignment, find_tables(manager, self.framework), self.language, self.precision)


def load_sent_runner(manager: Manager, framework: str) -> SentRunner:
    """Return the runner of a framework.

    Raises:
        UserError: No runner of the framework is installed, or it cannot run sent calls.
    """
    runner = find_runner_spec(manager, framework).make()
    if not isinstance(runner, SentRunner):
        raise UserError(
            f"The runner of {framework} cannot run calls that a training sends.",
            "Record the run and check its dump.json with probe run-ut -i.",
        )
    return runner


def run_sent_call(runner: SentRunner, call: Call, body: memoryview) -> tuple[Outcome, Any]:
    """Run a call and return the outcome with the sent outputs; an exception becomes the reason to skip it."""
    try:
        return runner.run_sent(call, SentTensors(body))
    except MemoryError:
        return Outcome(Skipped(OUT_OF_MEMORY_TEXT)), None
    except (NotRun, Unbuildable) as error:
        return Outcome(Skipped(format_one_line(error))), None
    except UnreadableTensor as error:
        return Outcome(Skipped(f"{format_one_line(error)}. SKIP.")), None
    except Exception as error:  # a framework may raise anything for arguments that a stranger chose
        return Outcome(Skipped(format_one_line(error), internal=isinstance(error, INSTALLATION_ERRORS))), None


# -- age limit of a shared directory: files of trainings that ended or vanished days ago are removed


DAY_SECONDS = 86400.0

_FILE_NAME = re.compile(r"\.?([0-9a-f]{32})\.r(\d{1,7})\.(.+)")
_CALL = re.compile(r"\d{10,16}\.prb(\.[0-9a-f]{16}\.work)?")
_OTHER_NAME = re.compile(r"(hello|tally|end)\.prb|(\d{10,16}|hello|tally|end)\.prb\.part|[0-9a-f]{16}\.settled")


class SenderPlace(NamedTuple):
    """The sender of a file: a rank of a training."""

    session: str
    rank: int


class RemovalCounts(NamedTuple):
    """Numbers of removed files.

    Attributes:
        files: Number of all removed files.
        calls: Number of removed files that held a call which no receiver has judged.
    """

    files: int
    calls: int


def find_senders_with_calls(names: Iterable[str]) -> set[SenderPlace]:
    """Return the senders that have a claimed or unclaimed call in a shared directory."""
    parsed = filter(None, map(_parse_name, names))
    return {place for place, is_call in parsed if is_call}


def remove_aged(directory: Path, days: float, excluded: Collection[SenderPlace]) -> RemovalCounts:
    """Remove the files of senders that have written nothing to a shared directory for some days.

    The age of a file is measured with the clock of the file system: a new file is written to read it. Files that
    were not written by a sender or receiver are left alone, and so are files that a receiver set aside.

    Args:
        directory: The directory.
        days: The age at which files are removed.
        excluded: Senders whose files stay.

    Returns:
        The numbers of removed files; 0 if the directory cannot be read or written.
    """
    files: dict[SenderPlace, list[tuple[str, bool]]] = {}
    newest: dict[SenderPlace, float] = {}
    try:
        for entry in os.scandir(directory):
            parsed = _parse_name(entry.name)
            if parsed is None:
                continue
            place, is_call = parsed
            with suppress(OSError):
                newest[place] = max(newest.get(place, 0.0), entry.stat(follow_symlinks=False).st_mtime)
                files.setdefault(place, []).append((entry.name, is_call))
        now = _read_directory_time(directory) if files else 0.0
    except OSError:
        return RemovalCounts(0, 0)
    count = calls = 0
    for place, sender_files in files.items():
        if place in excluded or now - newest[place] <= days * DAY_SECONDS:
            continue
        for name, is_call in sender_files:
            with suppress(OSError):
                (directory / name).unlink()
                count, calls = count + 1, calls + is_call
    return RemovalCounts(count, calls)


def _parse_name(name: str) -> tuple[SenderPlace, bool] | None:
    """Return the sender of a file and whether the file holds a call; None for a file of another kind."""
    match = _FILE_NAME.fullmatch(name)
    if match is None:
        return None
    is_call = _CALL.fullmatch(match[3]) is not None
    return (SenderPlace(match[1], int(match[2])), is_call) if is_call or _OTHER_NAME.fullmatch(match[3]) else None


def _read_directory_time(directory: Path) -> float:
    """Return the current time by the clock of the file system, in seconds."""
    with tempfile.NamedTemporaryFile(dir=directory, prefix=".probe-clock-") as file:
        file.write(b"now")
        file.flush()
        return os.fstat(file.fileno()).st_mtime
