"""Causes of a search as findings of an answer, equal ones folded into one."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from probe_core.model import Reason
from probe_core.model.answers import Finding
from probe_diagnosis.difference.reasons import Cause
from probe_diagnosis.difference.statement import Statement
from probe_diagnosis.difference.walking import Node

SHOWN = 5
"""Number of consequences that an answer names."""

_NUMBER = re.compile(r"\.\d+(?=\.|$)")


def finding(node: Node, where: Callable[[str], str], behind: Sequence[str] = (), step: str = "") -> Finding:
    """Return a cause as a finding.

    Args:
        node: The op, and the reason for naming it.
        where: A function that returns the line of code of an op; it may be empty.
        behind: The calls that differ behind it.
        step: The directory of the step; empty if there is only one.
    """
    facts, because = node.facts, node.because
    statement = because.statement
    return Finding(
        facts.op,
        because.value.row,
        Reason(because.cause.value, statement.text),
        because.evidence | ({"golden_op": facts.golden} if facts.golden else {}),
        because.value.line,
        facts.within,
        facts.where or where(facts.op),
        step,
        node.rank,
        tuple(behind[:SHOWN]),
        len(behind),
        brief=statement.brief,
    )


def restated(one: Finding, statement: Statement, kind: str = "") -> Finding:
    """Return a finding with another statement, and of another kind if one is given."""
    return replace(one, reason=Reason(kind or one.reason.code, statement.text), brief=statement.brief)


def continued(one: Finding, more: Statement) -> Finding:
    """Return a finding whose statement goes on with another."""
    brief = f"{one.brief or one.reason.detail}{more.brief}"
    return replace(one, reason=Reason(one.reason.code, f"{one.reason.detail}{more.text}"), brief=brief)


def folded(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings without those that say of another call what an earlier one says.

    The same is said of two calls of the same API or class of modules that were called with the same pair of
    different arguments, or whose parameters differ.
    """
    kept: dict[object, Finding] = {}
    same: dict[object, list[str]] = {}
    for number, one in enumerate(findings):
        argument = str(one.evidence.get("argument", "")).removeprefix(one.op)
        key: object = number
        if argument and one.reason.code in (Cause.ARGUMENT.value, Cause.DIFFERENTLY.value):
            same_of = one.reason.code, one.evidence.get("argument_values"), one.evidence.get("returned")
            key = one.rank, one.step, kind_of(one.op), argument, same_of
        if key in kept:
            same[key].append(one.op)
        else:
            kept[key], same[key] = one, []
    return [replace(one, same=tuple(same[key]) or one.same) for key, one in kept.items()]


def kind_of(op: str) -> str:
    """Return the key of an op without its numbers: the same for all calls of one API."""
    return _NUMBER.sub("", op)
