"""``DispatchCheck``, by which a training script compares its operators with the CPU."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any

from probe_precheck import PRECISION, ResultFiles
from probe_recording import note

from probe_core.errors import UserError, printable
from probe_pytorch import compat
from probe_pytorch.dispatch_check import sentences
from probe_pytorch.dispatch_check.comparison import CallComparer, Comparison, tables
from probe_pytorch.dispatch_check.findings import Counts, Finding
from probe_pytorch.dispatch_check.mode import DispatchMode, SeenCall
from probe_pytorch.dispatch_check.operators import Reason
from probe_pytorch.dispatch_check.reference import DispatchedCall
from probe_pytorch.dispatch_check.settings import (
    DEFAULT_MEMORY,
    DEFAULT_PATH,
    OnError,
    parse_settings,
)
from probe_pytorch.process import TorchProcess

MAX_FINDINGS = 1000
"""Number of findings that are kept; later ones are counted only."""


class WrongOperator(RuntimeError):
    """Error of a wrong operator, with ``on_error="raise"``.

    Attributes:
        finding: The finding.
    """

    def __init__(self, finding: Finding) -> None:
        super().__init__(sentences.first_line(finding))
        self.finding = finding


class DispatchCheck:
    """Check of every aten operator of a block against the CPU in higher precision.

    ::

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
        dump_path: str | PathLike[str] = DEFAULT_PATH,
        skip: str | PathLike[str] | Sequence[str] | None = None,
        processes: int = 0,
        memory: int | str = DEFAULT_MEMORY,
        device: Any = None,
        on_error: str = OnError.CONTINUE.value,
    ) -> None:
        self._settings = parse_settings(dump_path, skip, processes, memory, device, on_error)
        self.findings: list[Finding] = []
        self.counts = Counts()
        self.result: Path | None = None
        self.details: Path | None = None
        self._lock = threading.RLock()
        self._failure = ""
        self._files: ResultFiles | None = None
        self._mode: DispatchMode | None = None

    def __enter__(self) -> DispatchCheck:
        if self._mode is not None:
            raise UserError(
                "This check is already running.", "Construct another DispatchCheck for a block inside."
            )
        self._comparer = CallComparer()
        self._open_files()
        self._mode = DispatchMode(self._settings, self._receive, self._skip, self._fail)
        self._compiled = compat.may_have_compiled()
        self._mode.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        mode, self._mode = self._mode, None
        if mode is not None:
            compat.take_dispatch_out(mode)
        if self._files is not None:
            self._files.close()
        self.findings.sort(key=lambda finding: finding.number)
        self._report()

    def _open_files(self) -> None:
        columns = tables()
        label = TorchProcess().label
        directory = self._settings.dump_path / label if label != "rank" else self._settings.dump_path
        stamp = time.strftime("%Y%m%d%H%M%S")
        self._files = ResultFiles.create(directory, stamp, columns.details, "zh", PRECISION, columns)
        self.result, self.details = self._files.result, self._files.details

    # -- calls -------------------------------------------------------------------------------------

    def _receive(self, seen: SeenCall, call: DispatchedCall) -> None:
        self._take(seen, self._comparer.compare(call))

    def _take(self, seen: SeenCall, comparison: Comparison) -> None:
        with self._lock:
            if comparison.result is None:
                self._skip(comparison.reason or Reason.FAILED, seen.overload)
                return
            self.counts.compared += 1
            self.counts.operators[seen.overload] += 1
            if self._files is not None:
                self._files.append(comparison.result)
            if comparison.difference is None:
                return
            self.counts.wrong += 1
            self.counts.wrong_operators[seen.overload] += 1
            finding = Finding(
                seen.number,
                seen.name,
                seen.overload,
                seen.phase,
                comparison.difference,
                seen.origin,
                seen.forward,
            )
            if len(self.findings) < MAX_FINDINGS:
                self.findings.append(finding)

    def _skip(self, reason: Reason, operator: str) -> None:
        with self._lock:
            self.counts.skipped[reason, operator] += 1

    def _fail(self, operator: str, error: Exception) -> None:
        self._skip(Reason.FAILED, operator)
        if not self._failure:
            self._failure = f"{operator}: {type(error).__name__}: {error}"

    def _report(self) -> None:
        first = sentences.first_line(self.findings[0]) if self.findings else sentences.agreement(self.counts)
        note(f"dispatch check: {printable(first)}")
        for line in sentences.count_lines(self.counts, self.findings):
            note(printable(line))
        if self._failure:
            note(printable(f"  the first error in probe: {self._failure}"))
        note(printable(f"  wrote {self.result}"))
        note(printable(f"  wrote {self.details}"))
