"""The answer of ``compare --explain``: the target's calls, computed again in higher precision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from probe_core import console
from probe_core.model.plan import Plan
from probe_core.plugins.protocols import AllResults, OpenComparison
from probe_core.store.layout import RunPair
from probe_explain.files import write_files
from probe_explain.printing import print_verdict
from probe_explain.run import ExplainOptions, explain
from probe_explain.verdict import ExplainVerdict, conclude_verdict

NAME = "explain"


@dataclass(frozen=True, slots=True)
class ExplainConclusion:
    """Verdict on the target, which can be printed."""

    verdict: ExplainVerdict
    files: Sequence[Path]
    answer: None = None

    @property
    def is_judged(self) -> bool:
        """True if at least one record was computed again."""
        return bool(self.verdict.judged)

    def show(self, *, brief: bool = False) -> None:
        """Print the verdict and, unless ``brief`` is set, its causes."""
        console.show("target, computed again in higher precision:")
        print_verdict(self.verdict, self.files, brief=brief)


class TargetExplainer:
    """Answer that computes the calls of all ranks of the target again, once they are compared."""

    def witness(self, opened: OpenComparison, pair: RunPair) -> None:
        """Observe nothing; the record files are read again at the end."""

    def conclude(self, compared: AllResults) -> Iterator[ExplainConclusion]:
        """Write the verdict on the target, and yield it ready to be printed.

        Raises:
            UserError: The target holds no tensors, or a file cannot be written.
            KeyboardInterrupt: Ctrl-C was pressed; the verdict on the finished calls was yielded before.
        """
        plan, records = compared.plan, {name[0] for name in compared.pairing.formats}
        files = [
            (pair.part, pair.rank, pair.target)
            for pair in compared.pairing.pairs
            if pair.target.name.endswith(tuple(records))
        ]
        with console.show_progress():
            explanation = explain(plan.target, files, ExplainOptions(plan.framework, plan.jobs), compared.manager)
        verdict = conclude_verdict(explanation)
        yield ExplainConclusion(verdict, write_files(explanation, verdict, plan.output, plan.time_stamp, None))
        if explanation.interrupted:
            raise KeyboardInterrupt


def request_explanation(plan: Plan, values: Mapping[str, Any], option_names: Set[str]) -> Plan:
    """Return the plan with the question added."""
    return replace(plan, answers=(*plan.answers, NAME))
