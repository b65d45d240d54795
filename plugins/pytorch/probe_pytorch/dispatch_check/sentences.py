"""Sentences on a dispatch check, for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from probe_core.errors import format_count
from probe_pytorch.dispatch_check.findings import (
    CallCounts,
    CallOrigin,
    OperatorDifference,
    OperatorDifferenceKind,
    OperatorFinding,
)
from probe_pytorch.dispatch_check.operators import SkipReason

MAX_LISTED = 5
COMPILED_NOTE = (
    "torch.compile was used in this process: operators inside compiled code are not seen. Under the check, "
    "torch runs most compiled functions uncompiled."
)
REASON_PHRASES = {
    SkipReason.LISTED: "in the list skip",
    SkipReason.VIEW: "that are views",
    SkipReason.UNINITIALISED: "that allocate memory without values",
    SkipReason.RANDOM: "drawing random numbers",
    SkipReason.COLLECTIVE: "communicating with other ranks",
    SkipReason.OTHER_NAMESPACE: "not of aten",
    SkipReason.NO_VALUES: "that return no tensor",
    SkipReason.NOT_UNIQUE: "with more than one correct result",
    SkipReason.SUBCLASS: "of tensor subclasses or functorch transforms",
    SkipReason.LAYOUT: "of sparse, nested or quantized tensors",
    SkipReason.DTYPE: "of complex numbers or float8",
    SkipReason.DEVICE: "on another device",
    SkipReason.ALIASED: "with arguments that share memory in different dtypes",
    SkipReason.MEMORY: "needing more memory than the limit",
    SkipReason.NO_CPU_KERNEL: "without a kernel for the CPU",
    SkipReason.NOT_COMPUTED: "that the CPU cannot compute",
    SkipReason.FAILED: "that failed because of an error in probe",
    SkipReason.LOST: "lost with a process that ended",
}
UNLISTED_REASONS = frozenset({SkipReason.VIEW, SkipReason.UNINITIALISED, SkipReason.NO_VALUES})
"""Reasons of calls that compute nothing, which are not listed."""


def format_origin(origin: CallOrigin) -> str:
    """Return the place in the program, such as ``in layers.1.mlp (MLP) at train.py, line 12``."""
    parts = []
    if origin.module_class:
        parts.append(f"in {origin.module} ({origin.module_class})" if origin.module else f"in {origin.module_class}")
    if origin.file:
        parts.append(f"at {Path(origin.file).name}, line {origin.line}")
    return " ".join(parts)


def describe_finding(finding: OperatorFinding) -> str:
    """Return the sentence on a wrong result of an operator."""
    origin_text = format_origin(finding.origin)
    of_forward = f" of {finding.forward}" if finding.forward else ""
    start = f"{finding.name} ({finding.phase}{of_forward}){', ' if origin_text else ''}{origin_text}"
    return f"{start}: {describe_difference(finding.difference)}"


def describe_difference(difference: OperatorDifference) -> str:
    """Return what a result differs in."""
    result = f"result {difference.output}" if difference.output else "its result"
    cpu = f"that of the CPU in {difference.reference_dtype.rpartition('.')[2]}"
    if difference.kind is OperatorDifferenceKind.STRUCTURE:
        return f"{result} has another structure, shape or kind of dtype than that of the CPU"
    if difference.kind is OperatorDifferenceKind.UNEQUAL:
        return f"{100 * difference.error:.3g} % of the elements of {result} differ from those of the CPU"
    if difference.kind is OperatorDifferenceKind.NON_FINITE:
        return f"{format_count(difference.elements, 'element')} of {result} and {cpu} differ in nan or inf"
    return (
        f"{result} differs from {cpu} by a relative error of {difference.error:.2g}; "
        f"rounding explains {difference.rounding:.2g}"
    )


def describe_agreement(counts: CallCounts) -> str:
    """Return the first line of a check without findings."""
    if not counts.compared:
        return "No operator was compared, so the check says nothing about any operator."
    if counts.compared == 1:
        return "The only compared call agrees with the CPU."
    return f"All {counts.compared:,} compared calls agree with the CPU."


def format_counts(counts: CallCounts, findings: Sequence[OperatorFinding]) -> list[str]:
    """Return the lines on the numbers of calls, and on other wrong operators."""
    lines = [
        f"  {format_count(counts.compared, 'call')} of {format_count(len(counts.operators), 'operator')} compared, "
        f"{counts.wrong:,} wrong"
    ]
    others = [name for name in counts.wrong_operators if findings and name != findings[0].operator]
    if others:
        listed = ", ".join(f"{name} ({counts.wrong_operators[name]:,})" for name in others[:MAX_LISTED])
        more = f" and {len(others) - MAX_LISTED} more" if len(others) > MAX_LISTED else ""
        lines.append(f"  other operators with wrong results: {listed}{more}")
    for reason, text in REASON_PHRASES.items():
        if reason in UNLISTED_REASONS:
            continue
        names = Counter({name: n for (each, name), n in counts.skipped.items() if each is reason})
        if names:
            top = ", ".join(name for name, _ in names.most_common(MAX_LISTED))
            more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
            lines.append(f"  not compared: {format_count(names.total(), 'call')} {text}: {top}{more}")
    return lines
