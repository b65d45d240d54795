"""Sentences on a dispatch check, for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from probe_core.errors import format_count
from probe_pytorch.dispatch_check.findings import Counts, Difference, Finding, Kind, Origin
from probe_pytorch.dispatch_check.operators import Reason

MAX_LISTED = 5
COMPILED = (
    "torch.compile was used in this process: operators inside compiled code are not seen. Under the check, "
    "torch runs most compiled functions uncompiled."
)
REASONS = {
    Reason.LISTED: "in the list skip",
    Reason.VIEW: "that are views",
    Reason.UNINITIALISED: "that allocate memory without values",
    Reason.RANDOM: "that draw random numbers",
    Reason.COLLECTIVE: "that communicate",
    Reason.OTHER_NAMESPACE: "not of aten",
    Reason.NO_VALUES: "that return no tensor",
    Reason.NOT_UNIQUE: "with more than one right result",
    Reason.SUBCLASS: "of tensor subclasses or functorch transforms",
    Reason.LAYOUT: "of sparse, nested or quantized tensors",
    Reason.DTYPE: "of complex numbers or float8",
    Reason.DEVICE: "on another device",
    Reason.ALIASED: "with arguments that share memory in different dtypes",
    Reason.MEMORY: "that need more memory than the limit",
    Reason.NO_CPU_KERNEL: "without a kernel for the CPU",
    Reason.NOT_COMPUTED: "that the CPU cannot compute",
    Reason.FAILED: "that failed because of an error in probe",
    Reason.LOST: "lost with a process that ended",
}
QUIET = frozenset({Reason.VIEW, Reason.UNINITIALISED, Reason.NO_VALUES})
"""Reasons of calls that compute nothing, which are not listed."""


def place(origin: Origin) -> str:
    """Return the place in the program, such as ``in layers.1.mlp (MLP) at train.py, line 12``."""
    parts = []
    if origin.module_class:
        parts.append(f"in {origin.module} ({origin.module_class})" if origin.module else f"in {origin.module_class}")
    if origin.file:
        parts.append(f"at {Path(origin.file).name}, line {origin.line}")
    return " ".join(parts)


def first_line(finding: Finding) -> str:
    """Return the sentence on the operator that went wrong first."""
    where = place(finding.origin)
    of_forward = f" of {finding.forward}" if finding.forward else ""
    start = f"{finding.name} ({finding.phase}{of_forward}){', ' if where else ''}{where}"
    return f"{start}: {statement(finding.difference)}"


def statement(difference: Difference) -> str:
    """Return what a result differs in."""
    result = f"result {difference.output}" if difference.output else "its result"
    cpu = f"that of the CPU in {difference.reference_dtype.rpartition('.')[2]}"
    if difference.kind is Kind.STRUCTURE:
        return f"{result} has another structure, shape or kind of dtype than that of the CPU"
    if difference.kind is Kind.UNEQUAL:
        return f"{difference.error:.3g} of the elements of {result} differ from those of the CPU"
    if difference.kind is Kind.NON_FINITE:
        return f"{format_count(difference.elements, 'element')} of {result} and {cpu} differ in nan or inf"
    return (
        f"{result} differs from {cpu} by a relative error of {difference.error:.2g}; "
        f"rounding explains {difference.rounding:.2g}"
    )


def agreement(counts: Counts) -> str:
    """Return the first line of a check without findings."""
    if not counts.compared:
        return "No operator was compared, so the check says nothing about any operator."
    if counts.compared == 1:
        return "The only compared call agrees with the CPU."
    return f"All {counts.compared:,} compared calls agree with the CPU."


def count_lines(counts: Counts, findings: Sequence[Finding]) -> list[str]:
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
    for reason, text in REASONS.items():
        if reason in QUIET:
            continue
        names = Counter({name: n for (each, name), n in counts.skipped.items() if each is reason})
        if names:
            top = ", ".join(name for name, _ in names.most_common(MAX_LISTED))
            more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
            lines.append(f"  not compared: {format_count(names.total(), 'call')} {text}: {top}{more}")
    return lines
