"""The options of compare that pair names: ``-f``, ``-dm``, ``-am``, ``-cm`` and ``-lm``."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from probe_core.errors import UserError
from probe_core.model.plan import Plan


@dataclass(frozen=True, slots=True)
class NameMappings:
    """The options of a plan that map names. Each field is named as the key in ``Plan.options``.

    Attributes:
        mapping: A file that pairs rows, or its contents (``-dm``).
        across: True if the user asks to compare two frameworks (``-am`` or ``-cm`` without a file).
        api_mapping: A file that pairs APIs and their arguments (``-am``).
        cell_mapping: A file that pairs modules (``-cm``).
        layer_mapping: A file that pairs the children of classes of modules (``-lm``).
    """

    mapping: Path | Mapping[str, str] | None = None
    across: bool = False
    api_mapping: Path | None = None
    cell_mapping: Path | None = None
    layer_mapping: Path | None = None

    @classmethod
    def from_plan(cls, plan: Plan) -> NameMappings:
        """Return the mappings of a plan."""
        return cls(**{field.name: plan.options.get(field.name, field.default) for field in fields(cls)})

    @property
    def has_files(self) -> bool:
        """True if a file maps APIs, modules, or children of modules."""
        return any(file is not None for file in (self.api_mapping, self.cell_mapping, self.layer_mapping))


def has_name_mappings(plan: Plan) -> bool:
    """Return True if the user asks for names to be mapped (``-am``, ``-cm``, ``-lm``)."""
    mappings = NameMappings.from_plan(plan)
    return mappings.across or mappings.has_files


def choose_fuzzy_matcher(plan: Plan, values: Mapping[str, Any], option_names: Set[str]) -> Plan:
    """Return the plan with the fuzzy matcher, which ``-f`` selects.

    Args:
        plan: The plan without ``-f``.
        values: The value of the flag; not used.
        option_names: The names of the options that the user gave.

    Raises:
        UserError: The user also gave ``--match``.
    """
    if "matcher" in option_names:
        problem = "-f (--fuzzy-match) and --match (--matcher) exclude each other."
        raise UserError(problem, "Leave one of them out.")
    return replace(plan, matcher="fuzzy")


def add_mappings(plan: Plan, values: Mapping[str, Any], option_names: Set[str]) -> Plan:
    """Return the plan with the options that map names. An option without a file has the value True.

    Args:
        plan: The plan without these options.
        values: The file of each option that the user gave, or True.
        option_names: The names of the options that the user gave.
    """
    files = {name: value for name, value in values.items() if value is not True}
    return plan.with_options(**files, across=any(value is True for value in values.values()))
