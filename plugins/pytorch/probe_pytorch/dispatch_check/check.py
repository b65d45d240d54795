"""``DispatchCheck``, by which a training script compares its operators with the CPU."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any

from probe_precheck.results import CheckFiles
from probe_precheck.settings import PRECISION
from probe_precheck.tables import Tables
from probe_recording.messages import note

from probe_core.errors import UserError, make_printable
from probe_pytorch import compat
from probe_pytorch.dispatch_check import sentences
from probe_pytorch.dispatch_check.comparison import CallComparer, CallComparison, get_call_comparer, load_tables
from probe_pytorch.dispatch_check.findings import CallCounts, OperatorFinding
from probe_pytorch.dispatch_check.mode import CallIdentity, DispatchMode
from probe_pytorch.dispatch_check.operators import SkipReason
from probe_pytorch.dispatch_check.reference import DispatchedCall
from probe_pytorch.dispatch_check.settings import OnError, parse_settings
from probe_pytorch.dispatch_check.workers import WorkerPool
from probe_pytorch.process import TorchProcess


class WrongOperator(RuntimeError):
    """Error of a wrong operator, with ``on_error="raise"``.

    Attributes:
        finding: The finding.
    """

    def __init__(self, finding: OperatorFinding) -> None:
        super().__init__(sentences.describe_finding(finding))
        self.finding = finding


class DispatchCheck:
    """Check of every aten operator of a block against the CPU in higher precision.

    The program receives the results of the device, as without the check::

        with probe_pytorch.DispatchCheck("./dispatch_check") as check:
            loss = model(batch).sum()
            loss.backward()
            optimizer.step()
        print(check.findings)

    Args:
        dump_path: The directory of the csv files.
        skip: Operators that are not compared, or the path of a YAML file that lists them.
        processes: The number of processes that compute the references; 0 for the process of the training.
        memory: Bytes that copies of arguments and results may take, such as ``"2GiB"``.
        device: The device whose operators are compared, such as ``"npu"``; None for all devices.
        on_error: ``"continue"``, or ``"raise"`` to raise ``WrongOperator`` at the first wrong call.

    Raises:
        UserError: An argument has a wrong type or value.
    """

    def __init__(
        self,
        dump_path: str | PathLike[str] = "./dispatch_check",
        skip: str | PathLike[str] | Sequence[str] | None = None,
        processes: int = 0,
        memory: int | str = "2GiB",
        device: Any = None,
        on_error: str = "continue",
    ) -> None:
        self._settings = parse_settings(dump_path, skip, processes, memory, device, on_error)
        self._record: CheckRecord | None = None
        self._mode: DispatchMode | None = None
        self._pool: WorkerPool | None = None
        self._comparer: CallComparer | None = None
        self._waiting: dict[int, CallIdentity] = {}

    # -- results -----------------------------------------------------------------------------------

    @property
    def findings(self) -> tuple[OperatorFinding, ...]:
        """The first wrong calls in their order; empty before the block."""
        return () if self._record is None else tuple(self._record.findings)

    @property
    def counts(self) -> CallCounts:
        """The numbers of calls."""
        return CallCounts() if self._record is None else self._record.counts

    @property
    def result(self) -> Path | None:
        """The path of the result csv, with a row for each call; None before the block."""
        return None if self._record is None else self._record.result

    @property
    def details(self) -> Path | None:
        """The path of the details csv, with a row for each result; None before the block."""
        return None if self._record is None else self._record.details

    # -- the block ---------------------------------------------------------------------------------

    def __enter__(self) -> DispatchCheck:
        if self._mode is not None:
            raise UserError("This dispatch check is running already.", "Construct another one, or end its block first.")
        self._comparer = get_call_comparer()
        if self._settings.processes:
            self._pool = WorkerPool(self._settings.processes, self._settings.memory, self._deliver)
        try:
            self._record = CheckRecord(self._settings.dump_path, load_tables())
            self._mode = DispatchMode(self._settings, self._receive, self._record.skip, self._record.count_failure)
            self._mode.__enter__()
        except BaseException:
            self._mode = None
            self._end_pool(is_interrupted=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._mode is None or self._record is None:
            return
        compat.take_dispatch_out(self._mode)
        pending, self._mode = self._mode.pending, None
        is_interrupted = error is not None and not isinstance(error, Exception)
        try:
            self._end_pool(is_interrupted=is_interrupted)
        finally:
            self._record.close()
            self._comparer = None
            self._report(self._record)
        if pending is not None and error is None:
            raise pending

    def _end_pool(self, *, is_interrupted: bool) -> None:
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            if not is_interrupted:
                pool.finish()
        except BaseException:
            is_interrupted = True
            raise
        finally:
            if is_interrupted:
                pool.abandon()

    # -- calls -------------------------------------------------------------------------------------

    def _receive(self, identity: CallIdentity, call: DispatchedCall) -> Exception | None:
        """Compare a call, here or in another process; return the error to raise in the program."""
        if self._pool is not None:
            self._waiting[identity.number] = identity
            if self._pool.put(call):
                return None
            del self._waiting[identity.number]
        if self._record is None or self._comparer is None:
            return None
        finding = self._record.record_call(identity, self._comparer.compare(call))
        raises = finding is not None and self._settings.on_error is OnError.RAISE
        return WrongOperator(finding) if finding is not None and raises else None

    def _deliver(self, number: int, comparison: CallComparison) -> None:
        identity = self._waiting.pop(number)
        if self._record is not None:
            self._record.record_call(identity, comparison)

    def _report(self, record: CheckRecord) -> None:
        findings, counts = record.findings, record.counts
        first = sentences.describe_finding(findings[0]) if findings else sentences.describe_agreement(counts)
        note(make_printable(f"dispatch check: {first}"))
        for line in sentences.format_counts(counts, findings):
            note(make_printable(line))
        if record.failure:
            note(make_printable(f"  the first error: {record.failure}"))
        if compat.may_have_compiled() and compat.count_compiled_frames():
            note(f"  {sentences.COMPILED_NOTE}")
        note(make_printable(f"  wrote {record.result}"))
        note(make_printable(f"  wrote {record.details}"))


# -- record of a dispatch check: its files, findings and counts -------------------------------------


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
