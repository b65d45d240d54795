"""Application of judges and highlighters to the rows of each op, in the order of the run.

Policies judge each pair separately when it is measured. Judges then receive all rows of an op, and may remember
earlier ops. They may change verdicts; the row keeps the old verdict and the reason. Highlighters mark rows.
Nothing else changes a verdict.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from probe_core.model import Ruling
from probe_core.model.batches import RowBatch
from probe_core.plugins.blame import PluginError, create_plugin_error
from probe_core.plugins.manager import Manager
from probe_core.plugins.protocols import Highlighter, Judge
from probe_core.plugins.specs import HighlightSpec, JudgeSpec, Spec

S = TypeVar("S", bound=Spec)
Blame = Callable[[PluginError, str], None]
"""A function that notes the failure of a plugin and its meaning for the result."""
Change = Callable[[RowBatch], None]
"""A function that applies the changes of a plugin to a batch."""


class JudgeChain:
    """The judges and highlighters of one comparison.

    Args:
        highlight: True to mark rows.
        blame: Function that notes a failed plugin; the others continue.
    """

    def __init__(self, manager: Manager, highlight: bool, blame: Blame) -> None:
        self._blame = blame
        judges = sorted(_find_unique_specs(manager, "judges", JudgeSpec, blame), key=lambda spec: spec.order)
        highlighters = _find_unique_specs(manager, "highlighters", HighlightSpec, blame) if highlight else []
        self._changes: list[tuple[Spec, Change]] = []
        for spec in (*judges, *highlighters):
            try:
                function = _mark if isinstance(spec, HighlightSpec) else _judge
                self._changes.append((spec, partial(function, spec.name, spec.make())))
            except PluginError as error:
                effect = "mark any row" if isinstance(spec, HighlightSpec) else "change any verdict"
                blame(error, f"It does not {effect}.")

    def apply(self, batch: RowBatch) -> None:
        """Let all judges change the verdicts of a batch, then all highlighters mark its rows."""
        for entry in [*self._changes]:
            spec, change = entry
            try:
                change(batch)
            except BaseException as error:
                blame = create_plugin_error(error, spec.title, spec.origin)
                if blame is None:
                    raise
                self._changes.remove(entry)
                effect = "mark any row" if isinstance(spec, HighlightSpec) else "change any verdict"
                self._blame(blame, f"It does not {effect} from there on.")


def _judge(name: str, judge: Judge, batch: RowBatch) -> None:
    """Change the verdicts that a judge rules on."""
    if hasattr(judge, "judge_batch"):
        for line, ruling in judge.judge_batch(batch).items():
            batch.rule(range(len(batch))[line], name, _check_ruling(ruling))
        return
    for number, (_, rows) in enumerate(batch.all_rows()):
        rulings = judge.judge(batch.op(number), rows)
        for place, ruling in rulings.items() if len(rulings) else ():
            batch.rule(batch.lines(number)[place], name, _check_ruling(ruling))


def _check_ruling(ruling: Any) -> Ruling:
    if not isinstance(ruling, Ruling):
        raise TypeError(f"judge must return a Ruling for each row to change, not {type(ruling).__name__}")
    return ruling


def _mark(name: str, highlighter: Highlighter, batch: RowBatch) -> None:
    """Apply the marks of a highlighter."""
    for number, (_, rows) in enumerate(batch.all_rows()):
        lines = batch.lines(number)
        for place, mark in highlighter.mark(rows).items():
            batch.mark(lines[place], mark)


def _find_unique_specs(manager: Manager, kind: str, as_type: type[S], blame: Blame) -> list[S]:
    """Return the contributions of a kind whose members are all used; the first if several have the same name."""
    specs: dict[str, S] = {}
    for spec in manager.specs(kind, as_type):
        if spec.name in specs:
            origins = f"{specs[spec.name].origin} and {spec.origin}"
            error = PluginError(
                f"{origins} both provide {spec.title[0].lower()}{spec.title[1:]}.", "Uninstall one of them."
            )
            blame(error, "The first is used.")
        else:
            specs[spec.name] = spec
    return list(specs.values())
