"""Names of parameters in the states of optimizers (docs/checkpoints.md#optimizer-states).

``torch.optim`` numbers the parameters. Their names are in the file if the optimizer received them;
otherwise they are those of the model, if it has as many tensors, in the same order and with the same shapes.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

from probe_check.checkpoint.model import Setting
from probe_check.checkpoint.tensors import Tensor

OPTIMIZER_PREFIX = "optimizer."
_STATE_NAME = re.compile(r"(.*?)state\.(\d+)\.(.+)")
_MEMBER_NAME = re.compile(r"(.*?)param_groups\.(\d+)\.(params|param_names)\.(\d+)")


def is_of_optimizer(name: str) -> bool:
    """Return True for the name of a state or a setting of an optimizer."""
    return name.startswith(OPTIMIZER_PREFIX) or f".{OPTIMIZER_PREFIX}" in name


def is_optimizer_setting(name: str) -> bool:
    """Return True for a setting of an optimizer, such as its learning rate."""
    return is_of_optimizer(name) and "param_groups." in name


def replace_parameter_numbers(
    tensors: Mapping[str, Tensor], settings: Mapping[str, Setting]
) -> tuple[dict[str, Tensor], dict[str, Setting]]:
    """Return tensors and settings with the names of parameters in place of their numbers."""
    members = _collect_groups(settings)
    names: dict[str, dict[str, str]] = {}
    for prefix in {match[1] for name in tensors if is_of_optimizer(name) and (match := _STATE_NAME.fullmatch(name))}:
        groups = members.get(prefix, {})
        names[prefix] = _read_stated_names(groups) or _match_model_names(prefix, groups, tensors)
    return (
        {_replace_number(name, names): tensor for name, tensor in tensors.items()},
        {_replace_number(name, names): value for name, value in settings.items()},
    )


def is_parameter_number(name: str) -> bool:
    """Return True for an entry in the list of parameters of a group, which is no setting."""
    return is_of_optimizer(name) and _MEMBER_NAME.fullmatch(name) is not None


ParameterGroups = dict[str, dict[str, list[Setting]]]
"""For each group of parameters its ``params`` and its ``param_names``."""


def _collect_groups(settings: Mapping[str, Setting]) -> dict[str, ParameterGroups]:
    """Return the groups of parameters of each optimizer."""
    members: dict[str, ParameterGroups] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for name, value in settings.items():
        match = _MEMBER_NAME.fullmatch(name) if is_of_optimizer(name) else None
        if match:
            members[match[1]][match[2]][match[3]].append(value)
    return members


def _read_stated_names(groups: ParameterGroups) -> dict[str, str]:
    """Return the names by the numbers of parameters, as the file states them."""
    stated: dict[str, str] = {}
    for group in groups.values():
        numbers, names = group["params"], group["param_names"]
        if len(numbers) != len(names):
            return {}
        stated.update((str(number), str(name)) for number, name in zip(numbers, names))
    return stated


def _match_model_names(prefix: str, groups: ParameterGroups, tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Return the names of the model's tensors by the numbers of parameters; empty if they do not fit."""
    model = {name: tensor for name, tensor in tensors.items() if not is_of_optimizer(name)}
    numbers = [str(number) for group in groups.values() for number in group["params"]]
    if len(groups) != 1 or len(numbers) != len(model):
        return {}
    names = dict(zip(numbers, model))
    for name, tensor in tensors.items():
        match = _STATE_NAME.fullmatch(name)
        if match is None or match[1] != prefix or not tensor.shape:
            continue
        parameter = names.get(match[2])
        if parameter is None or model[parameter].shape != tensor.shape:
            return {}
    return names


def _replace_number(name: str, names: Mapping[str, Mapping[str, str]]) -> str:
    match = _STATE_NAME.fullmatch(name) if is_of_optimizer(name) else None
    if match is None:
        return name
    parameter = names.get(match[1], {}).get(match[2])
    return name if parameter is None else f"{match[1]}state.{parameter}.{match[3]}"
