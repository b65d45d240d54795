"""Sentences on the differences between two configurations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from probe_diagnosis.conditions.condition_sentences import describe_condition
from probe_diagnosis.conditions.differences import ConditionDifference, ConditionKind

from probe_check.config_check.comparison import ConfigComparison
from probe_check.config_check.items import ConfigDifference, DifferenceLevel, Gap, GapKind, PackItem
from probe_core.errors import format_count, format_list

NOT_INSTALLED = "not installed"
MAX_DIGITS = 17
"""Number of digits that distinguish any two numbers."""
ITEM_NOUNS = {
    PackItem.ENVIRONMENT: "the environment variables",
    PackItem.PACKAGES: "the packages",
    PackItem.DATASET: "the inputs of the model",
    PackItem.WEIGHTS: "the weights",
    PackItem.HYPERPARAMETERS: "the hyper-parameters",
    PackItem.RANDOM: "the calls of random functions",
    PackItem.CONDITIONS: "the conditions",
}


def format_verdict(comparison: ConfigComparison) -> str:
    """Return the first line: the most important difference, and the number of the others."""
    if not comparison.differences:
        items = ", ".join(
            ITEM_NOUNS[result.item].removeprefix("the ") for result in comparison.results if result.is_compared
        )
        return f"The configurations agree in all that was compared: {items}"
    first, rest = comparison.differences[0], comparison.differences[1:]
    text = describe_difference(first)
    more = f" ({format_count(len(rest), 'more difference')})" if rest else ""
    return f"{text[:1].upper()}{text[1:]}{more}"


def describe_difference(config_difference: ConfigDifference) -> str:
    """Return a sentence on a difference, without a full stop."""
    places = [
        f"{name} {number}"
        for name, number in (("step", config_difference.step), ("rank", config_difference.rank))
        if number
    ]
    return describe_condition(_format_condition(config_difference)) + (f" ({', '.join(places)})" if places else "")


def _format_condition(config_difference: ConfigDifference) -> ConditionDifference:
    """Return a condition with the name of its statistic, and as many digits as distinguish both values."""
    target, golden = config_difference.condition.target, config_difference.condition.golden
    if config_difference.item is PackItem.PACKAGES:
        return replace(config_difference.condition, target=target or NOT_INSTALLED, golden=golden or NOT_INSTALLED)
    if not config_difference.statistic or not isinstance(target, float) or not isinstance(golden, float):
        return config_difference.condition
    for digits in range(4, MAX_DIGITS + 1):
        texts = [f"{config_difference.statistic} {value:.{digits}g}" for value in (target, golden)]
        if texts[0] != texts[1]:
            break
    return replace(config_difference.condition, target=texts[0], golden=texts[1])


def format_details(comparison: ConfigComparison) -> Iterator[str]:
    """Yield the lines after the verdict: the first difference of each kind, and the level of each item."""
    if comparison.differences:
        yield f"values are those of {comparison.cmp} against those of {comparison.bench}"
    groups: dict[tuple[ConditionKind, DifferenceLevel], list[ConfigDifference]] = {}
    for config_difference in comparison.differences[1:]:
        groups.setdefault((config_difference.condition.kind, config_difference.level), []).append(config_difference)
    for (_, level), group in groups.items():
        warning = "warning: " if level is DifferenceLevel.WARNING else ""
        more = f"; {len(group) - 1:,} more of this kind" if len(group) > 1 else ""
        yield f"{warning}{describe_difference(group[0])}{more}"
    yield "; ".join(f"{result.item.value}: {result.level.value}" for result in comparison.results)


def describe_gap(config_gap: Gap, comparison: ConfigComparison) -> str:
    """Return a warning on something that was not compared."""
    path = comparison.bench if config_gap.side == "bench" else comparison.cmp
    noun = ITEM_NOUNS[config_gap.item]
    if config_gap.kind is GapKind.ONE_SIDED_ITEM:
        return f"{noun} were not compared, because only {path} holds them"
    if config_gap.kind is GapKind.DAMAGED_CONDITIONS:
        return f"the conditions of {format_list(config_gap.names, 3)} in {path} cannot be read and were not compared"
    return f"{noun} of {format_list(config_gap.names, 3)} were not compared, because only {path} holds them"


def describe_written_files(paths: list[Path]) -> list[str]:
    """Return a line for each written file."""
    return [f"wrote {path}" for path in paths]
