"""From policy to row: the judges, then the highlighters, op by op in the order of the run.

Policies judged each pair alone when it was measured. What follows here looks at all rows of an op and at what
came before: judges may change verdicts, each leaving the old one and its reason in the row, and highlighters
mark rows. Nothing else changes a verdict.
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
"""Notes that a plugin failed, and what that means for the result."""


class Judging:
    """The judges and highlighters of one comparison.

    Args:
        manager: Gives them.
        highlight: True where rows are to be marked.
        blame: Notes a plugin that fails; the others go on.
    """

    def __init__(self, manager: Manager, highlight: bool, blame: Blame) -> None:
        self._blame = blame
        specs = _each_once(manager, "judges", JudgeSpec, blame)
        self._judges: list[tuple[JudgeSpec, Judge]] = []
        for spec in sorted(specs, key=lambda spec: spec.order):
            try:
                self._judges.append((spec, spec.make()))
            except PluginError as error:
                blame(error, "It changes no verdict.")
        self._highlighters: list[tuple[HighlightSpec, Highlighter]] = []
        for marks in _each_once(manager, "highlighters", HighlightSpec, blame) if highlight else ():
            try:
                self._highlighters.append((marks, marks.make()))
            except PluginError as error:
                blame(error, "It marks no row.")

    def judged(self, op: Op, rows: Sequence[Row]) -> list[Row]:
        """The rows of an op with the verdicts that stand, and their marks."""
        rows = list(rows)
        for judging in [*self._judges]:
            spec, judge = judging
            try:
                rulings = judge.judge(op, rows)
                if not len(rulings):
                    continue
                ruled = {n: _ruled(rows[n], spec.name, one) for n, one in rulings.items()}
            except BaseException as error:
                self._judges.remove(judging)
                self._blame(_fault(error, spec), "From there on it changes no verdict.")
                continue
            for place, row in ruled.items():
                rows[place] = row
        for marking in [*self._highlighters]:
            marks, highlighter = marking
            try:
                marked = {n: rows[n]._replace(mark=mark) for n, mark in highlighter.mark(rows).items()}
            except BaseException as error:
                self._highlighters.remove(marking)
                self._blame(_fault(error, marks), "From there on it marks no row.")
                continue
            for place, row in marked.items():
                rows[place] = row
        return rows


def _fault(error: BaseException, spec: Spec) -> PluginError:
    """Return the error that names the plugin; raise ``error`` itself where it is not the plugin's fault."""
    blame = fault(error, spec.title, spec.origin)
    if blame is None:
        raise error
    return blame


def _each_once(manager: Manager, kind: str, as_type: type[S], blame: Blame) -> list[S]:
    """The contributions of a kind that is always used; of several of one name the first, which is noted."""
    found: dict[str, S] = {}
    for item in manager.contributions(kind):
        spec = item.spec
        assert isinstance(spec, as_type)
        if spec.name in found:
            both = f"{found[spec.name].origin} and {spec.origin}"
            several = PluginError(
                f"{both} both give {spec.title[0].lower()}{spec.title[1:]}.", "Uninstall one."
            )
            blame(several, "That of the first is used.")
        else:
            found[spec.name] = spec
    return list(found.values())


def _ruled(row: Row, judge: str, ruling: Ruling) -> Row:
    """A row as a judge rules, with what it was before."""
    if not isinstance(ruling, Ruling):
        raise TypeError(f"judge must return a Ruling for each row to change, not {type(ruling).__name__}")
    further = row.further
    if ruling.further is not None:
        further = dict.fromkeys(further, ruling.further)
    was = (*row.was, Changed(judge, row.verdict, ruling.reason))
    return row._replace(verdict=ruling.verdict, further=further, was=was)
