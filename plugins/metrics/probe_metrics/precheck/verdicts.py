"""What the standards' verdicts share: the worst status, and the words of a missed limit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from probe_precheck import COMPARE_DETAILS, NUMBERS, Column, Message, Numbers, Status, UnusableCell

MEASURED = {column.key: column for column in NUMBERS}
COMPARED = {column.key: column for column in COMPARE_DETAILS}
GPU_FAILS = " (GPU fails as well)"


def worst(statuses: Iterable[Status]) -> Status:
    """Error before warning before pass."""
    found = set(statuses)
    return next((status for status in (Status.ERROR, Status.WARNING) if status in found), Status.PASS)


def passes(ok: bool) -> Status:
    """Pass or error."""
    return Status.PASS if ok else Status.ERROR


def over_the_limit(column: Column, status: Status, as_well: bool = False) -> Message:
    """That a number is over its limit; with a word where the GPU's is so too (B32)."""
    level, too = status.value.upper(), GPU_FAILS if as_well else ""
    return Message(
        f"{level}: {column.chinese}超过阈值{too}", f"{level}: {column.english} is over the limit{too}"
    )


def zero_rate_message(key: str, gpu: Numbers) -> Message:
    """That the rate in the details' column ``key`` is not 0."""
    return over_the_limit(MEASURED[key], Status.ERROR, as_well=number(gpu, key) not in (None, 0))


def number(numbers: Numbers, key: str) -> float | None:
    """The number of a cell that a verdict can do without; None where there is none."""
    try:
        return numbers.get(key)
    except UnusableCell:
        return None


def judge_zero_rates(
    npu: Numbers, gpu: Numbers, columns: Mapping[str, str]
) -> tuple[list[Status], dict[str, float | str], tuple[Message, ...]]:
    """Statuses, cells and messages of rates that must be 0; ``columns`` has their keys, and their verdicts'.

    Raises:
        UnusableCell: The device's rate is no number.
    """
    statuses: list[Status] = []
    cells: dict[str, float | str] = {}
    messages: list[Message] = []
    for key, verdict in columns.items():
        rate = npu[key]
        status = passes(rate == 0)
        cells[key], cells[verdict] = rate, status
        statuses.append(status)
        if status is Status.ERROR:
            messages.append(zero_rate_message(key, gpu))
    return statuses, cells, tuple(messages)
