"""The Python API: ``probe_core.compare`` (docs/python.md)."""

from __future__ import annotations

import os
import warnings
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import fields, replace
from html import escape
from inspect import Parameter, signature
from itertools import islice
from pathlib import Path
from shutil import copyfile, rmtree
from typing import TYPE_CHECKING, Any, SupportsIndex

from probe_core.errors import UserError, format_count, make_printable, suggest_name
from probe_core.files.atomic import create_private_directory, make_directory, write_atomically
from probe_core.files.location import is_remote, parse_location
from probe_core.files.user_files import parse_numbers
from probe_core.model import Cell, Level, RowCounts, Suspect
from probe_core.model.plan import DEFAULT_FORMATS, Plan, StackMode, get_time_stamp
from probe_core.plugins.protocols import NotebookPage
from probe_core.plugins.specs import AnswerStage, Option, OptionSpec, OutputSpec, ReporterSpec

if TYPE_CHECKING:
    from probe_core.model.answers import Answer
    from probe_core.model.batches import RowBatch
    from probe_core.model.report import Report
    from probe_core.plugins.manager import Manager
    from probe_core.plugins.protocols import CellTable, Conclusion, Output, PairResult
    from probe_core.store.layout import RunPair

DEFAULT_OUTPUT = "./output"
"""The directory of the result files if none is given."""
_DEFAULTS: dict[str, Any] = {field.name: field.default for field in fields(Plan)}
FRAME_REPORTER = "parquet"
"""The name of the reporter that makes data frames (docs/python.md#data-frames)."""
_FIELDS_WITHOUT_OPTION = {"target", "golden", "time_stamp", "answers", "options"}
"""Fields of a plan that no option of the core sets."""
OPTION_NAMES = sorted(_DEFAULTS.keys() - _FIELDS_WITHOUT_OPTION)
"""The names of the core's options of ``compare`` (docs/python.md#options)."""
_PATH_FIELDS = ("output", "stack_path")
_KINDS = {bool: "flag", StackMode: "flag", int: "count", tuple: "texts"} | dict.fromkeys(_PATH_FIELDS, "file")
"""Kinds of the core's options by their names or the types of their defaults; all others are texts."""
_EXPECTED_TYPES: dict[str, tuple[str, Any, bool]] = {
    "flag": ("True or False", bool, False), "count": ("a positive integer", int, False),
    "text": ("a text", str, False), "texts": ("a text or a list of texts", str, True),
    "numbers": ("a number, a text, or a list of these", (str, SupportsIndex), True),
    "file": ("a path", (str, os.PathLike, Mapping), False), "run": ("a path or a URL", (str, os.PathLike), False),
}  # fmt: skip
"""For each kind of option: the description of its values, their types, and True if lists of them are accepted."""


def compare(target: str | os.PathLike[str], golden: str | os.PathLike[str], **options: Any) -> Comparison:
    """Return the comparison of two recorded runs; rows are measured when a result is accessed.

    Args:
        target: The run under test: a dump.json, or a rank, step or dump directory; a path
            (made absolute, like all paths among the arguments), or a URL.
        golden: The trusted run.
        **options: Options of ``probe compare`` (docs/python.md#options); None selects the default.

    Raises:
        UserError: A path does not hold a run, or an option is not valid.
    """
    from probe_core.plugins.manager import Manager

    manager = Manager()
    plan = create_plan(manager, parse_location(target), parse_location(golden), options)
    fields_with_paths = {name: getattr(plan, name) for name in ("target", "golden", *_PATH_FIELDS)}
    plan = replace(plan.with_options(**_make_absolute(plan.options)), **_make_absolute(fields_with_paths))
    comparison = Comparison(plan, manager)
    for problem in comparison.problems:
        warnings.warn(problem, stacklevel=2)
    return comparison


def _make_absolute(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the local paths among ``values`` as absolute paths; other values are left out."""
    return {name: path.absolute() for name, path in values.items() if isinstance(path, Path)}


_target, _golden, _further = (_signature := signature(compare)).parameters.values()
_options = [Parameter(name, Parameter.KEYWORD_ONLY, default=None) for name in OPTION_NAMES]
vars(compare)["__signature__"] = _signature.replace(parameters=[_target, _golden, *_options, _further])


def create_plan(manager: Manager, target: Path, golden: Path, options: Mapping[str, Any]) -> Plan:
    """Return the plan of a comparison with ``options``; None selects the default of an option.

    Raises:
        UserError: An option does not exist, has a value of a wrong type, or excludes another option.
    """
    specs = [spec for spec in manager.specs("options", OptionSpec) if spec.command == "compare"]
    added = {option.keyword: (spec, option) for spec in specs for option in spec.options}
    known_names = sorted({*OPTION_NAMES, *added})
    for name in options:
        if name not in known_names:
            close = suggest_name(name, known_names)
            fix = f"Did you mean {close}? These are known:" if close else "These are known:"
            absent = manager.create_missing_option_error("compare", name)
            raise absent or UserError(f'There is no option "{name}".', fix, known_names)
    passed_options = {name: value for name, value in options.items() if value is not None}
    values = {name: _convert_value(name, value) for name, value in passed_options.items() if name in OPTION_NAMES}
    if "stack" in values:
        values["stack"] = StackMode.SHOW if values["stack"] else StackMode.HIDE
    values["options"] = {name: value for spec in specs for name, value in spec.defaults.items()}
    plan = Plan(target, golden, values.pop("output", Path(DEFAULT_OUTPUT)), get_time_stamp(), **values)
    plugin_values: dict[str, dict[str, Any]] = {}
    for name, (spec, option) in added.items():
        if (
            name in passed_options.keys() - OPTION_NAMES
            and (value := _convert_value(name, passed_options[name], option)) is not False
        ):
            plugin_values.setdefault(spec.name, {})[option.name] = value
    for name, option_values in plugin_values.items():
        plan = manager.find("options", name, OptionSpec).action(option_values)(
            plan, option_values, passed_options.keys()
        )
    return plan


def _convert_value(name: str, value: Any, option: Option | None = None) -> Any:
    """Return the value of an option, or of the ``option`` of a plugin, in the form that the command line yields."""
    kind = option.kind if option else _KINDS.get(name, _KINDS.get(type(_DEFAULTS.get(name)), "text"))
    expected, types, may_be_list = _EXPECTED_TYPES[kind]
    items = [*value] if may_be_list and isinstance(value, Iterable) and not isinstance(value, str) else [value]
    is_valid = all(isinstance(item, types) and (type(item) is bool) is (kind == "flag") for item in items)
    is_valid = (is_valid and (kind != "count" or value > 0)) or is_remote(value)
    if not (is_valid or (option and option.value_optional and value is True)):
        raise UserError(f"{name} must be {expected}, not {value!r:.40}.", f"Pass {expected}.")
    if option is not None:
        if option.choices and value not in option.choices:
            raise UserError(f"{name} must not be {value!r:.40}.", "Pass one of these:", option.choices)
        if option.kind == "file" and isinstance(value, str):
            return Path(value)
        if option.kind == "numbers":
            return parse_numbers(",".join(map(str, items)), name) if items else ()
        return parse_location(value) if option.kind == "run" else value
    if kind == "texts":
        return tuple(dict.fromkeys(items))
    return Path(value) if name in _PATH_FIELDS and isinstance(value, str) else value


class Comparison:
    """Two recorded runs, which are compared when a result is accessed.

    Attributes:
        plan: All options.
        pairs: The record files to compare with each other, by step and rank.
        problems: Sentences on the steps and ranks that are missing from the results.
        damaged: The sentences in ``problems`` on directories that should hold a run and do not.
        first: The answers that are printed first, after the comparison.
        last: The answers that are printed after the summaries.
        asked: The answers that options of plugins request, after ``run``.
    """

    def __init__(self, plan: Plan, manager: Manager) -> None:
        from probe_core.flow.comparison import check_plan
        from probe_core.flow.execution import PlanExecution

        self.plan, self._manager = plan, manager
        pairing = PlanExecution.open(plan, manager).pairing
        self.pairs: Sequence[RunPair] = pairing.pairs
        self.problems, self.damaged = [*pairing.notes, *pairing.missing, *pairing.damaged], pairing.damaged
        self._reports: list[Report] = []
        self._finished: Sequence[PairResult] = ()
        self.first: list[Conclusion] = []
        self.last: list[Conclusion] = []
        self.asked: list[Conclusion] = []
        formats = () if plan.formats == DEFAULT_FORMATS else plan.formats
        check_plan(replace(plan, formats=formats), manager)

    def __repr__(self) -> str:
        return f"<Comparison of {self.plan.target} with {self.plan.golden}, {format_count(len(self.pairs), 'pair')}>"

    def _repr_html_(self) -> str:
        """Compare the runs, and return the verdict and the counts as HTML for a notebook."""
        try:
            counts, answer = self.counts, self.answer
        except UserError as error:
            return f"<pre>{escape(str(error))}</pre>"
        pages = (spec.make() for spec in self._manager.specs("reporters", ReporterSpec) if spec.page)
        for page in (page for page in pages if isinstance(page, NotebookPage)):
            return str(page.head(self))
        lines = [answer.sentence if answer else "No verdict.", f"{format_count(counts.rows, 'row')}.", *self.problems]
        return "".join(f"<p>{escape(make_printable(line))}</p>" for line in lines)

    @property
    def reports(self) -> list[Report]:
        """The counts, suspects and notes of each pair; the first access compares the runs."""
        self._ensure_compared()
        return self._reports

    def _ensure_compared(self) -> None:
        """Compare the runs, if this was not done before."""
        if not self._reports:
            with self._compare():
                pass

    @property
    def answer(self) -> Answer | None:
        """The verdict on the two runs with its causes; None if no installed plugin provides verdicts."""
        self._ensure_compared()
        return next((conclusion.answer for conclusion in self.first if conclusion.answer is not None), None)

    @property
    def suspects(self) -> list[Suspect]:
        """The rows to inspect first, by step and rank."""
        return [suspect for report in self.reports for suspect in report.suspects]

    @property
    def counts(self) -> RowCounts:
        """The numbers of rows by verdict and by match."""
        return sum((report.counts for report in self.reports), RowCounts())

    def rows(self) -> Iterator[dict[str, Cell]]:
        """Yield the rows of the table as they are measured; numbers have all digits.

        Each row holds ``step``, ``rank``, ``op`` and ``level``, and a cell for each column of the table.
        """
        with closing(self._iterate_batches()) as batches:
            for pair, table, batch in batches:
                levels = [[*Level][level].value for level in batch.verdicts.levels.tolist()]
                rows = zip(levels, table.iterate_rows(batch, all_digits=True))
                for number, op in enumerate(batch.ops):
                    place: dict[str, Cell] = {"step": pair.part, "rank": pair.rank, "op": op}
                    for level, cells in islice(rows, len(batch.lines(number))):
                        yield {**place, "level": level, **dict(zip(table.headers, cells))}

    def _iterate_batches(self) -> Generator[tuple[RunPair, CellTable, RowBatch], None, None]:
        """Yield the judged batches of each pair."""
        from probe_core import engine
        from probe_core.flow.comparison import RunComparison
        from probe_core.flow.judging import judge_batches

        output: Output | None = self._manager.make_first("outputs", OutputSpec)
        if output is None:
            raise self._manager.create_missing_error("outputs", "tables")
        engine.use_threads(self.plan.jobs)
        for pair in self.pairs:
            try:
                run_comparison = RunComparison.open(self.plan, self._manager, pair.target, pair.golden)
            except UserError as error:
                self._note_failure(pair, error)
                continue
            with closing(run_comparison):
                opened = run_comparison.opened
                row_check, table = output.create_check(opened), output.create_table(opened)
                batches = run_comparison.batches(pair.rank)
                for batch in judge_batches(batches, self._manager, opened.note_failure):
                    row_check.check_batch(batch)
                    yield pair, table, batch
                for problem in row_check.problems(run_comparison.runs.row_count):
                    warnings.warn(problem, stacklevel=3)

    def to_dataframe(self) -> Any:
        """Return all rows as a data frame of pandas or, if that is not installed, of polars."""
        return self._manager.find("reporters", FRAME_REPORTER, ReporterSpec).make().data_frame(self._iterate_batches())

    def to_arrow(self) -> Any:
        """Return all rows as a ``pyarrow.Table``."""
        return self._manager.find("reporters", FRAME_REPORTER, ReporterSpec).make().arrow_table(self._iterate_batches())

    def write(self, format: str, path: str | os.PathLike[str]) -> list[Path]:
        """Write the table of each pair in a format such as ``csv``, and return the files.

        Args:
            format: The name of a reporter, with its parameters if any.
            path: The file; of several pairs, step and rank follow its name: ``table_step0_rank1.csv``.

        Raises:
            UserError: There is no such format, or a file cannot be written.
        """
        if not isinstance(format, str):
            raise UserError(f"format must be one text, not {format!r:.40}.", "Call write once for each format.")
        path = Path(path)
        make_directory(path.parent)
        files: list[Path] = []
        with self._compare(format) as reports:
            for report in reports:
                if report.faults:
                    raise UserError(report.faults[0], "Choose another format; see probe plugins.")
                name = f"{path.stem}_{report.label.replace('/', '_')}{path.suffix}"
                files.append(path.with_name(name) if len(self.pairs) > 1 else path)
                with write_atomically(files[-1], "The table") as temporary:
                    copyfile(report.files[0], temporary)
        return files

    def run(self) -> Iterator[PairResult]:
        """Write the files of ``probe compare`` while it is iterated; yield each pair when it is done."""
        yield from self._run(self.plan)

    def _run(self, plan: Plan) -> Iterator[PairResult]:
        from probe_core.flow.execution import PlanExecution

        execution = PlanExecution.open(plan, self._manager)
        with execution.reserve_time_stamp():
            yield from execution.run()
            self.first, self.last = (
                list(execution.iterate_conclusions(stage)) for stage in (AnswerStage.FIRST, AnswerStage.LAST)
            )
            self.asked = list(execution.iterate_conclusions(AnswerStage.ASKED)) or self.asked
            self._finished = execution.finished

    @contextmanager
    def _compare(self, *formats: str) -> Iterator[list[Report]]:
        """Compare all pairs, and yield their reports; the result files exist until the block ends."""
        directory = create_private_directory()
        try:
            plan = replace(self.plan, output=directory, formats=formats, advise=False, answer=False)
            if any([result.interrupted for result in self._run(replace(plan, answers=()))]):
                raise KeyboardInterrupt
            for result in self._finished:
                if result.error is not None:
                    self._note_failure(result.pair, result.error)
            reports = [result.report for result in self._finished if result.report is not None]
            for problem in dict.fromkeys(problem for report in reports for problem in report.problems):
                warnings.warn(problem, stacklevel=2)
            if not reports:
                raise UserError("None of the ranks can be compared.", "Correct these problems:", self.problems)
            self._reports = self._reports or reports
            yield reports
        finally:
            rmtree(directory, ignore_errors=True)

    def _note_failure(self, pair: RunPair, error: UserError) -> None:
        """Note that a pair cannot be compared, and warn of it; raise the error if it is the only one."""
        if len(self.pairs) == 1:
            raise error
        problem = f"{pair.name}: {error.what}"
        if problem not in self.problems:
            self.problems.append(problem)
        warnings.warn(f"{problem} It is left out. {error.fix}", stacklevel=3)
