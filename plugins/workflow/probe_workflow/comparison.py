"""Comparison of a recorded script with the golden, and the verdict as data."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from probe_core import engine
from probe_core.cli.running import run_plan
from probe_core.library import create_plan
from probe_core.model.answers import Answer
from probe_core.model.plan import Plan
from probe_core.plugins.manager import Manager
from probe_core.plugins.protocols import Compared, Conclusion, Opened
from probe_core.store.layout import RunPair
from probe_workflow.hooks import KEPT_ANSWER

_META_KEY = "probe_workflow.comparison"


@dataclass(frozen=True, slots=True)
class KeptComparison:
    """The verdict of a comparison.

    Attributes:
        answer: The verdict.
        plan: The plan of the comparison.
    """

    answer: Answer
    plan: Plan

    def read_answer_file(self) -> dict[str, Any]:
        """Return the content of the answer file (docs/answer-file.md)."""
        path = self.plan.output / f"answer_{self.plan.time_stamp}.json"
        content: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return content


class AnswerKeeper:
    """Answer that keeps the verdict over all ranks in the context of the command."""

    def witness(self, opened: Opened, pair: RunPair) -> None:
        """Observe nothing."""

    def conclude(self, compared: Compared) -> Iterator[Conclusion]:
        """Keep the verdict, and yield nothing to print."""
        if compared.answer is not None:
            click.get_current_context().meta[_META_KEY] = KeptComparison(compared.answer, compared.plan)
        return iter(())


def keep_answer(plan: Plan, values: Mapping[str, Any], option_names: Set[str]) -> Plan:
    """Return the plan with the verdict kept (``--exit-codes``)."""
    return replace(plan, answers=(*plan.answers, KEPT_ANSWER))


def find_kept_comparison() -> KeptComparison | None:
    """Return the comparison that the command has made last; None if it gave no verdict."""
    kept: KeptComparison | None = click.get_current_context().meta.get(_META_KEY)
    return kept


def compare_runs(
    target: Path, golden: Path, output: Path, formats: tuple[str, ...], manager: Manager
) -> tuple[int, KeptComparison | None]:
    """Compare two runs, print the verdict, and return the exit code of ``probe compare`` with the verdict."""
    click.get_current_context().meta.pop(_META_KEY, None)
    settings = {"output": output, "formats": formats, "advise": False}
    plan = create_plan(manager, target, golden, settings)
    engine.tune_process()
    code = run_plan(keep_answer(plan, {}, set()), manager)
    return code, find_kept_comparison()
