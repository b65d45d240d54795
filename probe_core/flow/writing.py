"""The files of one comparison: named as the seed names them, complete or not there at all."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from probe_core.errors import UserError
from probe_core.files.atomic import AtomicFile, make_directory, not_written
from probe_core.flow.table import Table
from probe_core.model import Advice, Cell, Row
from probe_core.model.plan import DEFAULT_FORMATS, Plan
from probe_core.plugins.blame import fault
from probe_core.plugins.manager import Manager
from probe_core.plugins.protocols import Reporter, TableWriter
from probe_core.plugins.specs import ReporterSpec
from probe_core.safe_text import safe
from probe_core.store.layout import RunPair


@dataclass(frozen=True, slots=True)
class _Sink:
    """A file being written: its reporter, its place on disk, its writer."""

    spec: ReporterSpec
    reporter: Reporter
    file: AtomicFile
    writer: TableWriter


def write_table(
    reporter: Reporter, path: Path, headers: Sequence[str], rows: Sequence[Sequence[Cell]]
) -> None:
    """Write a table of few rows to ``path``; its file is let go whatever happens.

    Raises:
        OSError: The disk takes no more.
    """
    writer = reporter.open(path, headers, len(rows))
    try:
        for row in rows:
            writer.write(row, None)
        writer.close()
    except BaseException:
        with suppress(OSError):
            writer.abandon()
        raise


class Output:
    """Writes rows to every format of the plan."""

    def __init__(
        self, plan: Plan, manager: Manager, pair: RunPair, table: Table, row_count: int, is_debug: bool
    ) -> None:
        self._directory = plan.output / pair.part
        self._time_stamp = plan.time_stamp
        self._sort = "debug_" if pair.one_of_two else ""
        self._table = table
        self._row_count = row_count
        self._label = f"_{pair.label}" if pair.label else ""
        self._sinks: list[_Sink] = []
        self.faults: list[str] = []
        formats = plan.formats or (DEFAULT_FORMATS if is_debug else ())  # -da writes nothing of variables
        specs = [manager.find("reporters", name, ReporterSpec) for name in formats]
        make_directory(self._directory)
        stem = f"{'debug_' if is_debug else ''}compare_result{self._label}_{plan.time_stamp}"
        try:
            for spec in specs:
                file: AtomicFile | None = None
                try:
                    reporter: Reporter = spec.make()
                    file = AtomicFile(self._directory / f"{stem}{spec.suffix}")
                    writer = reporter.open(file.temporary, table.headers, row_count)
                except BaseException as error:
                    if file is not None:
                        file.discard()
                    self._lose(spec, error)
                else:
                    self._sinks.append(_Sink(spec, reporter, file, writer))
        except OSError as error:
            self.discard()
            raise self._failed(error) from None
        except BaseException:
            self.discard()
            raise

    def line(self, row: int) -> str:
        """Return where the row with 0-based number ``row`` is in the first file; empty without a file."""
        while self._sinks:
            try:
                return self._sinks[0].reporter.line(row, self._row_count)
            except BaseException as error:
                self._drop(self._sinks[0], error)
        return ""

    def write(self, rows: Sequence[Row]) -> None:
        """Append rows to every file."""
        try:
            for row in rows:
                colour = row.mark.colour if row.mark else None
                cells: dict[bool, Sequence[Cell]] = {}
                for sink in self._sinks:
                    all_digits = sink.spec.all_digits
                    if all_digits not in cells:
                        cells[all_digits] = self._table.cells(row, all_digits=all_digits)
                    try:
                        sink.writer.write(cells[all_digits], colour)
                    except BaseException as error:
                        self._drop(sink, error)
        except OSError as error:
            raise self._failed(error) from None

    def close(self, *, interrupted: bool = False) -> list[Path]:
        """Complete the files; those of an interrupted comparison say so in their names."""
        finished: list[Path] = []
        try:
            for sink in self._sinks:
                try:
                    sink.writer.close()
                except BaseException as error:
                    self._drop(sink, error)
            for sink in self._sinks:
                path = sink.file.path
                if interrupted:
                    path = path.with_name(f"{path.stem}_interrupted{path.suffix}")
                finished.append(sink.file.commit(path))
                if not interrupted:  # what an earlier run left of these rows
                    path.with_name(f"{path.stem}_interrupted{path.suffix}").unlink(missing_ok=True)
        except OSError as error:
            self.discard()
            raise self._failed(error) from None
        return finished

    def discard(self) -> None:
        """Leave nothing behind."""
        for sink in self._sinks:
            self._abandon(sink)

    def _abandon(self, sink: _Sink) -> None:
        try:
            with suppress(OSError):  # what a full disk says to that is known already
                sink.writer.abandon()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a stranger's writer, which is let go all the same
            if fault(error, sink.spec.title, sink.spec.origin) is None:
                raise
        finally:
            sink.file.discard()

    def _drop(self, sink: _Sink, error: BaseException) -> None:
        """Go on without a file whose reporter raised ``error``."""
        self._lose(sink.spec, error)
        self._sinks = [one for one in self._sinks if one is not sink]
        self._abandon(sink)

    def _lose(self, spec: ReporterSpec, error: BaseException) -> None:
        """Note that the file of a plugin's reporter is not written.

        Raises:
            BaseException: ``error``, where the plugin is not to blame for it.
        """
        blame = None if isinstance(error, OSError) else fault(error, spec.title, spec.origin)
        if blame is None:
            raise error
        self.faults.append(f"{blame.what} Its file is not written. {blame.fix}")

    def write_advice(self, advice: Advice) -> Path:
        """The advisor's file: where, which row, what to do."""
        file = AtomicFile(self._directory / f"{self._sort}advisor{self._label}_{self._time_stamp}.txt")
        where = f"Line: {safe(str(advice.line))}\nSuspect Nodes: {safe(advice.node)}\n"
        text = where + safe(f"Expert Advice: {advice.text}\n", keep="\n")
        try:
            file.temporary.write_text(text, "utf-8")
        except OSError as error:
            file.discard()
            raise self._failed(error) from None
        return file.commit()

    def _failed(self, error: OSError) -> UserError:
        return not_written("The result", self._directory, error)
