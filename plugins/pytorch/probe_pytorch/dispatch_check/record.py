"""Record of a dispatch check: its files, findings and counts."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from probe_precheck.results import CheckFiles
from probe_precheck.settings import PRECISION
from probe_precheck.tables import Tables
from probe_recording.messages import note

from probe_core.errors import UserError, make_printable
from probe_pytorch.dispatch_check.comparison import CallComparison
from probe_pytorch.dispatch_check.findings import CallCounts, OperatorFinding
from probe_pytorch.dispatch_check.mode import CallIdentity
from probe_pytorch.dispatch_check.operators import SkipReason
from probe_pytorch.process import TorchProcess

MAX_FINDINGS = 1000
"""Number of findings that are kept; later ones are counted only."""

TABLE_LANGUAGE = "zh"
"""Language of headers and messages, as ``run_ut`` writes them by default."""


class CheckRecord:
    """Files, findings and counts of a check; several threads may use it.

    Args:
        directory: The directory of the csv files; processes of a distributed training get one each inside.
        tables: The columns of the files.

    Attributes:
        findings: The first wrong calls, at most ``MAX_FINDINGS``.
        counts: The numbers of calls.
        result: The path of the result csv.
        details: The path of the details csv.
        failure: The first error of the check itself; empty if there is none.

    Raises:
        UserError: The files cannot be written.
    """

    def __init__(self, directory: Path, tables: Tables) -> None:
        process = TorchProcess()
        if process.process_count > 1:
            directory = directory / process.label
        stamp = time.strftime("%Y%m%d%H%M%S")
        self._files: CheckFiles | None = CheckFiles.create(
            directory, stamp, tables.details, TABLE_LANGUAGE, PRECISION, tables
        )
        self.result, self.details = self._files.result, self._files.details
        self.findings: list[OperatorFinding] = []
        self.counts = CallCounts()
        self.failure = ""
        self._lock = threading.RLock()

    def record_call(self, identity: CallIdentity, comparison: CallComparison) -> OperatorFinding | None:
        """Write and count a call, and return the finding if it is wrong."""
        with self._lock:
            if comparison.result is None:
                self.skip(comparison.reason or SkipReason.FAILED, identity.overload)
                if comparison.reason is SkipReason.LOST:
                    self._note_failure(comparison.detail)
                return None
            self.counts.compared += 1
            self.counts.operators[identity.overload] += 1
            self._write(comparison)
            if comparison.difference is None:
                return None
            self.counts.wrong += 1
            self.counts.wrong_operators[identity.overload] += 1
            finding = OperatorFinding(
                identity.number,
                identity.name,
                identity.overload,
                identity.phase,
                comparison.difference,
                identity.origin,
                identity.forward,
            )
            if len(self.findings) < MAX_FINDINGS:
                self.findings.append(finding)
            return finding

    def skip(self, reason: SkipReason, operator: str) -> None:
        """Count a call that is not compared."""
        with self._lock:
            self.counts.skipped[reason, operator] += 1

    def count_failure(self, operator: str, error: Exception) -> None:
        """Count a call that is not compared because of an error of the check."""
        self.skip(SkipReason.FAILED, operator)
        self._note_failure(f"{operator}: {type(error).__name__}: {error}")

    def close(self) -> None:
        """Close the files, and sort the findings by the order of the calls."""
        with self._lock:
            if self._files is not None:
                self._files.close()
                self._files = None
            self.findings.sort(key=lambda finding: finding.number)

    def _write(self, comparison: CallComparison) -> None:
        """Write the rows of a call; after an error, such as a full disk, no more rows are written."""
        if self._files is None or comparison.result is None:
            return
        try:
            self._files.append(comparison.result)
        except UserError as error:
            self._files.close()
            self._files = None
            note(make_printable(f"dispatch check: {error.what} The check goes on without writing rows."))

    def _note_failure(self, text: str) -> None:
        self.failure = self.failure or text
