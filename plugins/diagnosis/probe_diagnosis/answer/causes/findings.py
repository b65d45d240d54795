"""Causes of a search as findings of an answer, equal ones folded into one."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from probe_core.model import Reason
from probe_core.model.answers import Finding
from probe_diagnosis.difference.nodes import Node
from probe_diagnosis.difference.reason_statement import build_statement
from probe_diagnosis.difference.reasons import CauseKind
from probe_diagnosis.difference.statement import Statement

MAX_NAMED_CONSEQUENCES = 5
"""Number of consequences that an answer names."""

_NUMBER = re.compile(r"\.\d+(?=\.|$)")


def create_finding(
    node: Node, find_line: Callable[[str], str], downstream: Sequence[str] = (), step: str = ""
) -> Finding:
    """Return a cause as a finding.

    Args:
        node: The op, and the reason for naming it.
        find_line: A function that returns the line of code of an op; the line may be empty.
        downstream: The calls downstream of it that differ.
        step: The directory of the step; empty if there is only one.
    """
    facts, reason = node.call, node.reason
    statement = build_statement(reason)
    return Finding(
        facts.op,
        reason.value.row,
        Reason(reason.cause.value, statement.text),
        reason.evidence | ({"golden_op": facts.golden_op} if facts.golden_op else {}),
        reason.value.position,
        facts.modules,
        facts.code_line or find_line(facts.op),
        step,
        node.rank,
        tuple(downstream[:MAX_NAMED_CONSEQUENCES]),
        len(downstream),
        brief=statement.brief,
    )


def replace_statement(cause: Finding, statement: Statement, kind: str = "") -> Finding:
    """Return a finding with another statement, and of another kind if one is given."""
    return replace(cause, reason=Reason(kind or cause.reason.code, statement.text), brief=statement.brief)


def extend_statement(cause: Finding, more: Statement) -> Finding:
    """Return a finding whose statement is extended by another."""
    brief = f"{cause.brief or cause.reason.detail}{more.brief}"
    return replace(cause, reason=Reason(cause.reason.code, f"{cause.reason.detail}{more.text}"), brief=brief)


def fold_repeated_findings(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings; equal findings on several calls are folded into the first of them.

    Findings are equal if their calls are of the same API or class of modules, and were called with the same pair of
    different arguments.
    """
    first_by_key: dict[object, Finding] = {}
    same: dict[object, list[str]] = {}
    for number, cause in enumerate(findings):
        argument = str(cause.evidence.get("argument", "")).removeprefix(cause.op)
        key: object = number
        if argument and cause.reason.code in (CauseKind.ARGUMENT.value, CauseKind.ALTERED_CALL.value):
            same_of = cause.reason.code, cause.evidence.get("argument_values"), cause.evidence.get("returned")
            key = cause.rank, cause.step, strip_numbers(cause.op), argument, same_of
        if key in first_by_key:
            same[key].append(cause.op)
        else:
            first_by_key[key], same[key] = cause, []
    return [replace(cause, same=tuple(same[key]) or cause.same) for key, cause in first_by_key.items()]


def strip_numbers(op: str) -> str:
    """Return the key of an op without its numbers: the same for all calls of one API."""
    return _NUMBER.sub("", op)
