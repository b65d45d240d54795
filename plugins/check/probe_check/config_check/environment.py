"""Comparison of environment variables and of packages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from probe_diagnosis import ConditionDifference, ConditionKind, place_in_order

from probe_check.config_check.items import Cell, ConfigDifference, Item, ItemResult, Level, worst
from probe_check.config_check.pack import index_name
from probe_check.config_check.rules import Rules, VariableRule

VARIABLE_COLUMNS = ("bench_env_name", "cmp_env_name", "bench_value", "cmp_value", "level")
PACKAGE_COLUMNS = ("package", "bench version", "cmp version", "level")
ONLY_BENCH, ONLY_CMP = "only bench has this env", "only cmp has this env"
NO_PACKAGE = "None"


def compare_variables(bench: Mapping[str, str], cmp: Mapping[str, str], rules: Rules) -> ItemResult:
    """Return the documented environment variables that differ.

    Args:
        bench: All variables of BENCH.
        cmp: All variables of CMP.
        rules: The rules.
    """
    sides = is_npu(bench, rules), is_npu(cmp, rules)
    found = [one for rule in rules.variables if (one := _variable(rule, bench, cmp, sides)) is not None]
    rows = tuple((*row, level.value) for row, _, level in found)
    differences = tuple(difference for _, difference, _ in found)
    return ItemResult(Item.ENVIRONMENT, worst(level for *_, level in found), VARIABLE_COLUMNS, rows, differences)


def is_npu(variables: Mapping[str, str], rules: Rules) -> bool:
    """Return True if variables belong to a machine with NPUs."""
    return any(rules.npu_mark in name for name in variables)


def _variable(
    rule: VariableRule, bench: Mapping[str, str], cmp: Mapping[str, str], sides: tuple[bool, bool]
) -> tuple[tuple[Cell, ...], ConfigDifference, Level] | None:
    """Return the row of a variable, its difference and its level; None if it does not differ."""
    names = rule.name(is_npu=sides[0]), rule.name(is_npu=sides[1])
    values = [own.get(name, rule.default) if name else "" for name, own in zip(names, (bench, cmp))]
    if names == ("", "") or (all(names) and values[0] == values[1]):
        return None
    level = Level.ERROR if all(names) else Level.WARNING
    shown_name = " and ".join(dict.fromkeys(filter(None, names)))
    kind = ConditionKind.ENVIRONMENT
    bench_value, cmp_value = (value if name else None for name, value in zip(names, values))
    condition = ConditionDifference(kind, shown_name, cmp_value, bench_value)
    place = place_in_order(kind.value, names[1])
    row = (names[0] or ONLY_CMP, names[1] or ONLY_BENCH, *values)
    return row, ConfigDifference(Item.ENVIRONMENT, level, condition, place), level


def compare_packages(bench: Mapping[str, str], cmp: Mapping[str, str], framework: str, rules: Rules) -> ItemResult:
    """Return the documented packages whose versions differ.

    Args:
        bench: The packages of BENCH.
        cmp: The packages of CMP.
        framework: The framework, whose package is compared as well.
        rules: The rules.
    """
    differences = tuple(_package_differences(bench, cmp, framework, rules))
    rows = tuple((one.condition.name, *_versions(one.condition), one.level.value) for one in differences)
    return ItemResult(Item.PACKAGES, worst(one.level for one in differences), PACKAGE_COLUMNS, rows, differences)


def _versions(condition: ConditionDifference) -> tuple[Cell, Cell]:
    return condition.golden or NO_PACKAGE, condition.target or NO_PACKAGE


def _package_differences(
    bench: Mapping[str, str], cmp: Mapping[str, str], framework: str, rules: Rules
) -> Iterator[ConfigDifference]:
    for package in (*rules.packages, rules.framework_packages.get(framework, framework)):
        target, golden = cmp.get(index_name(package)), bench.get(index_name(package))
        if target != golden:
            kind = ConditionKind.VERSIONS
            condition = ConditionDifference(kind, package, target, golden)
            place = place_in_order(kind.value, package)
            yield ConfigDifference(Item.PACKAGES, Level.ERROR, condition, place)
