"""The summary over all ranks: a table of the counts and the first suspect of each, and a few lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from probe_core import console
from probe_core.errors import UserError, format_count, format_list, make_printable
from probe_core.files.atomic import make_directory, write_atomically
from probe_core.model import Cell, Level
from probe_core.model.answers import Outcome
from probe_core.model.report import FailureNote, Report
from probe_core.plugins.blame import PluginError, blame_plugin
from probe_core.plugins.manager import warn
from probe_core.plugins.protocols import AllResults, PairResult
from probe_core.plugins.specs import ReporterSpec
from probe_reporters.output import write_table

if TYPE_CHECKING:
    from probe_core.plugins.protocols import OpenComparison
    from probe_core.store.layout import RunPair
    from probe_reporters.protocols import Reporter

HEADERS = (
    "Step", "Rank", "File", "Mode", "Rows", "Ops", "Fail", "To check", "Pass", "Not measured", "Matched",
    "Only NPU", "Only Bench", "First suspect", "Why", "Module", "Line of code", "Error",
)  # fmt: skip
LEVELS = (Level.ERROR, Level.WARNING, Level.PASS, Level.SKIP)

MAX_LISTED_REGIONS = 5
"""Largest number of places at which calls do not line up that are named."""

LEVEL_TEXTS = {
    Level.ERROR: ("{:,} fail", "red"),
    Level.WARNING: ("{:,} to check", "yellow"),
    Level.PASS: ("{:,} pass", "green"),
    Level.SKIP: ("{:,} not measured", None),
}
"""The words and colour of each level of a row, most severe first. Only the verdict uses the word "differ"."""

NOT_MEASURED_NOTE = (
    "not measured: rows that no metric fits, such as numbers, texts and None; the verdict still compares numbers "
    "and texts, and ignores None in both runs"
)
"""Sentence about the rows that were not measured, next to the values that were compared."""

AGREED_ROWS_NOTE = (
    "the verdict is AGREE although rows fail or are to check: rounding explains these rows, or they have no partner or "
    "a wrong one"
)
"""Sentence about the rows that fail by the rule of the table, next to a verdict that the runs agree."""

_NUMBER = re.compile(r"\d[\d,]*")


class SummaryAnswerer:
    """The conclusions printed last: the counts of each comparison, and a table of several comparisons."""

    def witness(self, opened: OpenComparison, pair: RunPair) -> None:
        """Observe nothing, because the reports contain all that is printed."""

    def conclude(self, results: AllResults) -> Iterator[ComparisonSummary | OverallSummary]:
        """Yield the counts of each comparison, then the table of several, ready to be printed.

        Raises:
            UserError: The table cannot be written; all else was yielded before that.
        """
        pairs = results.pairing.pairs
        reports = [result.report for result in results.finished if result.report is not None]
        lines = [collect_notes(report) for report in reports]
        counts = Counter(key for report_lines in lines for key in report_lines)
        printed_keys: set[str] = set()
        for report, report_lines in zip(reports, lines):
            yield ComparisonSummary(report, len(pairs) > 1, counts, frozenset(printed_keys))
            printed_keys |= report_lines.keys() | set(_list_row_notes(report))
        if len(pairs) < 2:
            return
        is_whole = len(results.finished) == len(pairs) and not any(result.interrupted for result in results.finished)
        try:
            files = write_summary(results) if is_whole else []
        except UserError:
            yield OverallSummary(results, [])
            raise
        yield OverallSummary(results, files)


@dataclass(frozen=True, slots=True)
class ComparisonSummary:
    """The counts, notes and files of one comparison, which can be printed.

    Attributes:
        report: The report of the comparison.
        is_one_of_many: True if there are other comparisons, so that the verdict is printed as well.
        counts: The number of comparisons with the same line, by the keys of ``collect_notes``.
        printed_keys: The keys of lines that were printed for earlier comparisons.
        is_judged: Always True; ``Report.is_judged`` states whether rows were judged.
    """

    report: Report
    is_one_of_many: bool
    counts: Mapping[str, int] = field(default_factory=dict)
    printed_keys: Collection[str] = ()
    is_judged: bool = True
    answer: None = None

    def show(self, *, brief: bool = False) -> None:
        """Print them, without the verdict if ``brief`` is set."""
        self._show_counts(brief=brief)
        report = self.report
        if self.is_one_of_many and report.answer is not None and not brief:
            console.show(f"  {make_printable(report.answer.sentence, 400)}", wrap=True)
        if report.regions:
            console.show(f"  calls that could not be aligned, in {format_count(len(report.regions), 'place')}:")
        for line in report.regions[:MAX_LISTED_REGIONS]:
            console.show(f"    {make_printable(line)}")
        self._show_notes()
        for path in report.files:
            console.show(f"  wrote {path}")
        for line in report.faults:
            console.warn(line)
        self._show_missing_rows()

    def _show_counts(self, *, brief: bool) -> None:
        """Print the numbers of rows."""
        report, counts = self.report, self.report.counts
        head = f"{report.label}: " if report.label else ""
        console.show(
            f"{head}{format_count(counts.rows, 'row')} of {format_count(report.op_count, 'op')} compared by "
            f"{report.mode.value} in {report.seconds:.1f} s"
        )
        numbers = counts.levels
        parts = [
            console.style(words.format(numbers[level]), fg=color if numbers[level] else None)
            for level, (words, color) in LEVEL_TEXTS.items()
        ]
        unmatched = f"{counts.target_only:,} only in the target, {counts.golden_only:,} only in the golden"
        matched = format_count(counts.matched, "row")
        console.show(f"  table: {', '.join(parts)}; {matched} matched, {unmatched}", wrap=True)
        for note in () if brief else _list_row_notes(report):
            if note not in self.printed_keys:
                console.show(f"  {note}", wrap=True)

    def _show_notes(self) -> None:
        """Print the warnings and notes that were not printed for an earlier comparison."""
        for key, (is_warning, text) in collect_notes(self.report).items():
            if key in self.printed_keys:
                continue
            others = self.counts.get(key, 1) - 1
            if others:
                text = f"{text.rstrip('.')}; the same in {format_count(others, 'other comparison')}"
            if is_warning:
                console.warn(text)
            else:
                console.show(f"  note: {make_printable(text)}", wrap=True)

    def _show_missing_rows(self) -> None:
        """Print why rows are missing or not measured."""
        report = self.report
        if report.interrupted:
            counts = f"{report.counts.rows:,} of {format_count(report.row_count, 'row')}"
            console.warn(f"interrupted after {counts}; the files hold those.")
        if report.unreadable_count:
            files = format_count(report.unreadable_count, "tensor file")
            console.error(
                f"{files} could not be read: {report.unreadable[0]}.",
                "Their rows are marked in the result; copy or record the run again to measure them.",
                report.unreadable[1:],
            )


def _list_row_notes(report: Report) -> list[str]:
    """Return sentences on the numbers of rows that a reader could take for a contradiction of the verdict."""
    levels, answer = report.counts.levels, report.answer
    if answer is None:
        return []
    is_contrary = answer.outcome is Outcome.AGREE and (levels[Level.ERROR] or levels[Level.WARNING])
    notes = {NOT_MEASURED_NOTE: levels[Level.SKIP], AGREED_ROWS_NOTE: is_contrary}
    return [note for note, is_needed in notes.items() if is_needed]


def collect_notes(report: Report) -> dict[str, tuple[bool, str]]:
    """Return the warnings (True) and notes of a report, by a key that is equal for equal lines of several reports.

    The key of a warning has no numbers. If a metric failed on all rows, its notes become part of its warning.
    """
    fixes = {problem.subject: "" for problem in report.problems if isinstance(problem, FailureNote)}
    notes: list[str] = []
    for note in report.notes:
        if isinstance(note, FailureNote) and note.subject in fixes:
            fixes[note.subject] = fixes[note.subject] or note.fix
        else:
            notes.append(note)
    lines: dict[str, tuple[bool, str]] = {}
    for problem in report.problems:
        fix = fixes[problem.subject] if isinstance(problem, FailureNote) else ""
        lines[_NUMBER.sub("0", problem)] = True, f"{problem} {fix}" if fix else str(problem)
    return lines | {note: (False, str(note)) for note in notes}


@dataclass(frozen=True, slots=True)
class OverallSummary:
    """The summary of several comparisons, which can be printed.

    Attributes:
        compared: The comparisons that have ended.
        files: The files of the table.
        is_judged: Always True; ``Report.is_judged`` states whether rows were judged.
    """

    compared: AllResults
    files: Sequence[Path]
    is_judged: bool = True
    answer: None = None

    def show(self, *, brief: bool = False) -> None:
        """Print how many comparisons finished, which ranks differ, and which failed."""
        finished, pairs = self.compared.finished, self.compared.pairing.pairs
        complete = [result for result in finished if result.report is not None and not result.interrupted]
        suspects = [result for result in finished if result.report is not None and result.report.suspects]
        differ = [result.pair.name for result in suspects if not _has_agreed(result)]
        changed = [result.pair.name for result in suspects if _has_agreed(result)]
        resumed_count = sum(result.resumed for result in finished)
        failed_names = [result.pair.name for result in finished if result.report is None]
        text = f"{len(complete)} of {format_count(len(pairs), 'comparison')} finished"
        console.show(f"{text}, {resumed_count} of them in an earlier run" if resumed_count else text)
        blank = [result for result in complete if result.report and not result.report.counts.measured]
        unsure = [result.pair.name for result in complete if result not in suspects + blank and not _has_agreed(result)]
        if differ:
            console.show(f"  differ: {format_list(differ)}")
        elif unsure:
            console.show(f"  no call is named as a cause; no decision on: {format_list(unsure)}")
        elif complete and all(map(_has_agreed, complete)) and not changed:
            who = "all agree" if len(complete) == len(pairs) else "those that finished agree"
            console.show(f"  {who}, so no call is named as a cause")
        if changed:
            console.show(f"  agree, but with calls made differently: {format_list(changed)}")
        if blank:
            console.show(f"  nothing was compared: {format_list(result.pair.name for result in blank)}")
        if failed_names:
            console.show(f"  failed: {format_list(failed_names)}")
        for path in self.files:
            console.show(f"  wrote {path}")
        if len(complete) < len(pairs) and complete:
            console.note("  --resume compares what is left, and keeps what is finished.")


def _has_agreed(result: PairResult) -> bool:
    """Return True if the verdict is that the values agree."""
    answer = result.report.answer if result.report is not None else None
    return answer is not None and answer.outcome is Outcome.AGREE


def write_summary(results: AllResults) -> list[Path]:
    """Write ``compare_summary_{time stamp}`` in the plan's formats, with a row per rank; return the files.

    Raises:
        UserError: The output directory is not writable.
    """
    plan, manager, finished = results.plan, results.manager, results.finished
    make_directory(plan.output)
    files: list[Path] = []
    for name in plan.formats:
        spec = manager.find("reporters", name, ReporterSpec)
        if spec.page:  # the plugin of pages writes a page of all ranks
            continue
        path = plan.output / f"compare_summary_{plan.time_stamp}{spec.suffix}"
        rows = [create_row(comparison) for comparison in finished]
        try:
            reporter: Reporter = spec.make()
            with write_atomically(path, "The summary") as temporary, blame_plugin(spec.title, spec.origin, OSError):
                write_table(reporter, temporary, HEADERS, rows, results.answer if spec.answers else None)
        except PluginError as error:
            warn(error, "Its summary is not written.")
            continue
        files.append(path)
    return files


def create_row(result: PairResult) -> list[Cell]:
    """Return the cells of one rank's row."""
    pair, report = result.pair, result.report
    place: list[Cell] = [pair.part, pair.rank, pair.target.name]
    if report is None:
        assert result.error is not None
        return [*place, *[""] * (len(HEADERS) - len(place) - 1), result.error.what]
    counts = report.counts
    suspect = report.suspects[0] if report.suspects else None
    where = [suspect.row, suspect.why, suspect.module, suspect.where] if suspect else [""] * 4
    unreadable = (
        [f"{format_count(report.unreadable_count, 'tensor file')} could not be read"] if report.unreadable_count else []
    )
    problem = "; ".join([*unreadable, *report.problems])
    return [
        *place,
        report.mode.value,
        counts.rows,
        report.op_count,
        *(counts.levels[level] for level in LEVELS),
        counts.matched,
        counts.target_only,
        counts.golden_only,
        *where,
        problem,
    ]
