"""The plan of a comparison: all options of the command line, parsed and typed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from probe_core.files.location import is_remote

DEFAULT_FORMATS = ("xlsx",)
TIME_STAMP_FORMAT, TIME_STAMP_PATTERN, TIME_STAMP_LENGTH = "%Y%m%d%H%M%S", "[0-9]{14}", 14


def get_time_stamp() -> str:
    """Return the current time in the format of the result files' names."""
    return time.strftime(TIME_STAMP_FORMAT)


def parse_time_stamp(path: Path) -> str:
    """Return the time stamp at the end of the name of a result file."""
    return path.stem[-TIME_STAMP_LENGTH:]


class StackMode(str, Enum):
    """Choices for call stacks in the table: shown if the target has a file of them, always, or never."""

    AUTO = "auto"
    SHOW = "show"
    HIDE = "hide"


@dataclass(frozen=True, slots=True)
class Plan:
    """The settings of a comparison.

    Attributes:
        target: The run under test: a record file or a directory that names one.
        golden: The trusted run.
        output: The directory of the result files.
        framework: The framework whose reader is used; None to detect it.
        matcher: The matcher to use; None for ``exact``, or ``align`` across frameworks.
        metrics: Metrics shown in addition to those of the table, with their parameters: ``ulp:limit=4``.
        policies: Policies that replace the table's: the first gives the verdict, each further one a column;
            those that cannot judge the kind of data in the runs are skipped.
        formats: The output formats (reporters), with their parameters.
        stack: The choice for call stacks in the table.
        stack_path: The file of the call stacks, if it is not next to the target's record file.
        advise: True to write the advisor's file.
        answer: True to write the file of the answer.
        time_stamp: ``YYYYmmddHHMMSS``, part of the names of all result files.
        answers: The names of the requested answers about all comparisons of the plan (``AnswerSpec``).
        jobs: Number of processes or threads; 0 for one per processor.
        options: The values of plugins' options by their names in the plan (``OptionSpec.defaults``).
    """

    target: Path
    golden: Path
    output: Path
    time_stamp: str
    framework: str | None = None
    matcher: str | None = None
    metrics: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    formats: tuple[str, ...] = DEFAULT_FORMATS
    stack: StackMode = StackMode.AUTO
    stack_path: Path | None = None
    advise: bool = True
    answer: bool = True
    answers: tuple[str, ...] = ()
    jobs: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)

    def with_options(self, **values: Any) -> Plan:
        """Return a copy in which some options of plugins have other values."""
        return replace(self, options={**self.options, **values})

    def describe(self) -> dict[str, Any]:
        """Return the plan as plain data, for ``--print-plan``; options of plugins are among the fields."""
        described: dict[str, Any] = convert_to_plain(self)
        options: dict[str, Any] = described.pop("options")
        return described | options


def convert_to_plain(value: Any) -> Any:
    """Return a value of dataclasses, enumerations and paths as data that JSON can express."""
    if is_dataclass(value):
        return {field.name: convert_to_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Path) or is_remote(value):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {convert_to_plain(key): convert_to_plain(item) for key, item in value.items()}
    return [convert_to_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
