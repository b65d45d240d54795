"""Two runs opened and matched, and the rows of their ops: measured and judged as they are asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import groupby
from math import prod
from operator import itemgetter
from pathlib import Path

from probe_core.errors import UserError, nearest
from probe_core.files.mapped import Mapped
from probe_core.flow.ahead import opened_ahead
from probe_core.flow.opening import open_runs
from probe_core.flow.table import LARGEST_SHEET
from probe_core.flow.tools import Tools
from probe_core.flow.viewing import check_views, views
from probe_core.matching.matching import Matching, Region, RowOrder
from probe_core.model import (
    Advice,
    Column,
    How,
    Mode,
    Op,
    Pair,
    Reason,
    Row,
    Suspect,
)
from probe_core.model.dtypes import same
from probe_core.model.measure import NOTHING_MAPPED, OpenPair
from probe_core.model.plan import Plan, StackMode
from probe_core.model.run import Run
from probe_core.model.watched import WatchedMetric
from probe_core.plugins.blame import PluginError, blamed
from probe_core.plugins.manager import Manager
from probe_core.plugins.protocols import Matcher
from probe_core.plugins.specs import (
    AnswerSpec,
    MatcherSpec,
    MetricSpec,
    PolicySpec,
    ReporterSpec,
    TableSpec,
)
from probe_core.store.layout import RunPair
from probe_core.store.names import is_gradient, without_count

BY_FILE = "mapping"
"""The matcher by a mapping file (``-dm``)."""
UNREADABLE_KEPT = 5
UNCHECKED = 16
"""Pairs of an op whose mapped files are checked together; they stay open until then."""
REGION_SHOWN = 6
"""Calls of a region that are named."""
ROW_COST = 16_384
"""Elements that take as long to measure as all else that a row takes."""


def check_plan(plan: Plan, manager: Manager) -> None:
    """Refuse a plan that no two runs can be compared by, before anything is read.

    Raises:
        UserError: A mapping file that cannot be read; a format, a matcher or a metric that there is not.
    """
    for kind, names, spec in (
        ("reporters", plan.formats, ReporterSpec),
        ("matchers", _matchers(plan), MatcherSpec),
        ("metrics", plan.metrics, MetricSpec),
        ("policies", plan.policies, PolicySpec),
    ):
        for name in names:
            manager.find(kind, name, spec)
    check_views(plan, manager)


def _matchers(plan: Plan) -> list[str]:
    """Return the matchers that a plan needs."""
    names = [plan.matcher] if plan.matcher else []
    return names if plan.mapping is None else [*names, BY_FILE]


class Comparison:
    """Two opened runs, matched, with the metrics and the policy that fit what they hold."""

    def __init__(self, plan: Plan, manager: Manager, target: Path, golden: Path) -> None:
        self.plan = plan
        self._manager = manager
        self.notes: list[str] = []
        self.unreadable: list[str] = []
        self.unreadable_count = 0
        self.target, self.golden = open_runs(plan, manager, target, golden)
        for side, run in (("target", self.target), ("golden", self.golden)):
            if run.header.unfinished:
                self.notes.append(
                    f"the {side} is unfinished, and calls after its last record are missing: "
                    f"{run.header.unfinished}"
                )
        self.mode = self.target.mode
        self.is_debug = self.target.is_debug
        answers = () if self.is_debug else plan.answers  # nothing is asked of variables saved on their own
        asked = [manager.find("answers", name, AnswerSpec) for name in answers]
        self._tools = Tools(plan, manager, self.mode, asked, partial(_blame, self.notes))
        seen = views(plan, manager, self.target, self.golden)
        self.notes += seen.notes
        self._hints, self._write_pairs = seen.hints, seen.write_pairs
        self._matcher = seen.matcher
        name = seen.matcher if plan.mapping is None else BY_FILE
        spec = manager.find("matchers", name, MatcherSpec)
        matcher: Matcher = spec.make()
        with blamed(spec.title, spec.origin):
            matching = matcher.match(seen.target, seen.golden, replace(plan, matcher=seen.matcher))
            if not isinstance(matching, Matching):
                raise TypeError(f"match must return a Matching, not {type(matching).__name__}")
        if not matching.matched:
            raise _nothing_matched(self.target, self.golden, seen.notes)
        self.matching = matching
        self._order = RowOrder(matching, self.target, self.golden)
        self.row_count = self._order.row_count
        self.regions = [_region(region, self.target, self.golden) for region in matching.regions]
        self._shifted = self._find_shifted()
        self.highlights = self._can_highlight()
        self.has_stacks = self._use_stacks()
        self.table = self._tools.table(self.has_stacks)
        self.shown: Sequence[tuple[str, str]] = self._tools.shown

    def write_pairs(self, pair: RunPair) -> Sequence[Path]:
        """Write what was paired with what, where the plan asks for it; the files."""
        write = self._write_pairs
        return () if write is None else write(pair, self.matching, self.target, self.golden)

    def ops(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[str, list[Row]]]:
        """The rows of each op in the order of the table; of the target, from ``start`` to before ``stop``."""
        stop = len(self.target) if stop is None else stop
        ahead = opened_ahead(self._opened(start, stop), self._tools.ahead)
        for (_, op), opened in groupby(ahead, key=itemgetter(0)):
            yield op, self._rows(op, (pair for _, pair in opened if pair is not None))

    def chunks(self, count: int) -> list[tuple[int, int]]:
        """The target's ops cut into some ``count`` stretches of equal cost: first, and behind the last."""
        costs = [
            sum(ROW_COST + prod(slot.value.shape or ()) for slot in record.slots)
            for record in self.target.records()
        ]
        share = sum(costs) / max(1, count)
        chunks: list[tuple[int, int]] = []
        start, cost = 0, 0
        for number, own in enumerate(costs):
            cost += own
            if cost >= share or number == len(costs) - 1:
                chunks.append((start, number + 1))
                start, cost = number + 1, 0
        return chunks

    def look(self, op: str, rows: Sequence[Row]) -> None:
        """Note what is known of the frameworks where it may explain these rows."""
        self.notes += self._hints.of(op, rows)

    def explain(self, suspects: Sequence[Suspect]) -> None:
        """Note what is known of the frameworks where it may explain that calls are suspect."""
        self.notes += self._hints.of_suspects(suspects)

    def advised(self, advice: Advice) -> Advice:
        """Advice, with what is known of the frameworks where calls differ."""
        more = [f"Known difference: {text}." for text in self._hints.explaining]
        return replace(advice, text="\n".join([advice.text, *more]))

    def columns(self, mode: Mode) -> Sequence[Column]:
        """The columns of the table of ``mode``."""
        made: Sequence[Column] = self._manager.find("tables", mode.value, TableSpec).make()
        return made

    def watched_metrics(self) -> list[WatchedMetric]:
        """The metrics, to see whether each gives a number on any row."""
        return self._tools.watched()

    def take_unreadable(self, lines: Sequence[str], count: int) -> None:
        """Note tensor files that someone else could not read for us."""
        self.unreadable_count += count
        self.unreadable += lines[: UNREADABLE_KEPT - len(self.unreadable)]

    def take_notes(self, lines: Sequence[str]) -> None:
        """Note what someone else found out who measured for us."""
        self.notes += [line for line in lines if line not in self.notes]

    def describe(self, op: str, rank: int) -> Op:
        """What judges and the report want to know of an op."""
        return Op(op, self.target.construct.ancestors(op), without_count(op) in self._shifted, rank)

    def close(self) -> None:
        """Let both runs go."""
        self.target.close()
        self.golden.close()

    # -- one op ------------------------------------------------------------------------------

    def _opened(self, start: int, stop: int) -> Iterator[tuple[tuple[int, str], OpenPair | None]]:
        """All pairs, opened, each with the number and the name of its op; None for an op without rows."""
        for number, op in enumerate(self._order.ops(start, stop)):
            label = number, op.op
            for pair in op.pairs:
                yield label, OpenPair(pair, self.mode, self.target, self.golden, self._tools.names)
            if not op.pairs:
                yield label, None

    def _rows(self, op: str, pairs: Iterable[OpenPair]) -> list[Row]:
        stack = None if is_gradient(op) else self.target.stack_of(op)
        rows: list[Row] = []
        mapped: list[tuple[int, OpenPair]] = []
        for pair in pairs:
            own = stack if pair.pair.target is not None else None
            if pair.mappings != NOTHING_MAPPED:
                mapped.append((len(rows), pair))
            rows.append(self._row(op, pair, own))
            if len(mapped) == UNCHECKED:
                self._check_files(op, rows, mapped)
            stack = None if own is not None else stack
        if mapped:
            self._check_files(op, rows, mapped)
        return rows

    def blame(self, error: PluginError, means: str) -> None:
        """Note once that a plugin failed, and what that means for the result."""
        _blame(self.notes, error, means)

    def _row(self, op: str, opened: OpenPair, stack: tuple[str, ...] | None) -> Row:
        try:
            measurements = self._tools.measure(opened)
            verdict, further = self._tools.judge(opened, measurements)
        finally:
            opened.close()
        if opened.unreadable is not None and not opened.unreadable.missing:
            self.take_unreadable([str(opened.unreadable)], 1)
        return Row(opened.pair, op, measurements, verdict, _notes(opened.pair), None, stack, further)

    def _check_files(self, op: str, rows: list[Row], measured: list[tuple[int, OpenPair]]) -> None:
        """Make the rows again whose mapped files were cut off or changed meanwhile, as unreadable ones."""
        problems: dict[Mapped | None, str] = {}
        for memory in {memory for _, pair in measured for memory in pair.mappings}:
            problem = None if memory is None else memory.problem()
            if problem is not None:
                problems[memory] = problem
        for place, pair in measured:
            if pair.spoil(problems):
                rows[place] = self._row(op, pair, rows[place].stack)
        measured.clear()

    # -- setting up --------------------------------------------------------------------------

    def _can_highlight(self) -> bool:
        if not self.plan.highlight or self.mode is Mode.MD5 or self.is_debug:
            return False
        if self.row_count > LARGEST_SHEET:
            self.notes.append(f"{self.row_count:,} rows do not fit one sheet, so nothing is highlighted.")
            return False
        return True

    def _find_shifted(self) -> frozenset[str]:
        """The APIs that one run calls more often, where pairs go by the number of the call."""
        if self._matcher != "exact" or self.is_debug:
            return frozenset()
        ours, theirs = (
            Counter(without_count(name) for name in run.names() if not name.startswith("Module."))
            for run in (self.target, self.golden)
        )
        shifted = {name for name in ours.keys() & theirs.keys() if ours[name] != theirs[name]}
        if shifted:
            first = next(name for name in map(without_count, self.target.names()) if name in shifted)
            self.notes.append(
                f"{len(shifted)} API(s) are called more often in one run, {first} first; their rows may be "
                "mispaired and are no suspects. -f pairs calls in order, --match align by what they are."
            )
        return frozenset(shifted)

    def _use_stacks(self) -> bool:
        path = self.plan.stack_path or self.target.stack_path
        if self.is_debug or self.plan.stack is StackMode.HIDE:
            return False
        if path is None or (self.plan.stack is StackMode.AUTO and not path.is_file()):
            return False
        self.target.use_stacks(path)
        return True


def _region(region: Region, target: Run, golden: Run) -> str:
    """What a person is told of a stretch of calls without partners."""
    ours, theirs = (
        _some([run.names()[index] for index in side])
        for run, side in ((target, region.target), (golden, region.golden))
    )
    if ours and theirs:
        return f"changed: {ours} for {theirs}"
    return f"inserted: {ours}" if ours else f"missing: {theirs}"


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:REGION_SHOWN])
    return shown if len(names) <= REGION_SHOWN else f"{shown} and {len(names) - REGION_SHOWN} more"


def _blame(notes: list[str], error: PluginError, means: str) -> None:
    """Note once that a plugin failed; a function, so that a comparison that cannot be made goes at once."""
    note = f"{error.what} {means} {error.fix}"
    if note not in notes:
        notes.append(note)


def _notes(pair: Pair) -> tuple[Reason, ...]:
    """What the tables say of a pair besides its measurements (decisions D2, D7, D13, D20)."""
    target, golden = pair.target, pair.golden
    region = (Reason("region"),) if pair.how is How.REGION else ()
    if target is None:
        return (Reason("no_target"), *region)
    if golden is None:
        return (Reason("no_golden"), *region)
    notes: list[Reason] = [*region]
    ours, theirs = target.value, golden.value
    if pair.requires_grad_differs:
        notes.append(Reason("requires_grad"))
    if not same(ours.dtype, theirs.dtype) and ours.extent == theirs.extent:
        notes.append(Reason("dtype"))
    if pair.scalars_differ:
        notes.append(Reason("scalar_differs"))
    if pair.how is How.FUZZY and target.name != golden.name:
        notes.append(Reason("fuzzy"))
    return tuple(notes)


def _nothing_matched(target: Run, golden: Run, notes: Sequence[str]) -> UserError:
    what = "No row of the target has a partner in the golden."
    if notes and target.header.framework != golden.header.framework:
        first, *more = (f"{note[0].upper()}{note[1:].rstrip('.')}." for note in notes)
        return UserError(what, first, more)
    lines: list[str] = []
    goldens = golden.names()
    for key in target.names()[:5]:
        close = nearest(key, goldens, 1)
        lines.append(f"{key}  (nearest in the golden: {close[0] if close else 'none'})")
    with suppress(IndexError):
        lines.append(f"the golden begins with {goldens[0]}")
    return UserError(
        what,
        "Check that both runs are of one model and level; -f pairs calls whose counts differ, "
        "-dm pairs names by a file. The target begins with:",
        lines,
    )
