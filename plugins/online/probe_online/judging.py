"""Judgement of sent calls: each becomes rows of the two files of its kind (docs/online.md#judgement).

Two-party: the sender's outputs are judged by the receiver's. Three-party: the outputs of both are judged by a
reference, and the sender's rows then by the receiver's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
