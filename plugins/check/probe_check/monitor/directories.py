"""Directories of the monitor's output (docs/monitor.md#files)."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

OUTPUT_VARIABLE = "MONITOR_OUTPUT_DIR"
DEFAULT_OUTPUT = "./monitor_output"
EVENT_DIRECTORY = "anomaly_detected"
STRUCTURE_DIRECTORY = "module_struct"
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_TIME_STAMP = re.compile(rf"({'|'.join(_MONTHS)})(\d\d)_(\d\d)-(\d\d)-(\d\d)", re.ASCII)
_DIRECTORY_NAME = re.compile(r"([\w-]{0,20})-rank(\d{1,5})-.*", re.ASCII | re.DOTALL)


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The directory of one rank of a monitored training.

    Attributes:
        path: Its path.
        time: The time stamp in its name.
        rank: The rank in its name.
    """

    path: Path
    time: str
    rank: int


def get_output_base() -> Path:
    """Return the directory that contains the directories of all runs."""
    return Path(os.environ.get(OUTPUT_VARIABLE) or DEFAULT_OUTPUT)


def choose_run_directory(base: Path, rank: int, now: datetime | None = None) -> Path:
    """Return the path of the directory of a new run; its name is unique."""
    now = now or datetime.now()
    time = f"{_MONTHS[now.month - 1]}{now:%d_%H-%M-%S}"  # not %b, which depends on the locale
    return base / f"{time}-rank{rank}-{uuid.uuid4().hex[:8]}"


def parse_time(text: str) -> tuple[int, ...] | None:
    """Return a time stamp as numbers that can be compared; None if the text is not a time stamp."""
    match = _TIME_STAMP.fullmatch(text)
    return None if match is None else (_MONTHS.index(match[1]), *map(int, match.groups()[1:]))


def find_run_directories(base: Path, first: str | None = None, last: str | None = None) -> Iterator[RunDirectory]:
    """Yield the directories of runs, in the alphabetical order of their names.

    Time stamps have no year, so ``first`` must not be later in the year than ``last``.

    Args:
        base: The directory that contains the directories of runs, or the directory of a run.
        first: The first time stamp; None for no limit.
        last: The last time stamp; None for no limit.
    """
    low, high = (parse_time(text) if text is not None else None for text in (first, last))
    paths = [base] if _DIRECTORY_NAME.fullmatch(base.name) else sorted(path for path in base.iterdir() if path.is_dir())
    for path in paths:
        match = _DIRECTORY_NAME.fullmatch(path.name)
        time = parse_time(match[1]) if match else None
        if match is None or ((first is not None or last is not None) and time is None):
            continue
        if time is not None and ((low is not None and time < low) or (high is not None and time > high)):
            continue
        yield RunDirectory(path, match[1], int(match[2]))
