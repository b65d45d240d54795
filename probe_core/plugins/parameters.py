"""Parameters of contributions, written after their names: ``ulp:limit=4``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from probe_core.errors import UserError, find_nearest_names

TRUE_TEXTS, FALSE_TEXTS = ("true", "yes", "1"), ("false", "no", "0")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a metric, a policy or a format: a keyword argument of its factory.

    Attributes:
        name: The name, as users write it.
        kind: The type: ``float``, ``int``, ``bool`` or ``str``.
        help: A line for the list of parameters, with the default.
    """

    name: str
    kind: type
    help: str


def split_parameters(text: str) -> tuple[str, dict[str, str]]:
    """Split ``name:parameter=value:parameter=value`` into the name and the parameters.

    Raises:
        UserError: A part after the name is not ``parameter=value``.
    """
    name, *parts = text.split(":")
    texts: dict[str, str] = {}
    for part in parts:
        key, equals, value = part.partition("=")
        if not key or not equals:
            raise UserError(f'"{part}" in "{text}" is not a parameter.', f"Write {name}:parameter=value.")
        if key in texts:
            raise UserError(f'"{text}" gives {key} twice.', "Leave one of them out.")
        texts[key] = value
    return name, texts


def parse_parameters(title: str, parameters: tuple[Parameter, ...], texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of parameters given as texts; ``title`` is their owner in messages.

    Raises:
        UserError: A parameter does not exist, or a value has the wrong type.
    """
    by_name = {parameter.name: parameter for parameter in parameters}
    values: dict[str, Any] = {}
    for name, text in texts.items():
        if name not in by_name:
            lines = [f"{parameter.name}: {parameter.help}" for parameter in parameters]
            close = find_nearest_names(name, by_name, 1)
            others = "Use one of these:" if lines else "It has none; leave it out."
            fix = f"Did you mean {close[0]}?" if close else others
            raise UserError(f'{title} has no parameter "{name}".', fix, lines)
        values[name] = _parse_value(title, by_name[name], text)
    return values


def _parse_value(title: str, parameter: Parameter, text: str) -> Any:
    if parameter.kind is bool and text.lower() in TRUE_TEXTS + FALSE_TEXTS:
        return text.lower() in TRUE_TEXTS
    if parameter.kind is not bool:
        try:
            return parameter.kind(text)
        except ValueError:
            pass
    kinds = {bool: "true or false", int: "a whole number", float: "a number"}
    raise UserError(
        f'{title}: {parameter.name} must be {kinds.get(parameter.kind, "a text")}, not "{text}".',
        f"{parameter.name}: {parameter.help}.",
    )
