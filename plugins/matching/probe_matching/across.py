"""A view of two runs by common names: for two frameworks, or with mapping files of the user."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from probe_core.errors import format_count
from probe_core.matching.views import Hints, Views
from probe_core.model import Kind, Level, Row, Side, Suspect
from probe_core.model.batches import RowBatch
from probe_core.model.plan import Plan
from probe_core.model.run import Run
from probe_core.plugins.blame import PluginError, blame_plugin
from probe_core.plugins.manager import Manager
from probe_core.store.names import is_forward, is_gradient, parse_module_key
from probe_matching.mapping import read_mapping
from probe_matching.name_table import Dialect, Hint, NameTable
from probe_matching.options import NameMappings
from probe_matching.paths import ModulePathTranslator
from probe_matching.specs import NameRule
from probe_matching.translated import TranslatedRun
from probe_matching.user_maps import (
    add_entries,
    read_api_mapping,
    read_cell_mapping,
    read_layer_mapping,
)
from probe_matching.written import write_pairs

ALIGN = "align"
EXACT = "exact"
NO_TABLE_NOTE = "both runs are of one framework, so its names need no table"
MAX_LISTED_MODULES = 5
_SLOT_SUFFIX = re.compile(r"\.(?:input|output|parameters|kwargs)(?:\..*)?$")


class CommonNameViewer:
    """A view that gives two runs common names."""

    def check(self, plan: Plan) -> None:
        """Read all mapping files of a plan, to check them.

        Raises:
            UserError: A mapping file cannot be read or is not valid.
        """
        mappings = NameMappings.from_plan(plan)
        if isinstance(mappings.mapping, Path):
            read_mapping(mappings.mapping)
        if mappings.api_mapping is not None:
            read_api_mapping(mappings.api_mapping)
        if mappings.cell_mapping is not None:
            read_cell_mapping(mappings.cell_mapping)
        if mappings.layer_mapping is not None:
            read_layer_mapping(mappings.layer_mapping)

    def views(self, plan: Plan, manager: Manager, target: Run, golden: Run) -> Views | None:
        """Return both runs by common names; None for two runs of one framework without mapping files.

        Raises:
            UserError: A mapping file cannot be read or is not valid.
        """
        frameworks = target.header.framework, golden.header.framework
        is_across = frameworks[0] != frameworks[1]
        mappings = NameMappings.from_plan(plan)
        if not (is_across or mappings.has_files):
            return Views(target, golden, plan.matcher or EXACT, (NO_TABLE_NOTE,)) if mappings.across else None
        table, is_reversed, notes = _find_name_table(manager, *frameworks) if is_across else (NameTable(), False, [])
        if mappings.api_mapping is not None:
            entries, problems = read_api_mapping(mappings.api_mapping)
            table = add_entries(table, entries)
            notes += problems
        translator = _create_path_translator(mappings, target, notes)
        target_dialect, golden_dialect = (table.target, table.source) if is_reversed else (table.source, table.target)
        translated_runs = (
            TranslatedRun(target, target_dialect, table.target, translator, "target", is_across=is_across),
            TranslatedRun(golden, golden_dialect, table.target, None, "golden", is_across=is_across),
        )
        for run in translated_runs:
            if run.inner:
                notes.append(
                    f"in {format_count(run.inner, 'backward call')} of {run.header.framework} functions that call "
                    "others, gradients are the last inner call's, not the inputs'; outputs are not compared"
                )
        by_place = is_across or mappings.layer_mapping is not None
        matcher = plan.matcher or (ALIGN if by_place and mappings.mapping is None else EXACT)
        writer = partial(write_pairs, plan) if mappings.layer_mapping is not None else None
        return Views(*translated_runs, matcher, tuple(notes), DifferenceHints(translated_runs, table.hints), writer)


def _find_name_table(manager: Manager, target: str, golden: str) -> tuple[NameTable, bool, list[str]]:
    """Return the names of two frameworks, True if the target is of their target framework, and notes."""
    notes = [f"the target is of {target} and the golden of {golden}"]
    for item in manager.contributions("name_rules"):
        rule = item.spec
        assert isinstance(rule, NameRule)
        if {rule.source, rule.target} == {target, golden}:
            try:
                with blame_plugin(rule.title, rule.origin):
                    table = _check_table(rule.make())
            except PluginError as error:
                notes.append(f"{error.what} Its table of names is not used. {error.fix}")
                continue
            notes[0] += f"; calls are paired by the names in {rule.name}"
            return table, rule.target == target, notes
    notes[0] += ", and no plugin knows the names of both; equal names are paired"
    return NameTable(), False, notes


def check_name_rule(rule: NameRule) -> None:
    """Make the table of a name rule, and raise TypeError if it is not valid."""
    _check_table(rule.make())


def _check_table(table: Any) -> NameTable:
    """Return the object that a name rule made if it is a valid table; raise TypeError if not."""
    if not isinstance(table, NameTable):
        raise TypeError(f"it must make a NameTable, not {type(table).__name__}")
    for side in (table.source, table.target):
        if not isinstance(side, Dialect):
            raise TypeError(f"a NameTable holds a Dialect of each framework, not {type(side).__name__}")
    return table


def _create_path_translator(mappings: NameMappings, target: Run, notes: list[str]) -> ModulePathTranslator | None:
    cells = read_cell_mapping(mappings.cell_mapping) if mappings.cell_mapping else {}
    layers = read_layer_mapping(mappings.layer_mapping) if mappings.layer_mapping else {}
    if not cells and not layers:
        return None
    names = [*target.names(), *target.construct.modules()]
    translator = ModulePathTranslator(names, cells, layers)
    for name in names:
        module = parse_module_key(name)
        if module is not None:
            translator(module.path, module.class_name)
    mapped_names = {*cells, *(child for children in layers.values() for child in children)}
    unused = sorted(mapped_names - translator.used)
    if unused:
        count, names_text = format_count(len(unused), "module"), ", ".join(unused[:MAX_LISTED_MODULES])
        notes.append(f"the mapping names {count} that the target does not have: {names_text}")
    return translator


class DifferenceHints(Hints):
    """Hints on known differences of two frameworks."""

    def __init__(self, views: Sequence[TranslatedRun], hints: Sequence[Hint]) -> None:
        self._views = views
        self.explaining: list[str] = []
        self._by_name: dict[str, list[Hint]] = {}
        for hint in hints:
            for name in hint.names:
                self._by_name.setdefault(name, []).append(hint)

    def of(self, batch: RowBatch) -> list[str]:
        """Return the hints on the calls of a batch, each once."""
        if not self._by_name:
            return []
        return [hint for op, rows in batch.all_rows() for hint in self._explain_op(op, rows)]

    def _explain_op(self, op: str, rows: Sequence[Row]) -> list[str]:
        matched = [row for row in rows if row.pair.matched]
        candidates = [hint for name in self._collect_names(op, matched) for hint in self._by_name.get(name, ())]
        return self._emit_hints(
            [hint for hint in candidates if not hint.differs or _has_only_output_errors(op, matched)]
        )

    def of_suspects(self, suspects: Sequence[Suspect]) -> list[str]:
        """Return the hints on suspect forward calls, even if none of their rows fails."""
        names: set[str] = set()
        for suspect in suspects if self._by_name else ():
            if is_forward(suspect.op):
                modules = [module for key in (suspect.op, suspect.module) if (module := parse_module_key(key))]
                names |= {self._views[0].find_common_name(suspect.op), *(module.class_name for module in modules)}
        return self._emit_hints([hint for name in sorted(names) for hint in self._by_name.get(name, ())])

    def _emit_hints(self, new_hints: Sequence[Hint]) -> list[str]:
        """Return the texts of hints, and make sure that they are not given again."""
        if not new_hints:
            return []
        for hints in self._by_name.values():
            hints[:] = [hint for hint in hints if hint not in new_hints]
        self.explaining += dict.fromkeys(hint.text for hint in new_hints if hint.differs)
        return list(dict.fromkeys(hint.text for hint in new_hints))

    def _collect_names(self, op: str, matched: Sequence[Row]) -> set[str]:
        """Return the names of both calls, their own and the common one."""
        if not matched:
            return set()
        golden = next(row.pair.golden.name for row in matched if row.pair.golden is not None)
        keys = (op, _SLOT_SUFFIX.sub("", golden))
        classes = {module.class_name for key in keys if (module := parse_module_key(key))}
        return classes | {view.find_common_name(key) for view, key in zip(self._views, keys)}


def _has_only_output_errors(op: str, matched: Sequence[Row]) -> bool:
    """Return True for a call whose outputs differ although its input tensors agree."""
    failed_rows = [row for row in matched if row.verdict.level is Level.ERROR]
    has_bad_input = any(row.pair.side is Side.INPUT and _is_tensor(row) for row in failed_rows)
    return bool(failed_rows) and not has_bad_input and not is_gradient(op)


def _is_tensor(row: Row) -> bool:
    return row.pair.target is not None and row.pair.target.value.kind is Kind.TENSOR
