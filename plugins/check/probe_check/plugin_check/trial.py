"""Trials of contributions: each contribution is used in comparisons of two small runs.

A contribution that can be created may still fail in every comparison, for example because a method is missing or
has other parameters.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from probe_check.plugin_check.trial_runs import FRAMEWORK, GOLDEN, TARGET, TrialReader, record_file
from probe_core.flow.comparison import RunComparison
from probe_core.flow.judging import judge_batches
from probe_core.model import Advice, Column, Level, Mode, Row, Verdict
from probe_core.model.batches import RowBatch
from probe_core.model.plan import Plan
from probe_core.model.report import ReportDraft, RowCheck
from probe_core.plugins.blame import PluginError
from probe_core.plugins.manager import Contribution, Manager, Plugin
from probe_core.plugins.protocols import ResultFiles
from probe_core.plugins.specs import OutputSpec, PolicySpec, ReaderSpec, Spec, TableSpec
from probe_core.store.layout import RunPair

ALWAYS_USED_KINDS = ("judges", "finders", "highlighters", "views")
"""Kinds whose contributions are all used by every comparison. A trial uses only the tried contribution."""


class TrialError(Exception):
    """A failure that is not an exception of the contribution; its text is a sentence."""


class TrialFault(TrialError):
    """A failure whose text names the contribution and its distribution."""


class TrialPolicy:
    """A policy for trials of plugins without the tables of ``probe-metrics``."""

    def judge(self, pair: Any, measurements: Any) -> Verdict:
        """Let each pair pass."""
        return Verdict(Level.PASS, "Yes")


class TrialManager(Manager):
    """The plugins of a trial: the tried contribution, and all others that a comparison requires."""

    def __init__(self, manager: Manager, kind: str, tried: Spec) -> None:
        self.__dict__.update(vars(manager))
        self._kind, self._tried = kind, tried

    def contributions(self, kind: str) -> list[Contribution]:
        """Return the contributions of a kind in the trial, one per name."""
        trial_plugin = Plugin("trial", "trial", "")
        tried = [Contribution(self._tried, trial_plugin)] if kind == self._kind else []
        if kind == "readers":
            return [Contribution(ReaderSpec(FRAMEWORK, "trial", TrialReader, framework=FRAMEWORK), trial_plugin)]
        if kind in ALWAYS_USED_KINDS:
            return tried
        further = {
            "policies": [Contribution(PolicySpec(FRAMEWORK, "trial", TrialPolicy), trial_plugin)],
            "tables": [
                Contribution(TableSpec(mode.value, "trial", _create_columns, policy=FRAMEWORK), trial_plugin)
                for mode in Mode
            ],
        }
        named: dict[str, Contribution] = {}
        installed = super().contributions(kind)
        if kind in ("tables", "outputs"):  # every comparison uses them, so a broken one would fail all trials
            installed = [item for item in installed if item.spec.origin.is_of_probe]
        for item in chain(tried, installed, further.get(kind, ())):
            named.setdefault(item.spec.name, item)
        return list(named.values())

    def call(self, hook: str, **arguments: Any) -> Iterator[tuple[Plugin, BaseException | None]]:
        """Call a hook of each plugin, and yield the plugin with the exception that it raised, if any."""
        for plugin, implementation in self.find_implementations(hook):
            error: BaseException | None = None
            try:
                answer = implementation.function(**{name: arguments[name] for name in implementation.argnames})
                if hook == "probe_advise" and not isinstance(answer, (Advice, type(None))):
                    raise TypeError(f"must return Advice or None, not {type(answer).__name__}")
            except KeyboardInterrupt:
                raise
            except BaseException as raised:  # a plugin may raise anything, even SystemExit
                error = raised
            yield plugin, error


def _create_columns() -> list[Column]:
    return [Column("Name", "target.name"), Column("Err_message", "row.message")]


@dataclass(frozen=True, slots=True)
class Trial:
    """The trial of one contribution.

    Attributes:
        spec: The contribution.
        manager: The plugins that take part.
        directory: A directory for files.
    """

    spec: Any
    manager: TrialManager
    directory: Path

    def create_plan(self, mode: Mode, **fields: Any) -> Plan:
        """Return the plan of a comparison of the trial runs of a mode, without files."""
        pair = self.create_pair(mode)
        output = self.directory / f"out_{mode.value}"
        plain = {"formats": (), "advise": False, "answer": False, "jobs": 1}
        return Plan(pair.target, pair.golden, output, "0", **{**plain, **fields})

    def create_pair(self, mode: Mode) -> RunPair:
        """Return the record files of the trial runs of a mode."""
        target, golden = (record_file(self.directory, mode, side) for side in (TARGET, GOLDEN))
        return RunPair(target, golden)

    def iterate_batches(self, comparison: RunComparison) -> Iterator[RowBatch]:
        """Yield the judged batches of a comparison, after the cells of their rows are created.

        Raises:
            PluginError: A judge or highlighter failed.
        """
        opened = replace(comparison.opened, note_failure=raise_error)
        output = self.manager.make_first("outputs", OutputSpec)
        pair = RunPair(opened.target.path, opened.golden.path)
        draft = ReportDraft("", pair.target, pair.golden, opened.mode, comparison.runs.row_count, RowCheck())
        files = ResultFiles() if output is None else output.open_files(opened, pair, draft)
        table = None if output is None else output.create_table(opened)
        try:
            for batch in judge_batches(comparison.batches(), self.manager, raise_error):
                files.write(batch)
                deque(table.iterate_rows(batch) if table else (), 0)
                _ = [(mark.colour, tuple(mark.reasons)) for mark in batch.marks.values()]
                yield batch
        finally:
            files.discard()

    def compare(self, mode: Mode, **fields: Any) -> list[Row]:
        """Return all rows of a comparison."""
        plan = self.create_plan(mode, **fields)
        pair = self.create_pair(mode)
        with closing(RunComparison.open(plan, self.manager, pair.target, pair.golden)) as comparison:
            return [row for batch in self.iterate_batches(comparison) for _, rows in batch.all_rows() for row in rows]


def raise_error(error: PluginError, consequence: str) -> None:
    """Raise the error of a plugin that failed."""
    raise error
