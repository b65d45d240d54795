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
    """The names that a plan maps, by their names in ``Plan.options``.

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


def maps_names(plan: Plan) -> bool:
    """Return True if the user asks for names to be mapped (``-am``, ``-cm``, ``-lm``)."""
    mappings = NameMappings.from_plan(plan)
    return mappings.across or mappings.has_files


def choose_fuzzy_matcher(plan: Plan, values: Mapping[str, Any], option_names: Set[str]) -> Plan:
    """Return the plan with ``-f``.

    Args:
        plan: The plan without it.
        values: The flag.
        option_names: The names of the options that the user gave.

    Raises:
        UserError: The user chose a matcher as well.
    """
    if "matcher" in option_names:
        what = "fuzzy (-f, --fuzzy-match) and matcher (--match, --matcher) exclude each other."
        raise UserError(what, "Leave one of them out.")
    return replace(plan, matcher="fuzzy")


def add_mappings(plan: Plan, values: Mapping[str, Any], option_names: Set[str]) -> Plan:
    """Return the plan with the options that map names; True stands for one without a file.

    Args:
        plan: The plan without them.
        values: The files.
        option_names: The names of the options that the user gave.
    """
    files = {name: value for name, value in values.items() if value is not True}
    return plan.with_options(**files, across=len(files) < len(values))
