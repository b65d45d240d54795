"""Checks for comparisons without a verdict: metrics without any number, tables without a judged row."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from probe_core.errors import format_count
from probe_core.model import Level, MetricFailure, Mode, Reason
from probe_core.model.batches import RowBatch
from probe_core.model.report import FailureNote, MetricUse, RowCheck, find_measured_rows
from probe_reporters.reason_texts import ReasonTexts

UNMATCHED_REASONS = ("no_target", "no_golden", "golden_unmatched")


@dataclass(slots=True)
class MetricCheck:
    """A metric that has not measured any row so far.

    Attributes:
        metric: The metric.
        failures: The number of rows on which it failed.
        first_error: The first error.
        reasons: The reasons for which it measured no row, with the numbers of rows.
    """

    metric: MetricUse
    failures: int = 0
    first_error: str = ""
    reasons: Counter[str] = field(default_factory=Counter)

    def has_number(self, batch: RowBatch, texts: ReasonTexts) -> bool:
        """Return True if the metric measured a row; if not, note the reasons."""
        columns = [batch.results.measurements[column] for column in self.metric.columns]
        if any(column.has_value.any() for column in columns):
            return True
        for codes in zip(*(column.codes.tolist() for column in columns)):
            reasons = (column.others[code].reason for column, code in zip(columns, codes))
            self._note(next((reason for reason in reasons if reason is not None), None), texts)
        return False

    def _note(self, reason: Reason | None, texts: ReasonTexts) -> None:
        if reason is None or reason.code in UNMATCHED_REASONS:
            return
        if isinstance(reason, MetricFailure):
            self.failures += 1
            self.first_error = self.first_error or reason.error
        else:
            self.reasons[texts.format_message(reason) or reason.code.replace("_", " ")] += 1

    @property
    def problem(self) -> str:
        """The sentence on a metric without any number; empty if it did not fail and no option requests it."""
        origin = f" of {self.metric.origin}" if self.metric.origin else ""
        subject = f'The metric "{self.metric.name}"{origin}'
        if self.failures:
            what = f"failed on all {self.failures:,} rows that it was to measure"
            return FailureNote(f"{subject} {what}, so its columns hold no number: {self.first_error}.", subject)
        if not self.metric.is_requested:
            return ""
        why = self.reasons.most_common(1)
        shown = f" ({why[0][1]:,} x {why[0][0].rstrip('.')})" if why else ""
        return f"{subject} measured no row{shown}, so its columns hold no number."


@dataclass(slots=True)
class MeasurementCheck(RowCheck):
    """The check whether rows of a comparison are measured, and whether each metric measures any."""

    mode: Mode
    texts: ReasonTexts = field(default_factory=ReasonTexts)
    metrics: list[MetricCheck] = field(default_factory=list)
    measured: int = 0
    _reasons: Counter[str] = field(default_factory=Counter)
    _first: dict[str, str] = field(default_factory=dict)
    _counts: Counter[str] = field(default_factory=Counter)

    def check_batch(self, batch: RowBatch) -> int:
        """Check a batch, and return the number of its rows that were measured."""
        self.metrics = [metric for metric in self.metrics if not metric.has_number(batch, self.texts)]
        is_measured, verdicts = find_measured_rows(batch), batch.verdicts
        if not self.measured:
            first = int(is_measured.argmax()) if is_measured.any() else len(batch)
            for line in range(first):
                self._reasons.update(self._list_messages(batch, line))
        self.measured += int(is_measured.sum())
        if self.mode is Mode.MD5:
            differs = batch.is_matched & verdicts.map_verdicts(lambda verdict: verdict.level is not Level.PASS)
            for line in np.flatnonzero(differs).tolist():  # its table has no messages
                for text in self._list_messages(batch, line):
                    self._counts[text] += 1
                    self._first.setdefault(text, batch.pair(line).name)
        return int(is_measured.sum())

    def _list_messages(self, batch: RowBatch, line: int) -> set[str]:
        return {text for text in map(self.texts.format_message, batch.reasons(line)) if text}

    def notes(self) -> list[str]:
        """Return the messages of a table of checksums, which has no column for them."""
        counts = sorted(self._counts.items())
        return [f"{format_count(count, 'row')}, such as {self._first[text]}: {text}" for text, count in counts]

    def problems(self, rows: int) -> list[str]:
        """Return the reasons why the comparison gives no verdict; empty if it gives one."""
        problems = [metric.problem for metric in self.metrics]
        if not self.measured:
            why = self._reasons.most_common(1)
            shown = f" ({why[0][1]:,} x {why[0][0].rstrip('.')})" if why else ""
            what = "the only row could not" if rows == 1 else f"none of {rows:,} rows could"
            problems.insert(0, f"No tensor was compared: {what} be measured{shown}.")
        return [text for text in problems if text]
