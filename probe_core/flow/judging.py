"""Application of judges and highlighters to the rows of each op, in the order of the run.

Policies have judged each pair alone when it was measured. Judges see all rows of an op and remember earlier
ops; they may change verdicts, and the row keeps the old verdict and the reason. Highlighters mark rows.
Nothing else changes a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from probe_core.model import Changed, Op, Row, Ruling
from probe_core.plugins.blame import PluginError, fault
from probe_core.plugins.manager import Manager
from probe_core.plugins.protocols import Highlighter, Judge
from probe_core.plugins.specs import HighlightSpec, JudgeSpec, Spec

S = TypeVar("S", bound=Spec)
Blame = Callable[[PluginError, str], None]
"""A function that notes the failure of a plugin and its meaning for the result."""
Change = Callable[[Op, Sequence[Row]], Mapping[int, Row]]
"""A function that returns the rows of an op that a plugin changes, by their positions."""


class Judging:
    """The judges and highlighters of one comparison.

    Args:
        manager: The plugins.
        highlight: True to mark rows.
        blame: Function that notes a failed plugin; the others continue.
    """

    def __init__(self, manager: Manager, highlight: bool, blame: Blame) -> None:
        self._blame = blame
        judges = sorted(_each_once(manager, "judges", JudgeSpec, blame), key=lambda spec: spec.order)
        marking = _each_once(manager, "highlighters", HighlightSpec, blame) if highlight else []
        self._changes: list[tuple[Spec, Change]] = []
        for spec in (*judges, *marking):
            try:
                function = _marked if isinstance(spec, HighlightSpec) else _judged
                self._changes.append((spec, partial(function, spec.name, spec.make())))
            except PluginError as error:
                effect = "mark any row" if isinstance(spec, HighlightSpec) else "change any verdict"
                blame(error, f"It does not {effect}.")

    def judged(self, op: Op, rows: Sequence[Row]) -> list[Row]:
        """Return the rows of an op with their final verdicts and marks."""
        rows = list(rows)
        for entry in [*self._changes]:
            spec, change = entry
            try:
                changed = change(op, rows)
            except BaseException as error:
                blame = fault(error, spec.title, spec.origin)
                if blame is None:
                    raise
                self._changes.remove(entry)
                effect = "mark any row" if isinstance(spec, HighlightSpec) else "change any verdict"
                self._blame(blame, f"It does not {effect} from there on.")
                continue
            for place, row in changed.items():
                rows[place] = row
        return rows


def _judged(name: str, judge: Judge, op: Op, rows: Sequence[Row]) -> Mapping[int, Row]:
    """Return the rows whose verdicts a judge changes."""
    rulings = judge.judge(op, rows)
    return {n: _ruled(rows[n], name, ruling) for n, ruling in rulings.items()} if len(rulings) else {}


def _marked(name: str, highlighter: Highlighter, op: Op, rows: Sequence[Row]) -> Mapping[int, Row]:
    """Return the rows that a highlighter marks."""
    return {n: rows[n]._replace(mark=mark) for n, mark in highlighter.mark(rows).items()}


def _each_once(manager: Manager, kind: str, as_type: type[S], blame: Blame) -> list[S]:
    """Return the contributions of a kind that is always used; of several with the same name, the first."""
    specs: dict[str, S] = {}
    for spec in manager.specs(kind, as_type):
        if spec.name in specs:
            both = f"{specs[spec.name].origin} and {spec.origin}"
            several = PluginError(
                f"{both} both provide {spec.title[0].lower()}{spec.title[1:]}.", "Uninstall one of them."
            )
            blame(several, "The first is used.")
        else:
            specs[spec.name] = spec
    return list(specs.values())


def _ruled(row: Row, judge: str, ruling: Ruling) -> Row:
    """Return a row with the verdict of a judge; the old verdict is kept in ``was``."""
    if not isinstance(ruling, Ruling):
        raise TypeError(f"judge must return a Ruling for each row to change, not {type(ruling).__name__}")
    further = row.further
    if ruling.further is not None:
        further = dict.fromkeys(further, ruling.further)
    was = (*row.was, Changed(judge, row.verdict, ruling.reason))
    return row._replace(verdict=ruling.verdict, further=further, was=was)
