"""Results of several ranks, written by hand, and the workbook they are merged into."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from openpyxl import Workbook, load_workbook
from probe_reporters.tables import COLUMNS

from probe_core.model import Mode
from support.spreadsheets import displayed

TIME = "20260101120000"
HEADERS = {mode: [column.header for column in columns] for mode, columns in COLUMNS.items()}


def write_rank(
    directory: Path,
    rank: int,
    rows: Sequence[dict[str, Any]],
    suffix: str,
    *,
    headers: Sequence[str] = HEADERS[Mode.TENSOR],
    time_stamp: str = TIME,
    name: str = "compare_result_rank{rank}_{time}.{suffix}",
) -> Path:
    """A result file with ``rows``, whose other cells are ``-``."""
    path = directory / name.format(rank=rank, time=time_stamp, suffix=suffix)
    cells = [[row.get(header, "-") for header in headers] for row in rows]
    if suffix == "xlsx":
        book = Workbook()
        for line in (headers, *cells):
            book.active.append(line)
        book.save(path)
    elif suffix == "csv":
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([headers, *cells])
    else:
        path.write_text("".join(json.dumps(dict(zip(headers, line))) + "\n" for line in cells), "utf-8")
    return path


def row(name: str, cosine: Any, largest: Any, maxima: tuple[Any, Any] = ("-", "-")) -> dict[str, Any]:
    return {
        "NPU Name": name, "Cosine": cosine, "MaxAbsErr": largest, "NPU max": maxima[0], "Bench max": maxima[1],
    }  # fmt: skip


def sheets(path: Path) -> dict[str, list[list[Any]]]:
    """All cells of a workbook."""
    book = load_workbook(path)
    return {page.title: [list(map(displayed, line)) for line in page.iter_rows()] for page in book}


def two_ranks(directory: Path, rows: Sequence[dict[str, Any]] | None = None) -> None:
    for rank in (0, 1):
        write_rank(directory, rank, rows or [row("Distributed.send.0.forward.input.0", 1.0, 0.5)], "csv")
