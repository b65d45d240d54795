"""The result files of one comparison (docs/tables.md#file-names), which appear only when they are complete."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from probe_core.files.atomic import (
    AtomicFile,
    create_write_error,
    make_directory,
    refuse_link,
    remove_leftovers,
    remove_private_directories,
    write_atomically,
)
from probe_core.model import Advice, Cell, Mode
from probe_core.model.answers import Answer
from probe_core.model.batches import RowBatch
from probe_core.model.plan import DEFAULT_FORMATS, Plan
from probe_core.model.report import Report, ReportDraft
from probe_core.plugins.blame import create_plugin_error
from probe_core.plugins.manager import Manager
from probe_core.plugins.protocols import OpenComparison, ResultFiles
from probe_core.plugins.specs import ReporterSpec
from probe_core.safe_text import escape_invisible
from probe_core.store.layout import RunPair
from probe_reporters.checks import MeasurementCheck, MetricCheck
from probe_reporters.highlighting import create_highlighter_chain, find_highlighter_metrics
from probe_reporters.protocols import AnswerWriter, BatchTableWriter, PageReporter, Reporter, TypedTableReporter
from probe_reporters.reason_texts import ReasonTexts
from probe_reporters.table import Table
from probe_reporters.time_stamps import claim_time_stamp


@dataclass(frozen=True, slots=True)
class _Sink:
    """A result file that is being written row by row.

    Attributes:
        writer: A ``TableWriter``, or an ``AnswerWriter`` if the spec has answers.
    """

    spec: ReporterSpec
    reporter: Reporter
    file: AtomicFile
    writer: Any

    def write(self, batch: RowBatch, table: Table, draft: ReportDraft) -> None:
        """Append the rows of a batch."""
        colors = {line: mark.colour for line, mark in batch.marks.items()}
        for line, cells in enumerate(table.iterate_rows(batch, all_digits=self.spec.all_digits)):
            self.writer.write(cells, colors.get(line))


class _BatchSink(_Sink):
    """A result file that is being written batch by batch, by a ``BatchTableWriter``."""

    __slots__ = ()

    def write(self, batch: RowBatch, table: Table, draft: ReportDraft) -> None:
        """Append the rows of a batch."""
        self.writer.write_batch(table.create_columns(batch, all_digits=self.spec.all_digits), batch)


class _PageSink(_Sink):
    """A page that is being written, by a ``PageWriter``."""

    __slots__ = ()

    def write(self, batch: RowBatch, table: Table, draft: ReportDraft) -> None:
        """Append the rows of a batch; the writer receives each row before its cells."""
        colors = {line: mark.colour for line, mark in batch.marks.items()}
        cells = table.iterate_rows(batch, all_digits=self.spec.all_digits)
        for number, (_, rows) in enumerate(batch.all_rows()):
            op = batch.op(number)
            for line, row in zip(batch.lines(number), rows):
                self.writer.look(draft, op, row)
                self.writer.write(next(cells), colors.get(line))


def write_table(
    reporter: Reporter,
    path: Path,
    headers: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    answer: Answer | None = None,
) -> None:
    """Write a table of a few rows to ``path``, and close the file even if writing fails.

    An answer is shown next to the table; only reporters with ``ReporterSpec.answers`` accept one.

    Raises:
        OSError: The file cannot be written, for example because the disk is full.
    """
    writer = reporter.open(path, headers, len(rows))
    try:
        for row in rows:
            writer.write(row, None)
        if answer is not None:
            cast(AnswerWriter, writer).answer(answer)
        writer.close()
    except BaseException:
        with suppress(OSError):
            writer.abandon()
        raise


class TableOutput:
    """Output of comparisons as tables."""

    @contextmanager
    def reserve_time_stamp(self, plan: Plan, parts: Set[str], *, is_resumed: bool = False) -> Iterator[str]:
        """Reserve the plan's time stamp, or the next free one, and remove what killed commands left."""
        with claim_time_stamp(plan.output, plan.time_stamp, parts, is_resumed=is_resumed) as time_stamp:
            remove_private_directories()
            for part in {"", *parts}:
                if part:
                    refuse_link(plan.output / part)
                remove_leftovers(plan.output / part)
            yield time_stamp

    def find_metrics(self, plan: Plan, manager: Manager, mode: Mode) -> Sequence[str]:
        """Return the metrics that highlighters need in addition to those of the table."""
        return find_highlighter_metrics(plan, manager, mode)

    def create_table(self, opened: OpenComparison) -> Table:
        """Return the table of the mode of two runs, with a column for each further metric and policy."""
        columns, texts = opened.columns(opened.mode), ReasonTexts.load(opened.manager)
        return Table(
            opened.mode, columns, texts,
            stack=opened.has_stacks, extra=opened.added_columns, labels=opened.label_policies,
        )  # fmt: skip

    def create_check(self, opened: OpenComparison) -> MeasurementCheck:
        """Return an object that checks whether rows are measured, and whether each metric measures any."""
        return MeasurementCheck(opened.mode, ReasonTexts.load(opened.manager), [*map(MetricCheck, opened.metric_uses)])

    def open_files(self, opened: OpenComparison, pair: RunPair, draft: ReportDraft) -> ResultFiles:
        """Return the result files of a comparison, one for each format of the plan."""
        return OutputFiles(opened, pair, self.create_table(opened), draft)


class OutputFiles(ResultFiles):
    """The result files of one comparison, one for each format of the plan."""

    def __init__(self, opened: OpenComparison, pair: RunPair, table: Table, draft: ReportDraft) -> None:
        super().__init__()
        plan, manager, is_debug = opened.plan, opened.manager, opened.is_debug
        self._directory = plan.output / pair.part
        self._time_stamp = plan.time_stamp
        self._manager, self._advises = manager, plan.advise
        self._file_prefix = "debug_" if pair.one_of_two else ""
        self._table = table
        self._draft = draft
        self._label = f"_{pair.label}" if pair.label else ""
        self._highlighters = create_highlighter_chain(opened, draft)
        self._sinks: list[_Sink] = []
        is_omitted = is_debug and bool(plan.answers)  # -da writes no tables of calls; variables get the default formats
        formats = plan.formats or (DEFAULT_FORMATS if is_omitted else ())
        specs = [manager.find("reporters", name, ReporterSpec) for name in formats]
        make_directory(self._directory)
        stem = f"{'debug_' if is_debug else ''}compare_result{self._label}_{plan.time_stamp}"
        try:
            for spec in specs:
                self._open_sink(spec, self._directory / f"{stem}{spec.suffix}", opened, pair)
        except OSError as error:
            self.discard()
            raise create_write_error("The result", self._directory, error) from None
        except BaseException:
            self.discard()
            raise

    def _open_sink(self, spec: ReporterSpec, path: Path, opened: OpenComparison, pair: RunPair) -> None:
        """Begin the file of a format, or note that its plugin failed."""
        file: AtomicFile | None = None
        table, row_count = self._table, self._draft.row_count
        try:
            reporter: Reporter = spec.make()
            file = AtomicFile(path)
            writer: object
            if isinstance(reporter, TypedTableReporter):
                writer = reporter.open_table(file.temporary, table, pair)
            elif isinstance(reporter, PageReporter):
                writer = reporter.open_page(file.temporary, table.headers, opened)
            else:
                writer = reporter.open(file.temporary, table.headers, row_count)
        except BaseException as error:
            if file is not None:
                file.discard()
            self._note_failure(spec, error)
        else:
            sink_type = _PageSink if spec.page else _Sink
            sink_type = _BatchSink if isinstance(writer, BatchTableWriter) else sink_type
            self._sinks.append(sink_type(spec, reporter, file, writer))

    def line(self, row: int) -> str:
        """Return the position of a row, counted from 0, in the first file; empty if there is no file."""
        while self._sinks:
            try:
                return self._sinks[0].reporter.line(row, self._draft.row_count)
            except BaseException as error:
                self._drop(self._sinks[0], error)
        return ""

    def write(self, batch: RowBatch) -> None:
        """Mark the rows of a batch, and append them to all files."""
        self._highlighters.apply(batch)
        try:
            for sink in [*self._sinks]:
                try:
                    sink.write(batch, self._table, self._draft)
                except BaseException as error:
                    self._drop(sink, error)
        except OSError as error:
            raise create_write_error("The result", self._directory, error) from None

    def close(self, answer: Answer | None, *, interrupted: bool = False) -> list[Path]:
        """Complete the files, with the answer in files that hold answers; ``interrupted`` changes their names."""
        finished: list[Path] = []
        try:
            for sink in self._sinks:
                try:
                    if answer is not None and sink.spec.answers:
                        sink.writer.answer(answer)
                    sink.writer.close()
                except BaseException as error:
                    self._drop(sink, error)
            for sink in self._sinks:
                path = sink.file.path
                if interrupted:
                    path = path.with_name(f"{path.stem}_interrupted{path.suffix}")
                finished.append(sink.file.commit(path))
                if not interrupted:  # remove the file of an interrupted run that this one resumed
                    path.with_name(f"{path.stem}_interrupted{path.suffix}").unlink(missing_ok=True)
        except OSError as error:
            self.discard()
            raise create_write_error("The result", self._directory, error) from None
        return finished

    def discard(self) -> None:
        """Remove all files."""
        for sink in self._sinks:
            self._abandon(sink)

    def _abandon(self, sink: _Sink) -> None:
        try:
            with suppress(OSError):  # a full disk was reported before
                sink.writer.abandon()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a third-party writer may raise anything
            if create_plugin_error(error, sink.spec.title, sink.spec.origin) is None:
                raise
        finally:
            sink.file.discard()

    def _drop(self, sink: _Sink, error: BaseException) -> None:
        """Remove the file whose reporter raised ``error``, and keep writing the others."""
        self._note_failure(sink.spec, error)
        self._sinks = [candidate for candidate in self._sinks if candidate is not sink]
        self._abandon(sink)

    def _note_failure(self, spec: ReporterSpec, error: BaseException) -> None:
        """Note that a plugin failed to write its file; raise ``error`` if no plugin caused it."""
        plugin_error = None if isinstance(error, OSError) else create_plugin_error(error, spec.title, spec.origin)
        if plugin_error is None:
            raise error
        self.faults.append(f"{plugin_error.what} Its file is not written. {plugin_error.fix}")

    def complete(self, report: Report, explanations: Sequence[str]) -> Report:
        """Write the advice of the first plugin that returns one to a file, and return the report with it."""
        if not self._advises or report.interrupted:
            return report
        advice = next(iter(self._manager.notify("probe_advise", returns=Advice, report=report)), None)
        if advice is None:
            return report
        differences = [f"Known difference: {text}." for text in explanations]
        advice = replace(advice, text="\n".join([advice.text, *differences]))
        return replace(report, advice=advice, files=(*report.files, self._write_advice(advice)))

    def _write_advice(self, advice: Advice) -> Path:
        """Write the advisor's file: the line and name of the row, and the advice."""
        path = self._directory / f"{self._file_prefix}advisor{self._label}_{self._time_stamp}.txt"
        where = f"Line: {escape_invisible(str(advice.line))}\nSuspect Nodes: {escape_invisible(advice.node)}\n"
        text = where + escape_invisible(f"Expert Advice: {advice.text}\n", keep="\n")
        with write_atomically(path, "The result") as temporary:
            temporary.write_text(text, "utf-8")
        return path
