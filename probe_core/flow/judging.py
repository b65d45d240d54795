"""Application of judges to the rows of each op, in the order of the run.

Policies judge each pair separately when it is measured. Judges then receive all rows of an op, and may remember
earlier ops. They may change verdicts; the row keeps the old verdict and the reason. Nothing else changes a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from probe_core.model import Ruling
from probe_core.model.batches import RowBatch
from probe_core.plugins.blame import FailureListener, PluginError, create_plugin_error
from probe_core.plugins.manager import Manager
from probe_core.plugins.protocols import BatchJudge, Judge
from probe_core.plugins.specs import JudgeSpec, Spec

S = TypeVar("S", bound=Spec)


class RowChain:
    """Plugins that change the rows of a comparison, one after the other.

    Args:
        specs: The plugins, in the order in which they change a batch.
        change: Function that receives the name of a plugin, what its factory made, and a batch.
        effect: The effect that a plugin no longer has after it failed: ``change any verdict``.
        note_failure: Function that notes a failed plugin; the others continue.
    """

    def __init__(
        self,
        specs: Iterable[Spec],
        change: Callable[[str, Any, RowBatch], None],
        effect: str,
        note_failure: FailureListener,
    ) -> None:
        self._change, self._effect, self._note_failure = change, effect, note_failure
        self._members: list[tuple[Spec, Any]] = []
        for spec in specs:
            try:
                self._members.append((spec, spec.make()))
            except PluginError as error:
                note_failure(error, f"It does not {effect}.")

    def apply(self, batch: RowBatch) -> None:
        """Let all plugins change a batch."""
        for member in [*self._members]:
            spec, contribution = member
            try:
                self._change(spec.name, contribution, batch)
            except BaseException as error:
                plugin_error = create_plugin_error(error, spec.title, spec.origin)
                if plugin_error is None:
                    raise
                self._members.remove(member)
                self._note_failure(plugin_error, f"It does not {self._effect} from there on.")


def create_judge_chain(manager: Manager, note_failure: FailureListener) -> RowChain:
    """Return the judges of one comparison, which change the verdicts of its policies."""
    judges = sorted(find_unique_specs(manager, "judges", JudgeSpec, note_failure), key=lambda spec: spec.order)
    return RowChain(judges, _judge, "change any verdict", note_failure)


def judge_batches(batches: Iterable[RowBatch], manager: Manager, note_failure: FailureListener) -> Iterator[RowBatch]:
    """Yield the measured batches of a comparison after all judges changed their verdicts."""
    judge_chain = create_judge_chain(manager, note_failure)
    for batch in batches:
        judge_chain.apply(batch)
        yield batch


def _judge(name: str, judge: Judge | BatchJudge, batch: RowBatch) -> None:
    """Change the verdicts that a judge rules on."""
    if isinstance(judge, BatchJudge):
        for line, ruling in judge.judge_batch(batch).items():
            batch.rule(range(len(batch)).index(line), name, _check_ruling(ruling))  # refuses lines outside the batch
        return
    for number, (_, rows) in enumerate(batch.all_rows()):
        rulings = judge.judge(batch.op(number), rows)
        for index, ruling in dict(rulings).items():
            batch.rule(batch.lines(number)[range(len(rows)).index(index)], name, _check_ruling(ruling))


def _check_ruling(ruling: Any) -> Ruling:
    if not isinstance(ruling, Ruling):
        raise TypeError(f"judge must return a Ruling for each row to change, not {type(ruling).__name__}")
    return ruling


def find_unique_specs(manager: Manager, kind: str, as_type: type[S], note_failure: FailureListener) -> list[S]:
    """Return the contributions of a kind whose members are all used; the first if several have the same name."""
    specs: dict[str, S] = {}
    for spec in manager.specs(kind, as_type):
        if spec.name in specs:
            origins = f"{specs[spec.name].origin} and {spec.origin}"
            error = PluginError(
                f"{origins} both provide {spec.title[0].lower()}{spec.title[1:]}.", "Uninstall one of them."
            )
            note_failure(error, "The first is used.")
        else:
            specs[spec.name] = spec
    return list(specs.values())
