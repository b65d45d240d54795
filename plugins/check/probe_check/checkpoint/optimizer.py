"""Names of parameters in the states of optimizers (docs/checkpoints.md#optimizer-states).

``torch.optim`` identifies parameters by numbers. The file contains their names only if the optimizer received
names. Otherwise, the names of the model's tensors are used if the model has the same number of tensors, in the
same order and with the same shapes.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from probe_check.checkpoint.model import Setting
from probe_check.checkpoint.tensors import Tensor

OPTIMIZER_PREFIX = "optimizer."
_STATE_NAME = re.compile(r"(.*?)state\.(\d+)\.(.+)")
_MEMBER_NAME = re.compile(r"(.*?)param_groups\.(\d+)\.(params|param_names)\.(\d+)")


@dataclass(slots=True)
class _ParameterGroup:
    """The lists ``params`` and ``param_names`` of a parameter group."""

    params: list[Setting] = field(default_factory=list)
    param_names: list[Setting] = field(default_factory=list)


ParameterGroups = dict[str, _ParameterGroup]
"""The parameter groups of an optimizer, by the number of the group."""


def belongs_to_optimizer(name: str) -> bool:
    """Return True for the name of a state or a setting of an optimizer."""
    return name.startswith(OPTIMIZER_PREFIX) or f".{OPTIMIZER_PREFIX}" in name


def is_optimizer_setting(name: str) -> bool:
    """Return True for a setting of an optimizer, such as its learning rate."""
    return belongs_to_optimizer(name) and "param_groups." in name


def replace_parameter_numbers(
    tensors: Mapping[str, Tensor], settings: Mapping[str, Setting]
) -> tuple[dict[str, Tensor], dict[str, Setting]]:
    """Return tensors and settings with the names of parameters in place of their numbers."""
    groups_by_prefix = _collect_groups(settings)
    names_by_prefix: dict[str, dict[str, str]] = {}
    for prefix in _find_optimizer_prefixes(tensors):
        groups = groups_by_prefix.get(prefix, {})
        names_by_prefix[prefix] = _read_stated_names(groups) or _match_model_names(prefix, groups, tensors)
    return (
        {_replace_number(name, names_by_prefix): tensor for name, tensor in tensors.items()},
        {_replace_number(name, names_by_prefix): value for name, value in settings.items()},
    )


def _find_optimizer_prefixes(names: Iterable[str]) -> set[str]:
    """Return the prefixes of the names of optimizer states."""
    matches = (_STATE_NAME.fullmatch(name) for name in names if belongs_to_optimizer(name))
    return {match[1] for match in matches if match is not None}


def is_group_member(name: str) -> bool:
    """Return True for an entry of ``params`` or ``param_names`` of a parameter group, which is not a setting."""
    return belongs_to_optimizer(name) and _MEMBER_NAME.fullmatch(name) is not None


def _collect_groups(settings: Mapping[str, Setting]) -> dict[str, ParameterGroups]:
    """Return the parameter groups of each optimizer, by the prefix of the optimizer's names."""
    groups_by_prefix: dict[str, ParameterGroups] = {}
    for name, value in settings.items():
        match = _MEMBER_NAME.fullmatch(name) if belongs_to_optimizer(name) else None
        if match is None:
            continue
        prefix, number, field_name, _ = match.groups()
        group = groups_by_prefix.setdefault(prefix, defaultdict(_ParameterGroup))[number]
        (group.params if field_name == "params" else group.param_names).append(value)
    return groups_by_prefix


def _read_stated_names(groups: ParameterGroups) -> dict[str, str]:
    """Return the name that the file states for each parameter number.

    The result is empty if a group does not have one name per parameter.
    """
    name_by_number: dict[str, str] = {}
    for group in groups.values():
        if len(group.params) != len(group.param_names):
            return {}
        name_by_number.update((str(number), str(name)) for number, name in zip(group.params, group.param_names))
    return name_by_number


def _match_model_names(prefix: str, groups: ParameterGroups, tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Return the name of the model's tensor for each parameter number.

    The result is empty if the number or the shapes of the tensors do not match.
    """
    model_tensors = {name: tensor for name, tensor in tensors.items() if not belongs_to_optimizer(name)}
    numbers = [str(number) for group in groups.values() for number in group.params]
    if len(groups) != 1 or len(numbers) != len(model_tensors):
        return {}
    name_by_number = dict(zip(numbers, model_tensors))
    for name, tensor in tensors.items():
        match = _STATE_NAME.fullmatch(name)
        if match is None or match[1] != prefix or not tensor.shape:
            continue
        parameter = name_by_number.get(match[2])
        if parameter is None or model_tensors[parameter].shape != tensor.shape:
            return {}
    return name_by_number


def _replace_number(name: str, names_by_prefix: Mapping[str, Mapping[str, str]]) -> str:
    match = _STATE_NAME.fullmatch(name) if belongs_to_optimizer(name) else None
    if match is None:
        return name
    parameter = names_by_prefix.get(match[1], {}).get(match[2])
    return name if parameter is None else f"{match[1]}state.{parameter}.{match[3]}"
