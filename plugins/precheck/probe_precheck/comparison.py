"""Second stage of the pre-check: judge the details of one machine by those of a trusted machine, row by row.

The rules are in docs/standards.md#methods, the files in docs/standards.md#csv.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from probe_core.errors import UserError, make_printable
from probe_core.files.atomic import make_directory, remove_leftovers
from probe_precheck.assignment import UNMEASURED_DTYPES, Assignment
from probe_precheck.csvfile import BLANK, CsvTable, format_messages, format_number, read_table, write_table
from probe_precheck.judging import merge_statuses
from probe_precheck.model import FORWARD, Judgement, Message, Numbers, Status, UnusableCell, strip_framework
from probe_precheck.settings import PRECISION
from probe_precheck.tables import COMPARE_DETAILS, COMPARE_RESULT, DETAILS, NUMBERS, CsvColumn
from probe_precheck.translation import find_beyond_rounding_message, translate

RESULT_NAME = "api_precision_compare_result_{}.csv"
DETAILS_NAME = "api_precision_compare_details_{}.csv"
REQUIRED_COLUMNS = (
    "name", "device_dtype", "small_value_error_share", "rmse", "max_relative_error", "mean_relative_error",
    "error_balance", "error_rate", "inf_nan_error_rate", "relative_error_rate", "absolute_error_rate",
    "ulp_mean", "ulp_share", "thousandth", "message",
)  # fmt: skip
"""Columns that both files must have."""
NAME_PART_COUNTS = (6, 7)
"""Numbers of parts in the name of an output, without and with a prefix of its API."""
MSPROBE_EMPTY_MESSAGE = "There is not bench calculation result."
"""Message of msprobe 8.3 for outputs without elements. msprobe reports an error, which is wrong."""
GPU_FAILS_SUFFIX = " (GPU fails as well)"
UNSUPPORTED = Message("This data type does not support benchmark compare.")


@dataclass(frozen=True, slots=True)
class JudgedRow:
    """Row of the comparison's details."""

    name: str
    api: str
    phase: str
    judgement: Judgement
    algorithm: Message


@dataclass(slots=True)
class DetailsComparison:
    """Result of a comparison.

    Attributes:
        rows: All judged rows, grouped by API call.
        missing: Names of rows that only the file of the NPU contains.
        apis: The status of forward and backward (None if it has no row) and the messages of each API call.
        beyond: Names of API calls that pass all rules and fail because their error is beyond rounding.
        language: The language of the NPU's file.
        result: The path of the result file, once written.
        details: The path of the details file, once written.
    """

    rows: list[JudgedRow] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    apis: dict[str, tuple[Status | None, Status | None, tuple[Message, ...]]] = field(default_factory=dict)
    beyond: set[str] = field(default_factory=set)
    language: str = "zh"
    result: Path = Path()
    details: Path = Path()


def compare_details(npu: Path, gpu: Path, assignment: Assignment) -> DetailsComparison:
    """Judge the rows in ``npu`` by the rows with the same names in ``gpu``.

    Raises:
        UserError: A file cannot be read, lacks a column, or contains two rows with the same name.
    """
    columns = (*DETAILS, *(CsvColumn(*names) for names in assignment.list_columns()))
    npu_table, gpu_table = (_read_details(path, columns) for path in (npu, gpu))
    return compare_rows(npu_table.rows, gpu_table.rows, assignment, npu_table.language)


def compare_rows(
    npu: Iterable[Mapping[str, str]], gpu: Iterable[Mapping[str, str]], assignment: Assignment, language: str
) -> DetailsComparison:
    """Judge rows of details by the rows with the same names.

    Args:
        npu: The rows of the device under test in a csv file: texts by column key.
        gpu: The rows of the trusted device.
        assignment: The standards.
        language: The language of the messages in the rows.
    """
    gpu_rows = {row["name"].strip(): row for row in gpu}
    compared = DetailsComparison(language=language)
    for name, row in _group_rows(npu):
        gpu_row = gpu_rows.get(name, {} if not _split_name(name)[1] else None)
        if gpu_row is None:
            compared.missing.append(name)
            continue
        compared.rows.append(_judge_row(name, Numbers(row), Numbers(gpu_row), assignment))
    for api in dict.fromkeys(row.api for row in compared.rows):
        rows = [row for row in compared.rows if row.api == api]
        forward, backward, messages = _merge_rows(rows)
        beyond = next((row.judgement.beyond for row in rows if row.judgement.beyond), ())
        if beyond and Status.ERROR not in (forward, backward):
            compared.beyond.add(api)
        compared.apis[api] = forward, backward, (*messages, *beyond)
    return compared


def _read_details(path: Path, columns: Sequence[CsvColumn]) -> CsvTable:
    table = read_table(path, columns, REQUIRED_COLUMNS)
    names: set[str] = set()
    for row in table.rows:
        name = row["name"].strip()
        if name in names:
            raise UserError(
                f"{path} has two rows for {make_printable(name)}, and only one can be judged.",
                "Remove one of them, or run the check again.",
            )
        names.add(name)
    return table


def _group_rows(rows: Iterable[Mapping[str, str]]) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield names and rows. The rows of an API call are together, in the order of their first row."""
    groups: dict[str, list[tuple[str, Mapping[str, str]]]] = {}
    for row in rows:
        name = row["name"].strip()
        groups.setdefault(_split_name(name)[0], []).append((name, row))
    for group in groups.values():
        yield from group


def _split_name(name: str) -> tuple[str, str, str]:
    """Return the API call, direction and bare API name of a row; the last two are empty for names of another form."""
    parts = name.split(".")
    if len(parts) not in NAME_PART_COUNTS or parts[-3] not in (FORWARD, "backward"):
        return name, "", ""
    return ".".join(parts[:-3]), parts[-3], ".".join(parts[1:-4])


def _judge_row(name: str, npu: Numbers, gpu: Numbers, assignment: Assignment) -> JudgedRow:
    api, phase, bare = _split_name(name)
    no_label = Message("")
    if not phase:
        message = Message(f"{make_printable(name)} is not the name of an output. SKIP.")
        return JudgedRow(name, api, phase, Judgement(Status.SKIP, {}, (message,)), no_label)
    judgement = _judge_without_standard(npu, gpu)
    if judgement is not None:
        return JudgedRow(name, api, phase, judgement, no_label)
    chosen = assignment.find_standard(bare, npu.text("device_dtype"))
    if chosen is None:
        return JudgedRow(name, api, phase, Judgement(Status.SKIP, {}, (UNSUPPORTED,)), no_label)
    label = Message(chosen.spec.label, chosen.spec.english_label)
    try:
        judgement = chosen.standard.judge(npu, gpu, assignment.release)
        if not isinstance(judgement, Judgement):
            raise TypeError(f"judge must return a Judgement, not {type(judgement).__name__}")
    except UnusableCell as cell:
        judgement = Judgement(Status.SKIP, {}, (cell.message,))
    except BaseException as error:
        judgement = Judgement(Status.SKIP, {}, (assignment.report_failure(chosen, error),))
    return JudgedRow(name, api, phase, _add_first_stage(judgement, npu, gpu), label)


def _add_first_stage(judgement: Judgement, npu: Numbers, gpu: Numbers) -> Judgement:
    """Return a judgement with the message of the first stage on an error beyond rounding."""
    message = find_beyond_rounding_message(npu.text("message"))
    if message is None or judgement.status is Status.ERROR:
        return judgement
    gpu_suffix = "" if find_beyond_rounding_message(gpu.text("message")) is None else GPU_FAILS_SUFFIX
    beyond = Message(*(f"NPU: {text}{gpu_suffix}" for text in message))
    return judgement._replace(beyond=(beyond, *judgement.beyond))


def _judge_without_standard(npu: Numbers, gpu: Numbers) -> Judgement | None:
    """Return the verdict on a row without numbers or with unsuitable dtypes; None if a standard must judge it."""
    messages = (Message(npu.text("message")),) if npu.text("message") else ()
    has_no_numbers = not any(npu.text(column.key) for column in NUMBERS)
    is_error = npu.text("status").lower() == Status.ERROR.value
    if has_no_numbers and is_error and MSPROBE_EMPTY_MESSAGE not in npu.text("message"):
        return Judgement(Status.ERROR, {}, messages)
    dtype, gpu_dtype = npu.text("device_dtype"), gpu.text("device_dtype")
    if not dtype:
        return Judgement(Status.SKIP, {}, messages)
    if gpu_dtype and dtype != gpu_dtype:
        return Judgement(Status.ERROR, {}, (Message(f"DEVICE Dtype differs: {dtype}, {gpu_dtype}"),))
    if strip_framework(dtype) in UNMEASURED_DTYPES:
        return Judgement(Status.SKIP, {}, (UNSUPPORTED,))
    if has_no_numbers:
        return Judgement(Status.SKIP, {}, messages)
    if not gpu_dtype:
        return Judgement(Status.SKIP, {}, (Message(f"GPU: {gpu.text('message')}"),))
    return None


def _merge_rows(rows: Sequence[JudgedRow]) -> tuple[Status | None, Status | None, tuple[Message, ...]]:
    """Return status of forward, status of backward, and messages of one API call.

    A row whose name is not the name of an output counts only if the call has no other rows.
    """
    rows = [row for row in rows if row.phase] or rows
    if not rows[0].phase:
        return Status.SKIP, Status.SKIP, rows[0].judgement.messages
    statuses: list[Status | None] = []
    messages: tuple[Message, ...] = ()
    for phase in (FORWARD, "backward"):
        phase_rows = [row for row in rows if row.phase == phase]
        status = merge_statuses([row.judgement.status for row in phase_rows]) if phase_rows else None
        statuses.append(status)
        if status is Status.PASS or status is None or messages:
            continue
        judgements = [row.judgement for row in phase_rows if row.judgement.status is status]
        messages = next((judgement.messages for judgement in judgements if judgement.messages), ())
    return statuses[0], statuses[1], messages


# -- writing ---------------------------------------------------------------------------------------


def write_comparison(comparison: DetailsComparison, directory: Path, time_stamp: str, language: str | None) -> None:
    """Write both files, each completely or not at all.

    Args:
        comparison: The comparison, which receives the paths of the files.
        directory: The directory, which is created if it is missing.
        time_stamp: The 14 digits in both names.
        language: The language of headers and messages; None for the language of the NPU's file.
    """
    make_directory(directory)
    remove_leftovers(directory)
    language = language or comparison.language
    comparison.result = directory / RESULT_NAME.format(time_stamp)
    comparison.details = directory / DETAILS_NAME.format(time_stamp)
    results, details = build_comparison_cells(comparison, language)
    write_table(comparison.details, COMPARE_DETAILS, details, language)
    write_table(comparison.result, COMPARE_RESULT, results, language)


def build_comparison_cells(
    comparison: DetailsComparison, language: str
) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Return the cells of both files by column key: one row for each API call, and one row for each output.

    Args:
        comparison: The comparison.
        language: The language of messages, ``zh`` or ``en``.
    """
    results = [
        {
            "name": api,
            "forward": _format_cell(forward),
            "backward": _format_cell(backward),
            "message": format_messages(messages, language) or BLANK,
        }
        for api, (forward, backward, messages) in comparison.apis.items()
    ]
    details = [_build_cells(row, language) for row in comparison.rows]
    if language != comparison.language:
        for cells in (*details, *results):  # messages of the input are copied
            cells["message"] = translate(cells["message"], language)
    return results, details


def _build_cells(row: JudgedRow, language: str) -> dict[str, str]:
    cells = {key: _format_cell(value) for key, value in row.judgement.cells.items()}
    cells.update(
        name=row.name,
        status=row.judgement.status.value,
        algorithm=row.algorithm.text(language) or BLANK,
        message=format_messages((*row.judgement.messages, *row.judgement.beyond), language) or BLANK,
    )
    return cells


def _format_cell(value: float | str | Status | None) -> str:
    if value is None:
        return BLANK
    if isinstance(value, Status):
        return value.value
    return value if isinstance(value, str) else format_number(value, PRECISION)
