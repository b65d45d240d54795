"""Writing and reading of the csv with the statistics of a step (docs/gradients.md#files)."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from probe_core.errors import UserError
from probe_core.files.atomic import write_text
from probe_core.files.user_files import read_regular_file
from probe_watch.grad_probe.measurement import GradientStatistics
from probe_watch.grad_probe.settings import Bound, GradSettings

NAME_COLUMN = "param_name"
NORM_COLUMN = "norm"
BYTE_ORDER_MARK = "\ufeff"


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """A row of a csv that was read back.

    Attributes:
        parameter: The name of the parameter.
        norm: The norm of its gradient; None if the cell holds no number.
    """

    parameter: str
    norm: float | None


def list_interval_columns(bounds: Sequence[Bound]) -> list[str]:
    """Return the titles of the columns of intervals, which include their upper ends."""
    if not bounds:
        return []
    inner = [f"({lower}, {upper}]" for lower, upper in itertools.pairwise(bounds)]
    return [f"(-inf, {bounds[0]}]", *inner, f"({bounds[-1]}, inf)"]


def list_columns(settings: GradSettings) -> list[str]:
    """Return the titles of all columns."""
    checksum = ["MD5"] if settings.has_checksum else []
    intervals = [*list_interval_columns(settings.bounds), "=0"] if settings.has_intervals else []
    return [NAME_COLUMN, *checksum, *intervals, "max", "min", NORM_COLUMN, "shape"]


def format_csv_row(parameter: str, statistics: GradientStatistics) -> list[str]:
    """Return the cells of a gradient; a missing maximum or minimum is an empty cell."""
    checksum = [statistics.checksum] if statistics.checksum else []
    zero = [] if statistics.zero_share is None else [statistics.zero_share]
    extremes = ["" if value is None else repr(value) for value in (statistics.maximum, statistics.minimum)]
    return [
        parameter,
        *checksum,
        *(repr(share) for share in (*statistics.interval_shares, *zero)),
        *extremes,
        repr(statistics.norm),
        str(list(statistics.shape)),
    ]


def write_csv(path: Path, rows: Sequence[Sequence[str]]) -> None:
    """Write a csv atomically, in UTF-8 with a byte order mark as msprobe does.

    Raises:
        UserError: The file cannot be written.
    """
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    content = f"{BYTE_ORDER_MARK}{text.getvalue()}"
    write_text(path, content.encode("utf-8", "backslashreplace").decode())


def read_summary(path: Path) -> list[SummaryRow]:
    """Return the rows of a csv.

    Raises:
        UserError: The file cannot be read, or has no column ``param_name``.
    """
    try:
        lines = csv.DictReader(io.StringIO(read_regular_file(path).decode("utf-8-sig"), newline=""), strict=True)
        is_summary = NAME_COLUMN in (lines.fieldnames or ())
        rows = [
            SummaryRow(line[NAME_COLUMN] or "", _parse_number(line.get(NORM_COLUMN))) for line in lines if is_summary
        ]
    except OSError as error:
        raise _create_error(path, str(error.strerror or error)) from None
    except (ValueError, csv.Error) as error:
        raise _create_error(path, f"it is not a csv in UTF-8 ({error})") from None
    if not is_summary:
        raise _create_error(path, f'it has no column "{NAME_COLUMN}"')
    return rows


def _parse_number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value


def _create_error(path: Path, reason: str) -> UserError:
    return UserError(
        f'"{path}" cannot be read: {reason}.',
        "Record that run again, or remove the file to leave out its step.",
    )
