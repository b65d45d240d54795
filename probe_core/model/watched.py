"""Checks for comparisons without a verdict: metrics without any number, tables without a judged row."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from probe_core.errors import counted
from probe_core.model import Level, Mode, Row
from probe_core.model.messages import message, reasons_of

FAILED = "metric_failed"
NO_PARTNER = ("no_target", "no_golden", "golden_unmatched")


@dataclass(slots=True)
class WatchedMetric:
    """A metric that has not measured any row so far.

    Attributes:
        name: The name of the metric.
        origin: The distribution that it comes from, and its version.
        columns: The keys of its measurements in a row.
        is_asked: True if ``--metric`` named it, False if only the table needs it.
    """

    name: str
    origin: str
    columns: tuple[str, ...]
    is_asked: bool
    failures: int = 0
    first_error: str = ""
    reasons: Counter[str] = field(default_factory=Counter)

    def gives_a_number(self, row: Row) -> bool:
        """Return True if the metric measured the row; if not, note the reason."""
        own = [row.measurements[column] for column in self.columns if column in row.measurements]
        if any(measurement.value is not None for measurement in own):
            return True
        reason = next((measurement.reason for measurement in own if measurement.reason is not None), None)
        if reason is None or reason.code in NO_PARTNER:
            return False
        if reason.code == FAILED:
            self.failures += 1
            self.first_error = self.first_error or reason.detail.partition(" failed: ")[2]
        else:
            self.reasons[message(reason) or reason.code.replace("_", " ")] += 1
        return False

    @property
    def problem(self) -> str:
        """The sentence on a metric that gave no number; empty if nobody asked for it."""
        subject = f'The metric "{self.name}" of {self.origin}' if self.origin else f'The metric "{self.name}"'
        if self.failures:
            what = f"failed on all {self.failures:,} rows that it was to measure"
            return f"{subject} {what}, so its columns hold no number: {self.first_error}."
        if not self.is_asked:
            return ""
        why = self.reasons.most_common(1)
        shown = f" ({why[0][1]:,} x {why[0][0].rstrip('.')})" if why else ""
        return f"{subject} measured no row{shown}, so its columns hold no number."


@dataclass(slots=True)
class Watch:
    """The rows of a comparison, checked one by one for measurements."""

    mode: Mode
    metrics: list[WatchedMetric] = field(default_factory=list)
    measured: int = 0
    _reasons: Counter[str] = field(default_factory=Counter)
    _first: dict[str, str] = field(default_factory=dict)
    _counts: Counter[str] = field(default_factory=Counter)

    def look(self, row: Row) -> bool:
        """Check a row, and return True if it was measured."""
        if self.metrics:
            self.metrics = [metric for metric in self.metrics if not metric.gives_a_number(row)]
        verdict = row.verdict
        is_measured = verdict.measured and verdict.level is not Level.SKIP and row.pair.matched
        self.measured += is_measured
        if not self.measured:
            self._reasons.update({text for text in map(message, reasons_of(row)) if text})
        if self.mode is Mode.MD5 and row.pair.matched and verdict.level is not Level.PASS:
            for text in {text for text in map(message, reasons_of(row)) if text}:  # its table has no messages
                self._counts[text] += 1
                self._first.setdefault(text, row.pair.name)
        return is_measured

    def notes(self) -> list[str]:
        """Return the messages of a table of checksums, which has no column for them."""
        counts = sorted(self._counts.items())
        return [f"{counted(count, 'row')}, such as {self._first[text]}: {text}" for text, count in counts]

    def problems(self, rows: int) -> list[str]:
        """Return the reasons why the comparison gives no verdict; empty if it gives one."""
        problems = [metric.problem for metric in self.metrics]
        if not self.measured:
            why = self._reasons.most_common(1)
            shown = f" ({why[0][1]:,} x {why[0][0].rstrip('.')})" if why else ""
            what = "the only row could not" if rows == 1 else f"none of {rows:,} rows could"
            problems.insert(0, f"No tensor was compared: {what} be measured{shown}.")
        return [text for text in problems if text]
