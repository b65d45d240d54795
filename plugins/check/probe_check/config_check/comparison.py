"""Comparison of two packs, or of the conditions of two recorded runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from probe_diagnosis.conditions.differences import (
    ConditionDifference,
    ConditionKind,
    find_condition_differences,
    place_in_order,
)

from probe_check.config_check.hyperparameters import compare_hyperparameters
from probe_check.config_check.items import (
    SEVERITY,
    Cell,
    ConfigDifference,
    DifferenceLevel,
    Gap,
    GapKind,
    ItemResult,
    PackItem,
    find_worst_level,
)
from probe_check.config_check.pack import Pack, StepRank, normalize_package_name
from probe_check.config_check.random_calls import compare_random_calls
from probe_check.config_check.rules import ConfigRules, VariableRule, load_rules
from probe_check.config_check.tensor_statistics import compare_inputs, compare_weights

CONDITION_COLUMNS = ("step", "rank", "kind", "name", "bench_value", "cmp_value", "level")
PER_STEP_ITEMS = (PackItem.DATASET, PackItem.WEIGHTS, PackItem.CONDITIONS)
"""Items that have a file for each step and rank."""


@dataclass(frozen=True, slots=True)
class ConfigComparison:
    """The result of comparing two configurations.

    Attributes:
        bench: The path of BENCH.
        cmp: The path of CMP.
        results: The result of each item that both have, in the order of the sheets.
        differences: The most serious difference of each condition, by severity and then by their expected effect on
            numbers.
        gaps: Items that were not compared.
    """

    bench: Path
    cmp: Path
    results: tuple[ItemResult, ...]
    differences: tuple[ConfigDifference, ...]
    gaps: tuple[Gap, ...]

    @property
    def level(self) -> DifferenceLevel:
        """The level of the worst item."""
        return find_worst_level(result.level for result in self.results)


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
    shared = bench.list_items() & cmp.list_items()
    results = [_compare(item, bench, cmp, framework, rules) for item in PackItem if item in shared]
    differences = [difference for result in results for difference in result.differences]
    return ConfigComparison(
        bench.path, cmp.path, tuple(results), tuple(sorted(_drop_repeated(differences), key=_get_sort_key)),
        tuple(_find_gaps(bench, cmp)),
    )  # fmt: skip


def _compare(item: PackItem, bench: Pack, cmp: Pack, framework: str, rules: ConfigRules) -> ItemResult:
    comparisons: dict[PackItem, Callable[[], ItemResult]] = {
        PackItem.ENVIRONMENT: lambda: compare_variables(bench.read_variables(), cmp.read_variables(), rules),
        PackItem.PACKAGES: lambda: compare_packages(bench.read_packages(), cmp.read_packages(), framework, rules),
        PackItem.DATASET: lambda: compare_inputs(bench, cmp),
        PackItem.WEIGHTS: lambda: compare_weights(bench, cmp),
        PackItem.HYPERPARAMETERS: lambda: compare_hyperparameters(
            (
                (file, bench.read_hyperparameters(file), cmp.read_hyperparameters(file))
                for file in bench.list_hyperparameter_files()
                if file in cmp.list_hyperparameter_files()
            ),
            rules,
        ),
        PackItem.RANDOM: lambda: compare_random_calls(bench, cmp, rules),
        PackItem.CONDITIONS: lambda: _compare_conditions(bench, cmp, rules),
    }
    return comparisons[item]()


def _get_sort_key(difference: ConfigDifference) -> tuple[int, int, int, int]:
    """Return the sort key of a difference: severity, then expected effect on results, then step and rank."""
    return -SEVERITY[difference.level], difference.place, difference.step or 0, difference.rank or 0


def _drop_repeated(differences: Iterable[ConfigDifference]) -> Iterator[ConfigDifference]:
    """Yield the most serious difference of each condition: of several, the first by step and rank.

    A condition that several items contain is yielded once.
    """
    reported_keys: set[tuple[str, str]] = set()
    for difference in sorted(differences, key=_get_repetition_key):
        key = difference.condition.kind.value, difference.condition.name
        if key not in reported_keys:
            reported_keys.add(key)
            yield difference


def _get_repetition_key(difference: ConfigDifference) -> tuple[int, int, int]:
    return -SEVERITY[difference.level], difference.step or 0, difference.rank or 0


# -- conditions ----------------------------------------------------------------------------------------


def _compare_conditions(bench: Pack, cmp: Pack, rules: ConfigRules) -> ItemResult:
    """Return the conditions that differ, as a diagnosis of two runs finds them."""
    differences: list[ConfigDifference] = []
    judged_variables = _list_judged_variables(bench, cmp, rules)
    is_compared = False
    for step, rank in _find_shared_places(bench, cmp):
        golden, target = bench.read_conditions((step, rank)), cmp.read_conditions((step, rank))
        if golden is None or target is None:
            continue
        is_compared = True
        for difference in find_condition_differences(target, golden):
            if difference.kind is ConditionKind.ENVIRONMENT and difference.name in judged_variables:
                continue
            level = rules.condition_levels.get(difference.kind.value, DifferenceLevel.WARNING)
            is_seed = difference.random is not None and difference.random.is_seed
            kind = ConditionKind.HYPERPARAMETER if is_seed else difference.kind  # a seed changes weights and batches
            place = place_in_order(kind.value, difference.name)
            differences.append(ConfigDifference(PackItem.CONDITIONS, level, difference, place, step, rank))
    rows = tuple(
        (difference.step, difference.rank, difference.condition.kind.value, difference.condition.name,
         difference.condition.golden,
         difference.condition.target, difference.level.value)
        for difference in differences
    )  # fmt: skip
    return ItemResult(PackItem.CONDITIONS, CONDITION_COLUMNS, rows, tuple(differences), is_compared)


def _list_judged_variables(bench: Pack, cmp: Pack, rules: ConfigRules) -> set[str]:
    """Return the variables that ``PackItem.ENVIRONMENT`` already judges; empty if a pack lacks this item."""
    has_variables = PackItem.ENVIRONMENT in bench.list_items() & cmp.list_items()
    return {name for rule in rules.variables for name in (rule.npu, rule.gpu)} if has_variables else set()


def _find_shared_places(bench: Pack, cmp: Pack) -> list[StepRank]:
    return sorted({*bench.list_places(PackItem.CONDITIONS)} & {*cmp.list_places(PackItem.CONDITIONS)})


# -- what is not compared ------------------------------------------------------------------------------


def _find_gaps(bench: Pack, cmp: Pack) -> Iterator[Gap]:
    """Yield the items, files and steps that only one of the packs has."""
    for side, pack, other_pack in (("bench", bench, cmp), ("cmp", cmp, bench)):
        yield from (
            Gap(GapKind.ONE_SIDED_ITEM, item, side)
            for item in PackItem
            if item in pack.list_items() - other_pack.list_items()
        )
        if PackItem.HYPERPARAMETERS in pack.list_items() & other_pack.list_items():
            files = [
                file for file in pack.list_hyperparameter_files() if file not in other_pack.list_hyperparameter_files()
            ]
            if files:
                yield Gap(GapKind.ONE_SIDED_FILE, PackItem.HYPERPARAMETERS, side, tuple(files))
        for item in PER_STEP_ITEMS:
            if item in pack.list_items() & other_pack.list_items():
                yield from _find_step_gaps(item, side, pack, other_pack)


def _find_step_gaps(item: PackItem, side: str, pack: Pack, other_pack: Pack) -> Iterator[Gap]:
    others = {*other_pack.list_places(item)}
    missing = [f"step{step}/rank{rank}" for step, rank in pack.list_places(item) if (step, rank) not in others]
    if missing:
        yield Gap(GapKind.ONE_SIDED_STEPS, item, side, tuple(missing))
    if item is PackItem.CONDITIONS:
        damaged = [
            f"step{step}/rank{rank}" for step, rank in _find_shared_places(pack, other_pack)
            if pack.read_conditions((step, rank)) is None
        ]  # fmt: skip
        if damaged:
            yield Gap(GapKind.DAMAGED_CONDITIONS, item, side, tuple(damaged))


# -- comparison of environment variables and of packages --------------------------------------------


VARIABLE_COLUMNS = ("bench_env_name", "cmp_env_name", "bench_value", "cmp_value", "level")
PACKAGE_COLUMNS = ("package", "bench version", "cmp version", "level")
ONLY_BENCH, ONLY_CMP = "only bench has this env", "only cmp has this env"
MISSING_PACKAGE = "None"


def compare_variables(bench: Mapping[str, str], cmp: Mapping[str, str], rules: ConfigRules) -> ItemResult:
    """Return the documented environment variables that differ.

    Args:
        bench: All variables of BENCH.
        cmp: All variables of CMP.
        rules: The rules.
    """
    are_npu = is_npu(bench, rules), is_npu(cmp, rules)
    results = [
        result for rule in rules.variables if (result := _compare_variable(rule, bench, cmp, are_npu)) is not None
    ]
    rows = tuple((*row, difference.level.value) for row, difference in results)
    differences = tuple(difference for _, difference in results)
    return ItemResult(PackItem.ENVIRONMENT, VARIABLE_COLUMNS, rows, differences)


def is_npu(variables: Mapping[str, str], rules: ConfigRules) -> bool:
    """Return True if variables belong to a machine with NPUs."""
    return any(rules.npu_mark in name for name in variables)


def _compare_variable(
    rule: VariableRule, bench: Mapping[str, str], cmp: Mapping[str, str], are_npu: tuple[bool, bool]
) -> tuple[tuple[Cell, ...], ConfigDifference] | None:
    """Return the row of a variable and its difference; None if it does not differ."""
    names = rule.get_name(is_npu=are_npu[0]), rule.get_name(is_npu=are_npu[1])
    values = [variables.get(name, rule.default) if name else "" for name, variables in zip(names, (bench, cmp))]
    if names == ("", "") or (all(names) and values[0] == values[1]):
        return None
    level = DifferenceLevel.ERROR if all(names) else DifferenceLevel.WARNING
    shown_name = " and ".join(dict.fromkeys(filter(None, names)))
    kind = ConditionKind.ENVIRONMENT
    bench_value, cmp_value = (value if name else None for name, value in zip(names, values))
    condition = ConditionDifference(kind, shown_name, cmp_value, bench_value)
    place = place_in_order(kind.value, names[1])
    row = (names[0] or ONLY_CMP, names[1] or ONLY_BENCH, *values)
    return row, ConfigDifference(PackItem.ENVIRONMENT, level, condition, place)


def compare_packages(
    bench: Mapping[str, str], cmp: Mapping[str, str], framework: str, rules: ConfigRules
) -> ItemResult:
    """Return the documented packages whose versions differ.

    Args:
        bench: The packages of BENCH.
        cmp: The packages of CMP.
        framework: The framework, whose package is compared as well.
        rules: The rules.
    """
    differences = tuple(_find_package_differences(bench, cmp, framework, rules))
    rows = tuple(
        (difference.condition.name, *_get_versions(difference.condition), difference.level.value)
        for difference in differences
    )
    return ItemResult(PackItem.PACKAGES, PACKAGE_COLUMNS, rows, differences)


def _get_versions(condition: ConditionDifference) -> tuple[Cell, Cell]:
    return condition.golden or MISSING_PACKAGE, condition.target or MISSING_PACKAGE


def _find_package_differences(
    bench: Mapping[str, str], cmp: Mapping[str, str], framework: str, rules: ConfigRules
) -> Iterator[ConfigDifference]:
    for package in (*rules.packages, rules.framework_packages.get(framework, framework)):
        target, golden = cmp.get(normalize_package_name(package)), bench.get(normalize_package_name(package))
        if target != golden:
            kind = ConditionKind.VERSIONS
            condition = ConditionDifference(kind, package, target, golden)
            place = place_in_order(kind.value, package)
            yield ConfigDifference(PackItem.PACKAGES, DifferenceLevel.ERROR, condition, place)
