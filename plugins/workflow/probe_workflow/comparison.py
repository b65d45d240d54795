"""Comparison of a recorded script with the golden, and the verdict as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from probe_ranks.api import run_plan

from probe_core import engine
from probe_core.library import create_plan
from probe_core.model.answers import Answer
from probe_core.model.plan import DEFAULT_FORMATS, Plan
from probe_core.plugins.manager import Manager
from probe_core.plugins.protocols import AllResults, Conclusion, OpenComparison
from probe_core.plugins.specs import ReporterSpec
from probe_core.store.layout import RunPair
from probe_workflow.hooks import KEPT_ANSWER

_META_KEY = "probe_workflow.answer"
"""The key under which the context of a command keeps the verdict."""


class AnswerKeeper:
    """Answer that keeps the verdict over all ranks in the context of the command."""

    def witness(self, opened: OpenComparison, pair: RunPair) -> None:
        """Observe nothing."""

    def conclude(self, compared: AllResults) -> Iterator[Conclusion]:
        """Keep the verdict, and yield nothing to print."""
        ctx = click.get_current_context(silent=True)  # None for a comparison from Python
        if ctx is not None and compared.answer is not None:
            ctx.meta[_META_KEY] = compared.answer
        return iter(())


def keep_answer(plan: Plan, values: Mapping[str, Any], option_names: Set[str]) -> Plan:
    """Return the plan with the verdict kept (``--exit-codes``)."""
    return replace(plan, answers=(*plan.answers, KEPT_ANSWER))


def find_kept_answer() -> Answer | None:
    """Return the verdict of the comparison that the command has made last; None if it gave none."""
    answer: Answer | None = click.get_current_context().meta.get(_META_KEY)
    return answer


def compare_runs(
    target: Path, golden: Path, output: Path | None, temporary: Path, manager: Manager
) -> tuple[int, Answer | None]:
    """Compare two runs as ``probe compare`` does.

    Args:
        target: The run under test.
        golden: The reference.
        output: The directory of the result files; None to write none.
        temporary: A directory for temporary files.
        manager: The plugins.

    Returns:
        The exit code of ``probe compare``, and the verdict.
    """
    click.get_current_context().meta.pop(_META_KEY, None)
    pages = tuple(spec.name for spec in manager.specs("reporters", ReporterSpec) if spec.page)
    settings: dict[str, Any] = {"output": temporary, "formats": (), "answer": False, "advise": False}
    if output is not None:
        settings = {"output": output, "formats": (*DEFAULT_FORMATS, *pages)}
    plan = create_plan(manager, target, golden, settings)
    engine.tune_process()
    code = run_plan(keep_answer(plan, {}, frozenset()), manager)
    return code, find_kept_answer()
