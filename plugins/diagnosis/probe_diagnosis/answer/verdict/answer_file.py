"""The answer as a file, ``answer_{time stamp}.json`` (docs/answer-file.md)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from probe_core import __version__
from probe_core.files.atomic import make_directory, write_text
from probe_core.model.answers import Answer, Condition, Finding
from probe_core.model.plan import Plan
from probe_core.store.layout import RunPair

SCHEMA = 2
"""Version of the layout."""


def write_answer(plan: Plan, whole: Answer, steps: Mapping[str, Sequence[tuple[RunPair, Answer | str]]]) -> Path:
    """Write the answer, and return the path of its file.

    Args:
        plan: The plan of the comparison.
        whole: The verdict on all ranks and steps.
        steps: For each step, its comparisons, each with its verdict, or with its error if it failed.

    Raises:
        UserError: The output directory cannot be written to.
    """
    content = {
        "verdict": whole.outcome.value,
        "sentence": whole.sentence,
        "schema": SCHEMA,
        "probe": __version__,
        "target": str(plan.target),
        "golden": str(plan.golden),
        **serialize_answer(whole),
        "steps": [
            {"step": step, "ranks": [_serialize_rank(pair, answer) for pair, answer in ranks]}
            for step, ranks in steps.items()
        ],
    }
    path = plan.output / f"answer_{plan.time_stamp}.json"
    make_directory(path.parent)
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")
    return path


def _serialize_rank(pair: RunPair, answer: Answer | str) -> dict[str, Any]:
    identity = {"rank": pair.rank, "file": pair.target.name}
    if isinstance(answer, str):
        return {**identity, "verdict": None, "error": answer}
    return {**identity, "verdict": answer.outcome.value, "sentence": answer.sentence, **serialize_answer(answer)}


def serialize_answer(answer: Answer) -> dict[str, Any]:
    """Return the fields of the answer file that describe an answer, without its verdict and its sentence."""
    coverage = answer.coverage
    return {
        "conditions": [_serialize_condition(item) for item in answer.conditions],
        "unknown_conditions": list(answer.unknown_conditions),
        "causes": [_serialize_cause(cause) for cause in answer.causes],
        "coverage": {
            "recorded": coverage.recorded,
            "compared": coverage.compared,
            "equal": coverage.equal,
            "not_compared": dict(coverage.excused),
        },
        "remarks": [{"kind": item.kind.value, "op": item.op, "text": item.text} for item in answer.notes],
        "withdrawn": [_serialize_cause(item) for item in answer.withdrawn],
        "notes": [note.text for note in answer.notes],  # of schema 1, for one release
        "baseline": dict(answer.baseline) or None,
        "reference": {name: _format_finite(value) for name, value in answer.reference.items()} or None,
        "not_captured": list(answer.missing),
        "next": list(answer.next),
    }


def _serialize_condition(condition: Condition) -> dict[str, Any]:
    return {("sentence" if name == "text" else name): value for name, value in condition._asdict().items()}


def _serialize_cause(cause: Finding) -> dict[str, Any]:
    return {
        "kind": cause.reason.code.replace(" ", "_"),
        "op": cause.op,
        "row": cause.row,
        "line": cause.line,
        "statement": cause.reason.detail,
        "brief": cause.brief or cause.reason.detail,
        "argument": _get_argument_path(cause),
        "argument_name": _find_argument_name(cause),
        "producers": dict(cause.producers),
        "evidence": {name: _format_finite(value) for name, value in cause.evidence.items() if name != "argument_name"},
        "module": list(cause.modules),
        "where": cause.where,
        "caller": cause.caller,
        "step": cause.step,
        "rank": cause.rank,
        "same": list(cause.same),
        "consequences": {"count": cause.consequence_count, "first": list(cause.consequences)},
    }


def _get_argument_path(cause: Finding) -> str:
    """Return the path of the argument that differs, such as ``input.1``; empty if none does."""
    row = str(cause.evidence.get("argument", ""))
    return row.removeprefix(f"{cause.op}.")


def _find_argument_name(cause: Finding) -> str:
    """Return the name of the argument that differs, such as ``eps``; empty if it is not known."""
    keyword = _get_argument_path(cause).removeprefix("input.").partition(".")[0]
    name = str(cause.evidence.get("argument_name", ""))
    return name or ("" if keyword.isdecimal() else keyword)


def _format_finite(value: float | int | str) -> float | int | str:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
