"""Application of judges and highlighters to the rows of each op, in the order of the run.

Policies have judged each pair alone when it was measured. Judges see all rows of an op and remember earlier
ops; they may change verdicts, and the row keeps the old verdict and the reason. Highlighters mark rows.
Nothing else changes a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from probe_core.model import Changed, Op, Row, Ruling
from probe_core.plugins.blame import PluginError, fault
from probe_core.plugins.manager import Manager
from probe_core.plugins.protocols import Highlighter, Judge
from probe_core.plugins.specs import HighlightSpec, JudgeSpec, Spec

S = TypeVar("S", bound=Spec)
Blame = Callable[[PluginError, str], None]
"""A function that notes the failure of a plugin and its meaning for the result."""


class Judging:
    """The judges and highlighters of one comparison.

    Args:
        manager: The plugins.
        highlight: True to mark rows.
        blame: Function that notes a failed plugin; the others continue.
    """

    def __init__(self, manager: Manager, highlight: bool, blame: Blame) -> None:
        self._blame = blame
        specs = _each_once(manager, "judges", JudgeSpec, blame)
        self._judges: list[tuple[JudgeSpec, Judge]] = []
        for spec in sorted(specs, key=lambda spec: spec.order):
            try:
                self._judges.append((spec, spec.make()))
            except PluginError as error:
                blame(error, "It does not change any verdict.")
        self._highlighters: list[tuple[HighlightSpec, Highlighter]] = []
        for marks in _each_once(manager, "highlighters", HighlightSpec, blame) if highlight else ():
            try:
                self._highlighters.append((marks, marks.make()))
            except PluginError as error:
                blame(error, "It does not mark any row.")

    def judged(self, op: Op, rows: Sequence[Row]) -> list[Row]:
        """Return the rows of an op with their final verdicts and marks."""
        rows = list(rows)
        for judging in [*self._judges]:
            spec, judge = judging
            try:
                rulings = judge.judge(op, rows)
                if not len(rulings):
                    continue
                ruled = {n: _ruled(rows[n], spec.name, ruling) for n, ruling in rulings.items()}
            except BaseException as error:
                self._judges.remove(judging)
                self._blame(_fault(error, spec), "It does not change any verdict from there on.")
                continue
            for place, row in ruled.items():
                rows[place] = row
        for marking in [*self._highlighters]:
            marks, highlighter = marking
            try:
                marked = {n: rows[n]._replace(mark=mark) for n, mark in highlighter.mark(rows).items()}
            except BaseException as error:
                self._highlighters.remove(marking)
                self._blame(_fault(error, marks), "It does not mark any row from there on.")
                continue
            for place, row in marked.items():
                rows[place] = row
        return rows


def _fault(error: BaseException, spec: Spec) -> PluginError:
    """Return the error that names the plugin; raise ``error`` itself if it is no plugin's fault."""
    blame = fault(error, spec.title, spec.origin)
    if blame is None:
        raise error
    return blame


def _each_once(manager: Manager, kind: str, as_type: type[S], blame: Blame) -> list[S]:
    """Return the contributions of a kind that is always used; of several with the same name, the first."""
    specs: dict[str, S] = {}
    for item in manager.contributions(kind):
        spec = item.spec
        assert isinstance(spec, as_type)
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
