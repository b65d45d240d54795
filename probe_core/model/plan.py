"""The plan of a comparison: the command line, parsed. Whoever has a plan can run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from probe_core.files.location import is_remote

DEFAULT_FORMATS = ("xlsx",)


class StackMode(str, Enum):
    """Whether call stacks are shown: as found beside the target, always, or never."""

    AUTO = "auto"
    SHOW = "show"
    HIDE = "hide"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is compared with what, how, and where the result goes.

    Attributes:
        target: The run under test: a record file or a directory that names one.
        golden: The reference run.
        output: The directory of the result files.
        framework: The reader to use; None to find out.
        matcher: The matcher to use; None for the one that fits: exact, or align across frameworks.
        mapping: A mapping file, or what such a file says; the matcher pairs what it does not name.
        across: A person expects two frameworks (``-am`` or ``-cm`` without a file).
        api_mapping: A file that pairs APIs and their arguments (``-am``).
        cell_mapping: A file that pairs modules (``-cm``).
        layer_mapping: A file that pairs the children of classes of modules (``-lm``).
        metrics: Metrics shown besides those of the table, with their parameters: ``ulp:limit=4``.
        policies: Policies that judge in place of the table's: the first gives the verdict, each further one a
            column; those that do not serve what the runs hold are passed over.
        formats: The reporters to write with, with their parameters.
        stack: Whether call stacks are shown.
        stack_path: The file of the call stacks, where it is not beside the target.
        highlight: Mark rows red and yellow.
        advise: Write the advisor's file.
        time_stamp: ``YYYYmmddHHMMSS``, part of the files' names.
        steps: The steps to compare; all that both runs have where none is given.
        ranks: The ranks to compare; likewise.
        answers: What the comparison as a whole is asked for, over all its ranks.
        jobs: Processors to use; 0 for all there are.
        executor: Where comparisons run; None for processes where there are several, else here.
        scheduler: The address of a cluster's scheduler, where the executor is one.
        resume: Take up an interrupted comparison of the same runs: what is finished stays.
    """

    target: Path
    golden: Path
    output: Path
    time_stamp: str
    framework: str | None = None
    matcher: str | None = None
    mapping: Path | Mapping[str, str] | None = None
    across: bool = False
    api_mapping: Path | None = None
    cell_mapping: Path | None = None
    layer_mapping: Path | None = None
    metrics: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    formats: tuple[str, ...] = DEFAULT_FORMATS
    stack: StackMode = StackMode.AUTO
    stack_path: Path | None = None
    highlight: bool = False
    advise: bool = True
    steps: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    answers: tuple[str, ...] = ()
    jobs: int = 0
    executor: str | None = None
    scheduler: str | None = None
    resume: bool = False

    @property
    def maps_names(self) -> bool:
        """True where a person asks for names to be mapped (``-am``, ``-cm``, ``-lm``)."""
        files = self.api_mapping, self.cell_mapping, self.layer_mapping
        return self.across or any(file is not None for file in files)

    def describe(self) -> dict[str, Any]:
        """The plan as plain data, for ``--print-plan``."""
        return {key: _plain(value) for key, value in asdict(self).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Path) or is_remote(value):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value
