"""Comparison of environment variables and of packages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from probe_diagnosis.conditions.differences import ConditionDifference, ConditionKind, place_in_order

from probe_check.config_check.items import Cell, ConfigDifference, DifferenceLevel, ItemResult, PackItem
from probe_check.config_check.pack import normalize_package_name
from probe_check.config_check.rules import ConfigRules, VariableRule

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
    sides = is_npu(bench, rules), is_npu(cmp, rules)
    results = [result for rule in rules.variables if (result := _compare_variable(rule, bench, cmp, sides)) is not None]
    rows = tuple((*row, difference.level.value) for row, difference in results)
    differences = tuple(difference for _, difference in results)
    return ItemResult(PackItem.ENVIRONMENT, VARIABLE_COLUMNS, rows, differences)


def is_npu(variables: Mapping[str, str], rules: ConfigRules) -> bool:
    """Return True if variables belong to a machine with NPUs."""
    return any(rules.npu_mark in name for name in variables)


def _compare_variable(
    rule: VariableRule, bench: Mapping[str, str], cmp: Mapping[str, str], sides: tuple[bool, bool]
) -> tuple[tuple[Cell, ...], ConfigDifference] | None:
    """Return the row of a variable, its difference and its level; None if it does not differ."""
    names = rule.get_name(is_npu=sides[0]), rule.get_name(is_npu=sides[1])
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
