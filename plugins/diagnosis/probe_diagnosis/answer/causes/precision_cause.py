"""The cause that all matrix products of one run are computed in a lower precision."""

from __future__ import annotations

import math
from collections.abc import Sequence

from probe_core.errors import format_count
from probe_core.model import Reason
from probe_core.model.answers import Finding
from probe_diagnosis.answer.causes.compared_runs import ComparedRuns
from probe_diagnosis.answer.causes.condition_causes import INTRODUCED_CODES, ConditionExplanation
from probe_diagnosis.conditions.differences import ConditionDifference
from probe_diagnosis.difference.reasons import CauseKind
from probe_diagnosis.difference.statement import Statement
from probe_diagnosis.limits import limits
from probe_diagnosis.precision.precision_settings import find_arrangement, is_gradient_of_product, load_settings
from probe_diagnosis.precision.signature import Signature, find_signature
from probe_diagnosis.timeline.rank_facts import RankFacts

PRECISION_OP = "conditions.precision"
"""Name of the cause, in place of the key of a call."""

DOWNSTREAM_CODES = frozenset({CauseKind.RECEIVED.value, CauseKind.GROWN.value, CauseKind.GRADIENT.value})
"""Codes of causes that differences of earlier products may explain, also where they are amplified."""


def explain_by_precision(
    facts: RankFacts, runs: ComparedRuns, conditions: Sequence[ConditionDifference], causes: Sequence[Finding]
) -> ConditionExplanation | None:
    """Return the lower precision of all matrix products, if it explains the first cause; None if not.

    Args:
        facts: The facts about the rank.
        runs: Both runs.
        conditions: The conditions that differ.
        causes: The causes, the first one first.
    """
    first = causes[0]
    if not _is_product(first) and first.reason.code not in DOWNSTREAM_CODES:
        return None
    signature = find_signature(facts.ops, runs.both, {item.name for item in conditions})
    if signature is None or _is_upstream(first, signature, facts):
        return None
    statement = Statement(_describe_signature(signature), f"; {first.op} {first.brief or first.reason.detail}")
    evidence: dict[str, float | int | str] = {
        "formats": ", ".join(signature.formats),
        "rounding_of_inputs": signature.rounding,
        "bits": min(load_settings().formats[name] for name in signature.formats),
        "calls": len(signature.calls),
    }
    if signature.side is not None:
        evidence["run"] = ("target", "golden")[signature.side]
    origin = Finding(
        PRECISION_OP, "", Reason(CauseKind.CONDITION.value, statement.text), evidence, rank=facts.rank,
        where=first.where, brief=statement.brief, consequences=(first.op, *first.consequences),
        consequence_count=first.consequence_count + 1,
    )  # fmt: skip
    return ConditionExplanation(origin, [item for item in causes if not _is_product(item)])


def find_precision(causes: Sequence[Finding]) -> Finding | None:
    """Return the cause that is a lower precision; None if there is none."""
    return next((cause for cause in causes if cause.op == PRECISION_OP), None)


def insert_precision(causes: Sequence[Finding], precision: Finding | None) -> list[Finding]:
    """Return causes with a lower precision, behind a first cause that it cannot be the reason for.

    Args:
        causes: The causes that the rounding of the precision does not explain.
        precision: The precision; None for none.
    """
    if precision is None:
        return [*causes]
    causes = [cause for cause in causes if cause.op != PRECISION_OP]
    is_far = (
        bool(causes)
        and causes[0].reason.code not in DOWNSTREAM_CODES
        and _get_rounding_multiple(causes[0]) >= limits().min_grown_multiple
    )
    return [*causes, precision] if is_far else [precision, *causes]


def _get_rounding_multiple(cause: Finding) -> float:
    times = cause.evidence.get("times_rounding", math.inf)
    return times if isinstance(times, (int, float)) else math.inf


def _is_upstream(cause: Finding, signature: Signature, facts: RankFacts) -> bool:
    """Return True for a cause before the first of the products, which therefore do not explain it."""
    numbers = facts.ops.numbers_by_key
    return numbers.get(cause.op, len(numbers)) < numbers[signature.first]


def _is_product(cause: Finding) -> bool:
    is_product = find_arrangement(cause.op) is not None or is_gradient_of_product(cause.op)
    return cause.reason.code in INTRODUCED_CODES and is_product


def _describe_signature(signature: Signature) -> str:
    """Return the clause on a signature."""
    formats = " or ".join(signature.formats)
    size = f"2^{math.log2(signature.rounding):.0f}"
    calls = format_count(len(signature.calls), "call")
    if signature.side is None:
        which = f"all {calls}" if len(signature.calls) > 1 else "the call"
        return (
            f"matrix products differ as if one run rounded their inputs to {formats} (by about {size} in "
            f"{which} whose inputs agree)"
        )
    run = ("target", "golden")[signature.side]
    return (
        f"matrix products of the {run} round their inputs to {formats} (by about {size} in {calls} that "
        f"{'was' if len(signature.calls) == 1 else 'were'} computed again)"
    )
