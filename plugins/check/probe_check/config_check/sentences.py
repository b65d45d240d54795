"""Sentences on the differences between two configurations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from probe_diagnosis import condition_sentence

from probe_check.config_check.comparison import ConfigComparison
from probe_check.config_check.items import ConfigDifference, Gap, GapKind, Item, Level
from probe_core.errors import counted, some

MAX_LISTED_DIFFERENCES = 8
"""Largest number of differences that are printed."""

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
        items = ", ".join(NOUNS[result.item].removeprefix("the ") for result in comparison.results)
        return f"The configurations agree in all that was compared: {items}"
    first, rest = comparison.differences[0], comparison.differences[1:]
    text = difference(first)
    more = f" ({counted(len(rest), 'more difference')})" if rest else ""
    return f"{text[:1].upper()}{text[1:]}{more}"


def difference(one: ConfigDifference) -> str:
    """Return a sentence on a difference, without a full stop."""
    places = [f"{name} {number}" for name, number in (("step", one.step), ("rank", one.rank)) if number]
    return condition_sentence(one.condition) + (f" ({', '.join(places)})" if places else "")


def details(comparison: ConfigComparison) -> Iterator[str]:
    """Yield the lines after the verdict."""
    if comparison.differences:
        yield f"values are those of {comparison.cmp} against those of {comparison.bench}"
    shown = comparison.differences[1:MAX_LISTED_DIFFERENCES]
    for one in shown:
        warning = "warning: " if one.level is Level.WARNING else ""
        yield f"{warning}{difference(one)}"
    rest = len(comparison.differences) - MAX_LISTED_DIFFERENCES
    if rest > 0:
        yield f"and {counted(rest, 'further difference')}"
    yield "; ".join(f"{result.item.value}: {result.level.value}" for result in comparison.results)


def gap(one: Gap, comparison: ConfigComparison) -> str:
    """Return a warning on something that was not compared."""
    path = comparison.bench if one.side == "bench" else comparison.cmp
    noun = NOUNS[one.item]
    if one.kind is GapKind.ONE_SIDED_ITEM:
        return f"{noun} were not compared, because only {path} holds them"
    if one.kind is GapKind.DAMAGED_CONDITIONS:
        return f"the conditions of {some(one.names, 3)} in {path} cannot be read and were not compared"
    return f"{noun} of {some(one.names, 3)} were not compared, because only {path} holds them"


def wrote(paths: list[Path]) -> list[str]:
    """Return a line for each written file."""
    return [f"wrote {path}" for path in paths]
