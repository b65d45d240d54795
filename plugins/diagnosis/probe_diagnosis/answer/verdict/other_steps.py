"""Steps that both runs contain and that a comparison of a single step leaves out."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from probe_core.errors import format_list
from probe_core.files.location import is_remote
from probe_core.model.answers import Answer, Outcome
from probe_core.model.plan import Plan
from probe_core.store.layout import RunPair

_STEP = re.compile(r"step\d+")


def add_uncompared_steps(answer: Answer, plan: Plan, pairs: Collection[RunPair]) -> Answer:
    """Return an answer that names the steps that were not compared, if the compared step agrees.

    Args:
        answer: The answer over all ranks.
        plan: The plan of the comparison.
        pairs: The pairs of record files that were compared.
    """
    steps = {(_find_step(pair.target), _find_step(pair.golden)) for pair in pairs}
    if answer.outcome is not Outcome.AGREE or len(steps) != 1:
        return answer
    target, golden = steps.pop()
    if target is None or golden is None:
        return answer
    others = sorted(_list_other_steps(target) & _list_other_steps(golden), key=lambda name: int(name[4:]))
    if not others:
        return answer
    text = f"; only {target.name} was compared, and both runs also hold {format_list(others)}"
    runs = shlex.join(str(step.parent) for step in (target, golden))
    command = f"probe compare {runs} -o {shlex.quote(str(plan.output))}  # compares all steps"
    return replace(answer, text=answer.text + text, next=(*answer.next, command))


def _find_step(path: Path) -> Path | None:
    """Return the directory of the step that a record file is in; None if there is none."""
    parents = list((path if is_remote(path) else path.absolute()).parents)[:2]
    return next((parent for parent in parents if _STEP.fullmatch(parent.name)), None)


def _list_other_steps(step: Path) -> set[str]:
    """Return the names of the other steps of the run of a step."""
    try:
        names = {path.name for path in step.parent.iterdir() if path.is_dir()}
    except OSError:
        return set()
    return {name for name in names if _STEP.fullmatch(name)} - {step.name}
