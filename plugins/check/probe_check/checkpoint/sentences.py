"""Sentences about a comparison of checkpoints."""

from __future__ import annotations

import math
from collections.abc import Iterator

from probe_check.checkpoint.result import CheckpointComparison, Match, Relation, SettingPair, TensorPair
from probe_core.errors import format_count, make_printable

MAX_LISTED = 5


def format_verdict(comparison: CheckpointComparison) -> str:
    """Return the verdict in one line."""
    differing, total = comparison.differing, len(comparison.pairs)
    if differing:
        main = find_main_pair(comparison)
        name = make_printable(main.name)
        subject = f"the first, {name}," if main is differing[0] and len(differing) > 1 else name
        return (
            f"DIVERGED: {len(differing):,} of {format_count(total, 'tensor')} differ; {subject} {describe_pair(main)}"
        )
    remarks = list(_describe_missing(comparison))
    if comparison.optimizer_settings:
        remarks.append(_describe_setting(comparison.optimizer_settings[0]))
    if remarks:
        verb = "is" if total == 1 else "are"
        return f"DIVERGED: {format_count(total, 'common tensor')} {verb} equal; {'; '.join(remarks)}"
    return f"AGREE: all {format_count(total, 'tensor')} are equal"


def find_main_pair(comparison: CheckpointComparison) -> TensorPair:
    """Return the differing pair that the verdict names: the first with a known content, or the first."""
    differing = comparison.differing
    return next((pair for pair in differing if pair.match is not None), differing[0])


def describe_pair(pair: TensorPair) -> str:
    """Return how a pair differs, to follow its name."""
    if pair.match is not None:
        return _describe_match(pair, pair.match)
    if pair.distance is None:
        first, second = (list(shape) for shape in pair.shapes)
        return f"has the shape {first}, and {second} in the other"
    distance = pair.distance
    if not math.isfinite(distance.l2):
        return f"contains values that are not finite (l2 {distance.l2})"
    norm = distance.norms[1]
    relative = f", {distance.l2 / norm:.3g} of its norm" if norm else ""
    kinds = "" if pair.types[0] == pair.types[1] else f" ({pair.types[0]}, and {pair.types[1]} in the other)"
    cosine = "" if distance.cosine is None else f", cos {_format_cosine(distance.cosine)}"
    return f"differs by l2 {distance.l2:.3g}{relative}{cosine}{kinds}"


def _describe_match(pair: TensorPair, match: Match) -> str:
    matched_name = make_printable(shorten_name(pair.golden_name, match.name))
    if match.relation is Relation.SWAPPED:
        return f"equals {matched_name} of the other: swapped?"
    if match.relation is Relation.EQUALS_OTHER:
        return f"equals {matched_name} of the other: copied?"
    if match.relation is Relation.OTHER_EQUALS:
        return f"differs, and {matched_name} equals it in the other: copied?"
    if match.relation is Relation.TRANSPOSED:
        return "is the transpose of the other"
    if match.relation is Relation.EARLIER_ITERATION:
        return f"equals that of {match.iteration} of the other: stale?"
    return f"has not changed since {match.iteration}: stale?"


def shorten_name(name: str, matched_name: str) -> str:
    """Return the component in which a name differs, if it is a word and the only one; else the whole name."""
    parts, others = name.split("."), matched_name.split(".")
    if len(parts) != len(others):
        return matched_name
    differing = [
        matched_component for component, matched_component in zip(parts, others) if component != matched_component
    ]
    return differing[0] if len(differing) == 1 and not differing[0].isdigit() else matched_name


def _format_cosine(value: float) -> str:
    """Return a cosine that reads as 1 only if it is 1."""
    text = f"{value:.6g}"
    return text if value == 1 or text != "1" else f"1 - {1 - value:.2g}"


def _describe_missing(comparison: CheckpointComparison) -> Iterator[str]:
    for names, side in ((comparison.target_only, "target"), (comparison.golden_only, "golden checkpoint")):
        if names:
            verb = "is" if len(names) == 1 else "are"
            yield f"{format_count(len(names), 'tensor')} {verb} only in the {side}, such as {make_printable(names[0])}"
    for checkpoint, side in ((comparison.target, "target"), (comparison.golden, "golden checkpoint")):
        for name, why in list(checkpoint.unreadable.items())[:1]:
            count = len(checkpoint.unreadable)
            verb = f"{format_count(count, 'tensor')} of the {side} cannot be compared"
            yield f"{verb}: {make_printable(name)} {why}"


def format_details(comparison: CheckpointComparison) -> Iterator[str]:
    """Yield lines about the other differing tensors, and about what was not compared."""
    yield from comparison.target.remarks
    yield from (remark for remark in comparison.golden.remarks if remark not in comparison.target.remarks)
    differing = comparison.differing
    others = [pair for pair in differing if pair is not find_main_pair(comparison)] if differing else []
    others.sort(key=lambda pair: pair.match is None)
    for pair in others[:MAX_LISTED]:
        line = f"{make_printable(pair.name)} {describe_pair(pair)}"
        yield line if line.endswith("?") else f"{line}."
    if len(others) > MAX_LISTED:
        yield f"{format_count(len(others) - MAX_LISTED, 'other tensor')} differ; the file lists them."
    if differing:
        for line in _describe_missing(comparison):
            yield f"{line[0].upper()}{line[1:]}."
    yield from _describe_settings(comparison)


def _describe_setting(setting: SettingPair) -> str:
    name = make_printable(setting.name)
    if setting.golden is None or setting.target is None:
        side = "target" if setting.golden is None else "golden checkpoint"
        return f"only the {side} has {name}"
    first, second = (make_printable(str(value), 60) for value in (setting.target, setting.golden))
    return f"{name} is {first}, and {second} in the other"


def _describe_settings(comparison: CheckpointComparison) -> Iterator[str]:
    ordered = [*comparison.optimizer_settings]
    ordered += [setting for setting in comparison.settings if setting not in ordered]
    for setting in ordered[:MAX_LISTED]:
        yield f"{_describe_setting(setting)}."
    if len(comparison.settings) > MAX_LISTED:
        yield f"{format_count(len(comparison.settings) - MAX_LISTED, 'other setting')} differ."
