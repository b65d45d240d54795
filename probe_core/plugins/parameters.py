"""Parameters of contributions, as texts give them: ``ulp:limit=4``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from probe_core.errors import UserError, nearest

TRUE, FALSE = ("true", "yes", "1"), ("false", "no", "0")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a metric, a policy or a format: a keyword of its factory.

    Attributes:
        name: As it is given.
        kind: ``float``, ``int``, ``bool`` or ``str``.
        help: A line about it, with its default.
    """

    name: str
    kind: type
    help: str


def split(text: str) -> tuple[str, dict[str, str]]:
    """The name and the parameters in ``name:parameter=value:parameter=value``.

    Raises:
        UserError: A part behind the name is no ``parameter=value``.
    """
    name, *parts = text.split(":")
    given: dict[str, str] = {}
    for part in parts:
        key, equals, value = part.partition("=")
        if not key or not equals:
            raise UserError(f'"{part}" in "{text}" is no parameter.', f"For example {name}:parameter=value.")
        if key in given:
            raise UserError(f'"{text}" gives {key} twice.', "Leave one of them out.")
        given[key] = value
    return name, given


def read(title: str, parameters: tuple[Parameter, ...], given: Mapping[str, str]) -> dict[str, Any]:
    """The values that texts give for ``parameters``; ``title`` is what messages call their owner.

    Raises:
        UserError: A parameter that there is not, or a value of another kind.
    """
    known = {parameter.name: parameter for parameter in parameters}
    values: dict[str, Any] = {}
    for name, text in given.items():
        if name not in known:
            lines = [f"{one.name}: {one.help}" for one in parameters]
            close = nearest(name, list(known), 1)
            fix = f"Did you mean {close[0]}?" if close else "It has these:" if lines else "It has none."
            raise UserError(f'{title} has no parameter "{name}".', fix, lines)
        values[name] = _value(title, known[name], text)
    return values


def _value(title: str, parameter: Parameter, text: str) -> Any:
    if parameter.kind is bool and text.lower() in TRUE + FALSE:
        return text.lower() in TRUE
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
