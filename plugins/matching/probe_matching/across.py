"""Two runs of two frameworks, or with names that a person maps, in common words, for matchers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from probe_core.matching.views import Hints, Views
from probe_core.model import Kind, Level, Row, Side, Suspect
from probe_core.model.plan import Plan
from probe_core.model.run import Run
from probe_core.plugins.blame import PluginError, blamed
from probe_core.plugins.manager import Manager
from probe_core.store.names import is_gradient
from probe_matching.mapping import read_mapping
from probe_matching.name_table import Dialect, Hint, NameTable, module_parts
from probe_matching.paths import Renames
from probe_matching.specs import NameRule
from probe_matching.translated import Translated
from probe_matching.user_maps import (
    read_api_mapping,
    read_cell_mapping,
    read_layer_mapping,
    with_entries,
)
from probe_matching.written import write_pairs

ALIGN = "align"
EXACT = "exact"
NO_TABLE = "both runs are of one framework, so its names need no table"
SHOWN = 5
_VALUE = re.compile(r"\.(?:input|output|parameters|kwargs)(?:\..*)?$")


class CommonWords:
    """Shows two runs in common words: those of two frameworks, and those whose names a person maps."""

    def check(self, plan: Plan) -> None:
        """Refuse a plan with a mapping file that cannot be read.

        Raises:
            UserError: Such a file.
        """
        if isinstance(plan.mapping, Path):
            read_mapping(plan.mapping)
        if plan.api_mapping is not None:
            read_api_mapping(plan.api_mapping)
        if plan.cell_mapping is not None:
            read_cell_mapping(plan.cell_mapping)
        if plan.layer_mapping is not None:
            read_layer_mapping(plan.layer_mapping)

    def views(self, plan: Plan, manager: Manager, target: Run, golden: Run) -> Views | None:
        """Return both runs in common words; None for two of one framework whose names nobody maps.

        Raises:
            UserError: A mapping file that cannot be used.
        """
        frameworks = target.header.framework, golden.header.framework
        is_across = frameworks[0] != frameworks[1]
        if not (is_across or plan.api_mapping or plan.cell_mapping or plan.layer_mapping):
            return Views(target, golden, plan.matcher or EXACT, (NO_TABLE,)) if plan.across else None
        table, is_reversed, notes = _table(manager, *frameworks) if is_across else (NameTable(), False, [])
        if plan.api_mapping is not None:
            entries, problems = read_api_mapping(plan.api_mapping)
            table = with_entries(table, entries)
            notes += problems
        renames = _renames(plan, target, notes)
        ours, theirs = (table.target, table.source) if is_reversed else (table.source, table.target)
        both = (
            Translated(target, ours, table.target, renames, "target", is_across=is_across),
            Translated(golden, theirs, table.target, None, "golden", is_across=is_across),
        )
        for run in both:
            if run.inner:
                notes.append(
                    f"{run.inner} backward call(s) of {run.header.framework} functions that call others hold "
                    "what the last of these gave, and no gradient of an input; their outputs are not compared"
                )
        by_place = is_across or plan.layer_mapping is not None
        matcher = plan.matcher or (ALIGN if by_place and plan.mapping is None else EXACT)
        written = partial(write_pairs, plan) if plan.layer_mapping is not None else None
        return Views(*both, matcher, tuple(notes), Differences(both, table.hints), written)


def _table(manager: Manager, target: str, golden: str) -> tuple[NameTable, bool, list[str]]:
    """The built-in table of two frameworks, and whether the target speaks the words of the table's target."""
    notes = [f"the target is of {target} and the golden of {golden}"]
    for item in manager.contributions("name_rules"):
        rule = item.spec
        assert isinstance(rule, NameRule)
        if {rule.source, rule.target} == {target, golden}:
            try:
                with blamed(rule.title, rule.origin):
                    table = _sound(rule.make())
            except PluginError as error:
                notes.append(f"{error.what} Its names are not used. {error.fix}")
                continue
            notes[0] += f"; calls are paired by the names in {rule.name}"
            return table, rule.target == target, notes
    notes[0] += ", and no plugin knows the names of both; equal names are paired"
    return NameTable(), False, notes


def _sound(table: Any) -> NameTable:
    """Return what a name rule made, if it is a table."""
    if not isinstance(table, NameTable):
        raise TypeError(f"it must make a NameTable, not {type(table).__name__}")
    for side in (table.source, table.target):
        if not isinstance(side, Dialect):
            raise TypeError(f"a NameTable holds a Dialect of each framework, not {type(side).__name__}")
    return table


def _renames(plan: Plan, target: Run, notes: list[str]) -> Renames | None:
    cells = read_cell_mapping(plan.cell_mapping) if plan.cell_mapping else {}
    layers = read_layer_mapping(plan.layer_mapping) if plan.layer_mapping else {}
    if not cells and not layers:
        return None
    names = [*target.names(), *target.construct.modules()]
    renames = Renames(names, cells, layers)
    for name in names:
        parts = module_parts(name)
        if parts is not None:
            renames(*parts[:2])
    known = {*cells, *(child for children in layers.values() for child in children)}
    unused = sorted(known - renames.used)
    if unused:
        some = ", ".join(unused[:SHOWN])
        notes.append(f"the mapping names {len(unused)} module(s) that the target does not have: {some}")
    return renames


class Differences(Hints):
    """Finds what is known of two frameworks' differences as the rows of each op pass by."""

    def __init__(self, views: Sequence[Translated], hints: Sequence[Hint]) -> None:
        self._views = views
        self.explaining: list[str] = []
        self._by_name: dict[str, list[Hint]] = {}
        for hint in hints:
            for name in hint.names:
                self._by_name.setdefault(name, []).append(hint)

    def of(self, op: str, rows: Sequence[Row]) -> list[str]:
        """What is to be told because of these rows, each once."""
        if not self._by_name:
            return []
        matched = [row for row in rows if row.pair.matched]
        known = [hint for name in self._names(op, matched) for hint in self._by_name.get(name, ())]
        return self._told([hint for hint in known if not hint.differs or _is_own_doing(op, matched)])

    def of_suspects(self, suspects: Sequence[Suspect]) -> list[str]:
        """What is to be told because forward calls are suspect, be it that no row of theirs fails."""
        names: set[str] = set()
        for suspect in suspects if self._by_name else ():
            if "forward" in suspect.op.split("."):
                parts = [found for key in (suspect.op, suspect.module) if (found := module_parts(key))]
                names |= {self._views[0].word(suspect.op), *(part[1] for part in parts)}
        return self._told([hint for name in sorted(names) for hint in self._by_name.get(name, ())])

    def _told(self, told: Sequence[Hint]) -> list[str]:
        """The texts, which are not told again."""
        if not told:
            return []
        for hints in self._by_name.values():
            hints[:] = [hint for hint in hints if hint not in told]
        self.explaining += dict.fromkeys(hint.text for hint in told if hint.differs)
        return list(dict.fromkeys(hint.text for hint in told))

    def _names(self, op: str, matched: Sequence[Row]) -> set[str]:
        """What both calls are called, in their own words and in common ones."""
        if not matched:
            return set()
        golden = next(row.pair.golden.name for row in matched if row.pair.golden is not None)
        keys = (op, _VALUE.sub("", golden))
        classes = {parts[1] for key in keys if (parts := module_parts(key))}
        return classes | {view.word(key) for view, key in zip(self._views, keys)}


def _is_own_doing(op: str, matched: Sequence[Row]) -> bool:
    """True for a call that gives out something else though it took in the same tensors."""
    bad = [row for row in matched if row.verdict.level is Level.ERROR]
    took_in_bad = any(row.pair.side is Side.INPUT and _is_tensor(row) for row in bad)
    return bool(bad) and not took_in_bad and not is_gradient(op)


def _is_tensor(row: Row) -> bool:
    return row.pair.target is not None and row.pair.target.value.kind is Kind.TENSOR
