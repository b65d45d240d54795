"""Static collection: what can be collected without running the training."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml
from probe_recording.step_facts.conditions import Conditions
from probe_recording.step_facts.environment import VARIABLES, read_variables

from probe_check.config_check.pack import Scalar
from probe_check.config_check.rules import HIDDEN_TEXT, ConfigRules, load_rules
from probe_check.config_check.shell_script import parse_hyperparameters
from probe_core.errors import UserError
from probe_core.files.user_files import describe_yaml_error, parse_yaml, read_regular_file

MAX_FILE_BYTES = 4 << 20
"""Largest size of a script or yaml file."""
MAX_VALUE_LENGTH = 2000
"""Largest number of characters of the value of a variable or hyper-parameter that is stored."""
SHELL_SUFFIXES = (".sh", ".bash")
YAML_SUFFIXES = (".yaml", ".yml")


def format_environment(rules: ConfigRules) -> str:
    """Return the content of the member ``env``: the documented variables, and those that a recording notes.

    Other variables may hold secrets. Of variables whose names show that the machine has NPUs, the name alone
    is stored.
    """
    names = {name for rule in rules.variables for name in (rule.npu, rule.gpu) if name} | {*VARIABLES}
    variables = {name: "" for name in os.environ if rules.npu_mark in name}
    variables |= {name: os.environ[name][:MAX_VALUE_LENGTH] for name in names if name in os.environ}
    return json.dumps(dict(sorted(variables.items())), indent=4)


def format_packages() -> str:
    """Return the content of the member ``pip``: a line ``name=version`` for each installed package."""
    packages = {
        (distribution.metadata["Name"], distribution.version)
        for distribution in metadata.distributions()
        if distribution.metadata
    }
    return "".join(f"{name}={version}\n" for name, version in sorted(packages, key=str) if name)


def format_conditions(framework: str) -> str:
    """Return the content of ``conditions.json`` of a collection outside of the training."""
    conditions = Conditions()
    conditions.add_facts("environment", read_variables())
    return conditions.text(framework)


def collect_static_members(paths: Iterable[Path]) -> dict[str, str]:
    """Return the members of a pack that do not depend on a model, by their names.

    Args:
        paths: The shell scripts and yaml files with hyper-parameters.

    Raises:
        UserError: A file cannot be read, or is of another kind.
    """
    rules = load_rules()
    parameters = collect_hyperparameters(paths, rules)
    members = {"env": format_environment(rules), "pip": format_packages()}
    if parameters:
        members["hyperparameters/hyperparameters_static.json"] = json.dumps(parameters, indent=4)
    return members


def collect_hyperparameters(paths: Iterable[Path], rules: ConfigRules) -> dict[str, Any]:
    """Return the hyper-parameters in shell scripts and yaml files, without secrets.

    A parameter of two files with different values becomes an object with both.

    Raises:
        UserError: A file cannot be read, or is neither a shell script nor a yaml file.
    """
    parameters: dict[str, Any] = {}
    values: dict[str, list[Scalar]] = {}
    for path in paths:
        for name, value in _read_parameters(path, rules).items():
            shown_value = HIDDEN_TEXT if rules.is_secret(name) else value
            values.setdefault(name, [])
            if shown_value not in values[name]:
                values[name].append(shown_value)
    for name, all_values in values.items():
        parameters[name] = all_values[0]
        if len(all_values) > 1:
            parameters[name] = {"description": "duplicate_value", "values": all_values}
    return parameters


def _read_parameters(path: Path, rules: ConfigRules) -> Mapping[str, Scalar]:
    suffix = path.suffix.lower()
    if suffix not in SHELL_SUFFIXES + YAML_SUFFIXES:
        raise UserError(
            f"{path} is neither a shell script nor a yaml file.",
            f"Give files that end in {', '.join(SHELL_SUFFIXES + YAML_SUFFIXES)}.",
        )
    text = _read_text(path)
    return parse_hyperparameters(text, rules) if suffix in SHELL_SUFFIXES else _parse_yaml_parameters(path, text)


def _read_text(path: Path) -> str:
    try:
        data = read_regular_file(path)
    except FileNotFoundError:
        raise UserError(f"{path} not found.", "Check the path.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no such path"
        raise UserError(f"{path} cannot be read: {reason}.", "Check its permissions.") from None
    if len(data) > MAX_FILE_BYTES:
        raise UserError(
            f"{path} is larger than {MAX_FILE_BYTES >> 20} MiB.",
            "Give the script or yaml file of a training.",
        )
    return data.decode("utf-8-sig", "replace")


def _parse_yaml_parameters(path: Path, text: str) -> dict[str, Scalar]:
    try:
        content = parse_yaml(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"{path} is not valid yaml{describe_yaml_error(error)}.", "Correct the file.") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} holds no mapping of names to values.", "Give a yaml file of hyper-parameters.")
    parameters: dict[str, Scalar] = {}
    _flatten(content, "", parameters)
    return parameters


def _flatten(value: Any, name: str, parameters: dict[str, Scalar]) -> None:
    """Add the values of nested mappings by dotted names; a list of plain values is one value."""
    if isinstance(value, dict):
        for key, inner in value.items():
            _flatten(inner, f"{name}.{key}" if name else str(key), parameters)
    elif isinstance(value, list) and not all(isinstance(item, (bool, int, float, str, list)) for item in value):
        for number, inner in enumerate(value):
            _flatten(inner, f"{name}.{number}", parameters)
    elif isinstance(value, (bool, int, float)):
        parameters[name] = value
    elif value is not None:
        parameters[name] = str(value)[:MAX_VALUE_LENGTH]
