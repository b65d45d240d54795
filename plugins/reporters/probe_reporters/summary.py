"""The summary over all ranks: a table of the counts and the first suspect of each, and a few lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from probe_core.cli import console
from probe_core.errors import UserError, counted, printable, some
from probe_core.files.atomic import AtomicFile, make_directory, not_written
from probe_core.flow.writing import write_table
from probe_core.model import Cell, Level
from probe_core.model.answers import Outcome
from probe_core.model.report import Report
from probe_core.plugins.blame import PluginError, blamed
from probe_core.plugins.manager import warn
from probe_core.plugins.protocols import Compared, Finished
from probe_core.plugins.specs import ReporterSpec

if TYPE_CHECKING:
    from probe_core.plugins.protocols import Opened, Reporter
    from probe_core.store.layout import RunPair

HEADERS = (
    "Step", "Rank", "File", "Mode", "Rows", "Ops", "Fail", "To check", "Pass", "Not measured", "Matched",
    "Only NPU", "Only Bench", "First suspect", "Why", "Module", "Line of code", "Error",
)  # fmt: skip
LEVELS = (Level.ERROR, Level.WARNING, Level.PASS, Level.SKIP)

SHOWN_PLACES = 5
"""Largest number of places at which calls do not line up that are named."""

WORDS = {
    Level.ERROR: ("{:,} fail", "red"),
    Level.WARNING: ("{:,} to check", "yellow"),
    Level.PASS: ("{:,} pass", "green"),
    Level.SKIP: ("{:,} not measured", None),
}
"""The words and colour of each level of a row, gravest first; to differ is a word of the verdict."""

ON_ALL, FAILED, SHOWN_IN = " failed on all ", " failed: ", "Err_message shows the error. "
"""Parts of sentences on a metric that failed: on all rows, on one row, and what follows is what to do."""

NOT_MEASURED = (
    "not measured: rows that no metric fits, such as numbers, texts and None; the verdict compares numbers "
    "and texts all the same, and does not count None in both runs"
)
"""Sentence on the rows that were not measured, beside the values that were compared."""

_NUMBER = re.compile(r"\d[\d,]*")


class Summary:
    """Answer of every comparison: the counts of each pair of record files, and of several how each fared."""

    def witness(self, opened: Opened, pair: RunPair) -> None:
        """Observe nothing; the reports say all."""

    def conclude(self, compared: Compared) -> Iterator[Counted | Shown]:
        """Yield the counts of each comparison, then the table of several, ready to be printed.

        Raises:
            UserError: The table cannot be written; all else was yielded before that.
        """
        pairs = compared.pairing.pairs
        reports = [one.report for one in compared.finished if one.report is not None]
        lines = [lines_of(report) for report in reports]
        counts = Counter(key for own in lines for key in own)
        told: set[str] = set()
        for report, own in zip(reports, lines):
            yield Counted(report, len(pairs) > 1, counts, frozenset(told))
            told |= own.keys() | ({NOT_MEASURED} if _says_not_measured(report) else set())
        if len(pairs) < 2:
            return
        is_whole = len(compared.finished) == len(pairs) and not any(
            one.interrupted for one in compared.finished
        )
        try:
            files = write_summary(compared) if is_whole else []
        except UserError:
            yield Shown(compared, [])
            raise
        yield Shown(compared, files)


@dataclass(frozen=True, slots=True)
class Counted:
    """The counts, notes and files of one comparison, which can be printed.

    Attributes:
        report: Its report.
        is_one_of_many: True if there are others, so that its verdict is printed as well.
        counts: The number of comparisons that say the same, by the keys of ``lines_of``.
        told: The keys of what was printed of earlier ones.
        is_judged: True, for the report says by itself whether it was judged.
    """

    report: Report
    is_one_of_many: bool
    counts: Mapping[str, int] = field(default_factory=dict)
    told: Collection[str] = ()
    is_judged: bool = True
    answer: None = None

    def show(self, *, brief: bool = False) -> None:
        """Print them, without the verdict if ``brief`` is set."""
        report = self.report
        counts = report.counts
        head = f"{report.label}: " if report.label else ""
        console.show(
            f"{head}{counted(counts.rows, 'row')} of {counted(report.op_count, 'op')} compared by "
            f"{report.mode.value} in {report.seconds:.1f} s"
        )
        numbers = counts.levels
        parts = [
            console.style(words.format(numbers[level]), fg=colour if numbers[level] else None)
            for level, (words, colour) in WORDS.items()
        ]
        alone = f"{counts.target_only:,} only in the target, {counts.golden_only:,} only in the golden"
        matched = counted(counts.matched, "row")
        console.show(f"  table: {', '.join(parts)}; {matched} matched, {alone}", wrap=True)
        if _says_not_measured(report) and not brief and NOT_MEASURED not in self.told:
            console.show(f"  {NOT_MEASURED}", wrap=True)
        if self.is_one_of_many and report.answer is not None and not brief:
            console.show(f"  {printable(report.answer.sentence, 400)}", wrap=True)
        if report.regions:
            console.show(f"  calls that do not line up, in {counted(len(report.regions), 'place')}:")
        for line in report.regions[:SHOWN_PLACES]:
            console.show(f"    {printable(line)}")
        for key, (is_warning, text) in lines_of(report).items():
            if key in self.told:
                continue
            others = self.counts.get(key, 1) - 1
            if others:
                text = f"{text.rstrip('.')}; the same in {counted(others, 'other comparison')}"
            if is_warning:
                console.warn(text)
            else:
                console.show(f"  note: {printable(text)}", wrap=True)
        for path in report.files:
            console.show(f"  wrote {path}")
        for line in report.faults:
            console.warn(line)
        if report.interrupted:
            console.warn(
                f"interrupted after {counts.rows:,} of {counted(report.row_count, 'row')}; the files hold "
                "those."
            )
        if report.unreadable_count:
            files = counted(report.unreadable_count, "tensor file")
            console.error(
                f"{files} could not be read: {report.unreadable[0]}.",
                "Their rows are marked in the result; copy or record the run again to measure them.",
                report.unreadable[1:],
            )


def _says_not_measured(report: Report) -> bool:
    """Return True if rows were not measured beside a verdict that counts the values of some as compared."""
    return bool(report.counts.levels[Level.SKIP]) and report.answer is not None


def lines_of(report: Report) -> dict[str, tuple[bool, str]]:
    """Return the warnings (True) and notes of a report, by a key that is the same where the same is said.

    Of a metric that failed on all rows, one warning says all: with their number, and what to do.
    """
    lines: dict[str, tuple[bool, str]] = {}
    failed: dict[str, str] = {}
    notes: list[str] = []
    for note in report.notes:
        subject = note.partition(FAILED)[0]
        if any(text.startswith(f"{subject}{ON_ALL}") for text in report.problems):
            failed.setdefault(subject, note.partition(SHOWN_IN)[2])
        else:
            notes.append(note)
    for text in report.problems:
        to_do = failed.get(text.partition(ON_ALL)[0])
        lines[_NUMBER.sub("0", text)] = True, f"{text} {to_do}" if to_do else text
    return lines | {note: (False, note) for note in notes}


@dataclass(frozen=True, slots=True)
class Shown:
    """The summary of several comparisons, which can be printed.

    Attributes:
        compared: The comparisons that have ended.
        files: The files of the table.
        is_judged: True, for each report says by itself whether it was judged.
    """

    compared: Compared
    files: Sequence[Path]
    is_judged: bool = True
    answer: None = None

    def show(self, *, brief: bool = False) -> None:
        """Print how many comparisons finished, which ranks differ, and which failed."""
        finished, pairs = self.compared.finished, self.compared.pairing.pairs
        whole = [one for one in finished if one.report is not None and not one.interrupted]
        suspects = [one for one in finished if one.report is not None and one.report.suspects]
        differ = [one.pair.name for one in suspects if not _agrees(one)]
        changed = [one.pair.name for one in suspects if _agrees(one)]
        kept = sum(one.resumed for one in finished)
        lost = [one.pair.name for one in finished if one.report is None]
        text = f"{len(whole)} of {counted(len(pairs), 'comparison')} finished"
        console.show(f"{text}, {kept} of them in an earlier run" if kept else text)
        blank = [one for one in whole if one.report and not one.report.counts.measured]
        unsure = [one.pair.name for one in whole if one not in suspects + blank and not _agrees(one)]
        if differ:
            console.show(f"  differ: {some(differ)}")
        elif unsure:
            console.show(f"  no call is named as a cause; no decision on: {some(unsure)}")
        elif whole and all(map(_agrees, whole)) and not changed:
            who = "all agree" if len(whole) == len(pairs) else "those that finished agree"
            console.show(f"  {who}, so no call is named as a cause")
        if changed:
            console.show(f"  agree, but with calls made differently: {some(changed)}")
        if blank:
            console.show(f"  nothing was compared: {some(one.pair.name for one in blank)}")
        if lost:
            console.show(f"  failed: {some(lost)}")
        for path in self.files:
            console.show(f"  wrote {path}")
        if len(whole) < len(pairs) and whole:
            console.note("  --resume compares what is left, and keeps what is finished.")


def _agrees(finished: Finished) -> bool:
    """Return True if the verdict is that the values agree."""
    answer = finished.report.answer if finished.report is not None else None
    return answer is not None and answer.outcome is Outcome.AGREE


def write_summary(compared: Compared) -> list[Path]:
    """Write ``compare_summary_{time stamp}`` in the plan's formats, with a row per rank; return the files.

    Raises:
        UserError: The output directory is not writable.
    """
    plan, manager, finished = compared.plan, compared.manager, compared.finished
    make_directory(plan.output)
    files: list[Path] = []
    for name in plan.formats:
        spec = manager.find("reporters", name, ReporterSpec)
        if spec.page:  # whoever writes pages writes one over all ranks
            continue
        file = AtomicFile(plan.output / f"compare_summary_{plan.time_stamp}{spec.suffix}")
        try:
            reporter: Reporter = spec.make()
            with blamed(spec.title, spec.origin, OSError):
                rows = [cells(comparison) for comparison in finished]
                answer = compared.answer if spec.answers else None
                write_table(reporter, file.temporary, HEADERS, rows, answer)
        except PluginError as error:
            file.discard()
            warn(error, "Its summary is not written.")
            continue
        except OSError as error:
            file.discard()
            raise not_written("The summary", plan.output, error) from None
        except BaseException:
            file.discard()
            raise
        files.append(file.commit())
    return files


def cells(finished: Finished) -> list[Cell]:
    """Return the cells of one rank's row."""
    pair, report = finished.pair, finished.report
    place: list[Cell] = [pair.part, pair.rank, pair.target.name]
    if report is None:
        assert finished.error is not None
        return [*place, *[""] * (len(HEADERS) - len(place) - 1), finished.error.what]
    counts = report.counts
    suspect = report.suspects[0] if report.suspects else None
    where = [suspect.row, suspect.why, suspect.module, suspect.where] if suspect else [""] * 4
    unreadable = (
        [f"{counted(report.unreadable_count, 'tensor file')} could not be read"]
        if report.unreadable_count
        else []
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
