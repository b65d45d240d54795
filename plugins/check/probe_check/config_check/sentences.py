"""Sentences on the differences between two configurations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from probe_diagnosis import ConditionDifference, ConditionKind, condition_sentence

from probe_check.config_check.comparison import ConfigComparison
from probe_check.config_check.items import ConfigDifference, Gap, GapKind, Item, Level
from probe_core.errors import format_count, format_list

NOT_INSTALLED = "not installed"
MAX_DIGITS = 17
"""Number of digits that distinguish any two numbers."""
NOUNS = {
    Item.ENVIRONMENT: "the environment variables",
    Item.PACKAGES: "the packages",
    Item.DATASET: "the inputs of the model",
    Item.WEIGHTS: "the weights",
    Item.HYPERPARAMETERS: "the hyper-parameters",
    Item.RANDOM: "the calls of random functions",
    Item.CONDITIONS: "the conditions",
}


def verdict(comparison: ConfigComparison) -> str:
    """Return the first line: the most important difference, and the number of the others."""
    if not comparison.differences:
        items = ", ".join(
            NOUNS[result.item].removeprefix("the ") for result in comparison.results if result.is_compared
        )
        return f"The configurations agree in all that was compared: {items}"
    first, rest = comparison.differences[0], comparison.differences[1:]
    text = difference(first)
    more = f" ({format_count(len(rest), 'more difference')})" if rest else ""
    return f"{text[:1].upper()}{text[1:]}{more}"


def difference(one: ConfigDifference) -> str:
    """Return a sentence on a difference, without a full stop."""
    places = [f"{name} {number}" for name, number in (("step", one.step), ("rank", one.rank)) if number]
    return condition_sentence(_shown(one)) + (f" ({', '.join(places)})" if places else "")


def _shown(one: ConfigDifference) -> ConditionDifference:
    """Return a condition with the name of its statistic, and as many digits as distinguish both values."""
    target, golden = one.condition.target, one.condition.golden
    if one.item is Item.PACKAGES:
        return replace(one.condition, target=target or NOT_INSTALLED, golden=golden or NOT_INSTALLED)
    if not one.statistic or not isinstance(target, float) or not isinstance(golden, float):
        return one.condition
    for digits in range(4, MAX_DIGITS + 1):
        texts = [f"{one.statistic} {value:.{digits}g}" for value in (target, golden)]
        if texts[0] != texts[1]:
            break
    return replace(one.condition, target=texts[0], golden=texts[1])


def details(comparison: ConfigComparison) -> Iterator[str]:
    """Yield the lines after the verdict: the first difference of each kind, and the level of each item."""
    if comparison.differences:
        yield f"values are those of {comparison.cmp} against those of {comparison.bench}"
    groups: dict[tuple[ConditionKind, Level], list[ConfigDifference]] = {}
    for one in comparison.differences[1:]:
        groups.setdefault((one.condition.kind, one.level), []).append(one)
    for (_, level), group in groups.items():
        warning = "warning: " if level is Level.WARNING else ""
        more = f"; {len(group) - 1:,} more of this kind" if len(group) > 1 else ""
        yield f"{warning}{difference(group[0])}{more}"
    yield "; ".join(f"{result.item.value}: {result.level.value}" for result in comparison.results)


def gap(one: Gap, comparison: ConfigComparison) -> str:
    """Return a warning on something that was not compared."""
    path = comparison.bench if one.side == "bench" else comparison.cmp
    noun = NOUNS[one.item]
    if one.kind is GapKind.ONE_SIDED_ITEM:
        return f"{noun} were not compared, because only {path} holds them"
    if one.kind is GapKind.DAMAGED_CONDITIONS:
        return f"the conditions of {format_list(one.names, 3)} in {path} cannot be read and were not compared"
    return f"{noun} of {format_list(one.names, 3)} were not compared, because only {path} holds them"


def wrote(paths: list[Path]) -> list[str]:
    """Return a line for each written file."""
    return [f"wrote {path}" for path in paths]
