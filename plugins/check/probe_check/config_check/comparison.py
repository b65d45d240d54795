"""Comparison of two packs, or of the conditions of two recorded runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from probe_diagnosis import ConditionKind, find_condition_differences, place_in_order

from probe_check.config_check.environment import compare_packages, compare_variables
from probe_check.config_check.hyperparameters import compare_hyperparameters
from probe_check.config_check.items import (
    SEVERITY,
    ConfigDifference,
    Gap,
    GapKind,
    Item,
    ItemResult,
    Level,
    worst,
)
from probe_check.config_check.pack import Pack, Place
from probe_check.config_check.random_calls import compare_random_calls
from probe_check.config_check.rules import Rules, load_rules
from probe_check.config_check.tensor_statistics import compare_inputs, compare_weights

CONDITION_COLUMNS = ("step", "rank", "kind", "name", "bench_value", "cmp_value", "level")
NUMBERED = (Item.DATASET, Item.WEIGHTS, Item.CONDITIONS)
"""Items that have a file for each step and rank."""


@dataclass(frozen=True, slots=True)
class ConfigComparison:
    """The result of comparing two configurations.

    Attributes:
        bench: The path of BENCH.
        cmp: The path of CMP.
        results: The result of each item that both have, in the order of the sheets.
        differences: All differences, those first that are serious and may change numbers most.
        gaps: What was not compared.
    """

    bench: Path
    cmp: Path
    results: tuple[ItemResult, ...]
    differences: tuple[ConfigDifference, ...]
    gaps: tuple[Gap, ...]

    @property
    def level(self) -> Level:
        """The level of the worst item."""
        return worst(result.level for result in self.results)


def compare_packs(bench: Pack, cmp: Pack, framework: str) -> ConfigComparison:
    """Compare all items that both packs have.

    Args:
        bench: The reference.
        cmp: The pack to check.
        framework: The framework, whose package is compared.

    Raises:
        UserError: A pack is damaged.
    """
    rules = load_rules()
    shared = bench.items() & cmp.items()
    results = [_compare(item, bench, cmp, framework, rules) for item in Item if item in shared]
    differences = [one for result in results for one in result.differences]
    return ConfigComparison(
        bench.path, cmp.path, tuple(results), tuple(sorted(_unique(differences), key=_order)),
        tuple(_gaps(bench, cmp)),
    )  # fmt: skip


def _compare(item: Item, bench: Pack, cmp: Pack, framework: str, rules: Rules) -> ItemResult:
    comparisons: dict[Item, Callable[[], ItemResult]] = {
        Item.ENVIRONMENT: lambda: compare_variables(bench.variables(), cmp.variables(), rules),
        Item.PACKAGES: lambda: compare_packages(bench.packages(), cmp.packages(), framework, rules),
        Item.DATASET: lambda: compare_inputs(bench, cmp),
        Item.WEIGHTS: lambda: compare_weights(bench, cmp),
        Item.HYPERPARAMETERS: lambda: compare_hyperparameters(
            (
                (file, bench.hyperparameters(file), cmp.hyperparameters(file))
                for file in bench.hyperparameter_files()
                if file in cmp.hyperparameter_files()
            ),
            rules,
        ),
        Item.RANDOM: lambda: compare_random_calls(bench, cmp, rules),
        Item.CONDITIONS: lambda: _compare_conditions(bench, cmp, rules),
    }
    return comparisons[item]()


def _order(one: ConfigDifference) -> tuple[int, int, int, int]:
    """Return the place of a difference: serious ones first, then by effect, then by time."""
    return -SEVERITY[one.level], one.place, one.step or 0, one.rank or 0


def _unique(differences: list[ConfigDifference]) -> Iterator[ConfigDifference]:
    """Yield each condition at its first step, once even if two items name it."""
    found: set[tuple[str, str]] = set()
    for one in sorted(differences, key=lambda one: (one.step or 0, one.rank or 0)):
        key = one.condition.kind.value, one.condition.name
        if key not in found:
            found.add(key)
            yield one


# -- conditions ----------------------------------------------------------------------------------------


def _compare_conditions(bench: Pack, cmp: Pack, rules: Rules) -> ItemResult:
    """Return the conditions that differ, by the same function as a diagnosis of two runs."""
    differences: list[ConfigDifference] = []
    judged = _judged_variables(bench, cmp, rules)
    is_compared = False
    for step, rank in _shared_places(bench, cmp):
        golden, target = bench.conditions((step, rank)), cmp.conditions((step, rank))
        if golden is None or target is None:
            continue
        is_compared = True
        for one in find_condition_differences(target, golden):
            if one.kind is ConditionKind.ENVIRONMENT and one.name in judged:
                continue
            level = rules.condition_levels.get(one.kind.value, Level.WARNING)
            is_seed = one.random is not None and one.random.is_seed
            kind = ConditionKind.HYPERPARAMETER if is_seed else one.kind  # a seed changes weights and batches
            place = place_in_order(kind.value, one.name)
            differences.append(ConfigDifference(Item.CONDITIONS, level, one, place, step, rank))
    rows = tuple(
        (one.step, one.rank, one.condition.kind.value, one.condition.name, one.condition.golden,
         one.condition.target, one.level.value)
        for one in differences
    )  # fmt: skip
    level = worst(one.level for one in differences)
    return ItemResult(Item.CONDITIONS, level, CONDITION_COLUMNS, rows, tuple(differences), is_compared)


def _judged_variables(bench: Pack, cmp: Pack, rules: Rules) -> set[str]:
    """Return the variables that the item of variables judges, by their defaults and by pairs of devices."""
    has_variables = Item.ENVIRONMENT in bench.items() & cmp.items()
    return {name for rule in rules.variables for name in (rule.npu, rule.gpu)} if has_variables else set()


def _shared_places(bench: Pack, cmp: Pack) -> list[Place]:
    return sorted({*bench.places(Item.CONDITIONS)} & {*cmp.places(Item.CONDITIONS)})


# -- what is not compared ------------------------------------------------------------------------------


def _gaps(bench: Pack, cmp: Pack) -> Iterator[Gap]:
    """Yield what only one of the packs has."""
    for side, own, other in (("bench", bench, cmp), ("cmp", cmp, bench)):
        yield from (Gap(GapKind.ONE_SIDED_ITEM, item, side) for item in Item if item in own.items() - other.items())
        if Item.HYPERPARAMETERS in own.items() & other.items():
            files = [file for file in own.hyperparameter_files() if file not in other.hyperparameter_files()]
            if files:
                yield Gap(GapKind.ONE_SIDED_FILE, Item.HYPERPARAMETERS, side, tuple(files))
        for item in NUMBERED:
            if item in own.items() & other.items():
                yield from _numbered_gaps(item, side, own, other)


def _numbered_gaps(item: Item, side: str, own: Pack, other: Pack) -> Iterator[Gap]:
    others = {*other.places(item)}
    missing = [f"step{step}/rank{rank}" for step, rank in own.places(item) if (step, rank) not in others]
    if missing:
        yield Gap(GapKind.ONE_SIDED_STEPS, item, side, tuple(missing))
    if item is Item.CONDITIONS:
        damaged = [
            f"step{step}/rank{rank}" for step, rank in _shared_places(own, other)
            if own.conditions((step, rank)) is None
        ]  # fmt: skip
        if damaged:
            yield Gap(GapKind.DAMAGED_CONDITIONS, item, side, tuple(damaged))
