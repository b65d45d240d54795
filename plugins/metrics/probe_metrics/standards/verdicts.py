"""Helpers of the standards' verdicts: the worst status, and messages on missed limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from probe_precheck.api import CsvColumn, Message, Status
from probe_precheck.model import Numbers, UnusableCell
from probe_precheck.tables import COMPARE_DETAILS, NUMBERS

MEASURED_COLUMNS = {column.key: column for column in NUMBERS}
COMPARED_COLUMNS = {column.key: column for column in COMPARE_DETAILS}
GPU_FAILS_SUFFIX = " (GPU fails as well)"


def find_worst_status(statuses: Iterable[Status]) -> Status:
    """Return error if there is one, else warning if there is one, else pass."""
    present = set(statuses)
    return next((status for status in (Status.ERROR, Status.WARNING) if status in present), Status.PASS)


def convert_to_status(is_passed: bool) -> Status:
    """Return pass if ``ok``, else error."""
    return Status.PASS if is_passed else Status.ERROR


def create_limit_message(column: CsvColumn, status: Status, gpu_fails: bool = False) -> Message:
    """Return the message of a number over its limit.

    Args:
        column: The column of the number, which the message names.
        status: Warning or error.
        gpu_fails: True to add that the number of the GPU is also over the limit. This does not change the verdict
            (docs/standards.md#methods).
    """
    level, suffix = status.value.upper(), GPU_FAILS_SUFFIX if gpu_fails else ""
    return Message(
        f"{level}: {column.chinese}超过阈值{suffix}",
        f"{level}: {column.english} is over the limit{suffix}",
    )


def create_zero_rate_message(key: str, gpu: Numbers) -> Message:
    """Return the message of a rate in the details' column ``key`` that is not 0."""
    return create_limit_message(MEASURED_COLUMNS[key], Status.ERROR, gpu_fails=find_number(gpu, key) not in (None, 0))


def find_number(numbers: Numbers, key: str) -> float | None:
    """Return the number in a cell that a verdict does not need; None if the cell does not contain a number."""
    try:
        return numbers.get(key)
    except UnusableCell:
        return None


def judge_zero_rates(
    npu: Numbers, gpu: Numbers, columns: Mapping[str, str]
) -> tuple[list[Status], dict[str, float | str], tuple[Message, ...]]:
    """Judge rates that must be exactly 0.

    Args:
        npu: The row of the device under test.
        gpu: The same row of the trusted device, for the messages alone.
        columns: The keys of the columns with the rates, each with the key of the column for its verdict.

    Returns:
        Statuses, cells and messages, to be joined with others.

    Raises:
        UnusableCell: A rate of the device under test is not a number.
    """
    statuses: list[Status] = []
    cells: dict[str, float | str] = {}
    messages: list[Message] = []
    for key, verdict in columns.items():
        rate = npu[key]
        status = convert_to_status(rate == 0)
        cells[key], cells[verdict] = rate, status
        statuses.append(status)
        if status is Status.ERROR:
            messages.append(create_zero_rate_message(key, gpu))
    return statuses, cells, tuple(messages)
