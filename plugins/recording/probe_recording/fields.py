"""Fields of a JSON object that configures a recording, each checked when it is read."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

from probe_core.errors import UserError, suggest_name

MAX_NUMBER = 1_000_000
_RANGE = re.compile(r"(\d+)-(\d+)")


class ConfigWarning(UserWarning):
    """A warning about a configuration that works, though perhaps not as its author meant."""


class Fields:
    """The fields of one JSON object, each checked when it is read.

    Args:
        fields: The JSON object.
        subject: The words that error messages begin with.

    Attributes:
        subject: The words that error messages begin with.
    """

    def __init__(self, fields: Mapping[str, Any], subject: str) -> None:
        self._fields = fields
        self.subject = subject

    def section(self, name: str) -> Fields:
        """Return the section ``name``; an empty one if it is left out."""
        value = self._fields.get(name) or {}
        if not isinstance(value, Mapping):
            raise self.wrong(name, "must be an object", f'For example "{name}": {{}}.')
        return Fields(value, f'{self.subject}: section "{name}"')

    def warn_unknown(self, allowed: Set[str], allowed_elsewhere: Set[str], place: str) -> None:
        """Warn about unknown fields, with the known field of a similar name if there is one.

        Args:
            allowed: The fields that are allowed here.
            allowed_elsewhere: The fields that are allowed elsewhere.
            place: The words that say where those belong.
        """
        for name in self._fields:
            if name not in allowed:
                close = suggest_name(name, sorted(allowed))
                hint = f"; {place}" if name in allowed_elsewhere else f'; did you mean "{close}"?' if close else ""
                warn(f'{self.subject}: unknown field "{name}" is ignored{hint}')

    def warn_unused(self, names: frozenset[str]) -> None:
        """Warn about those of ``names`` that are set, because probe does not support them."""
        for name in sorted(names & self._fields.keys()):
            if self._fields[name] not in ("", [], {}, None, False, "npy"):
                warn(f'{self.subject}: "{name}" is not supported by probe and is ignored')

    def refuse(self, reasons: Mapping[str, str]) -> None:
        """Refuse fields that are set to something, each for a reason.

        Raises:
            UserError: One of the fields is set.
        """
        for name, reason in reasons.items():
            if self._fields.get(name) not in ("", [], {}, None, False):
                raise self.wrong(name, f"is not supported: {reason}", f'Remove "{name}".')

    def choice(
        self,
        name: str,
        choices: tuple[str, ...],
        default: str,
        synonyms: Mapping[str, str] | None = None,
        elsewhere: Mapping[str, str] | None = None,
    ) -> str:
        """Return one of ``choices``, in whatever case the user wrote it.

        Args:
            name: The field.
            choices: The values allowed.
            default: The value of an empty or missing field.
            synonyms: Other spellings of the choices.
            elsewhere: Values that msprobe knows and probe does not record, each with the reason.
        """
        value = self._fields.get(name, default)
        if value in ("", None):
            return default
        spelt = {choice.lower(): choice for choice in choices}
        if isinstance(value, str):
            value = (synonyms or {}).get(value.lower(), value)
            if value.lower() in spelt:
                return spelt[value.lower()]
            if elsewhere and value in elsewhere:
                raise self.wrong(
                    name,
                    f'is "{value}", which records nothing here: {elsewhere[value]}',
                    "Choose one of:",
                    choices,
                )
        raise self.wrong(name, f"must be one of the choices below, not {value!r:.60}", "", choices)

    def has(self, name: str) -> bool:
        """Return True if a field is set, even to null."""
        return name in self._fields

    def value(self, name: str) -> Any:
        """Return a field as it is, or None."""
        return self._fields.get(name)

    def flag(self, name: str, default: Any) -> Any:
        """Return a field that is true or false."""
        value = self._fields.get(name, default)
        if value is not default and not isinstance(value, bool):
            raise self.wrong(name, f"must be true or false, not {value!r:.40}", "Write true or false without quotes.")
        return value

    def text(self, name: str, default: str) -> str:
        """Return a field that is a text."""
        value = self._fields.get(name, default)
        if not isinstance(value, str):
            raise self.wrong(name, "must be a text", "Put it in quotes.")
        return value

    def path(self, name: str) -> Path | None:
        """Return a field that is the path of a file; None if it is empty or missing."""
        text = self.text(name, "")
        return Path(text) if text else None

    def number(self, name: str, low: int, high: int, default: int = 0) -> int:
        """Return a field that is a whole number from ``low`` to ``high``."""
        value = self._fields.get(name, default)
        if type(value) is not int or not low <= value <= high:
            raise self.wrong(
                name,
                f"must be a whole number from {low} to {high}, not {value!r:.40}",
                f'For example "{name}": {default}.',
            )
        return value

    def numbers(self, name: str) -> frozenset[int]:
        """Return a field that lists whole numbers and ranges such as ``"2-5"``, both ends included."""
        value = self._fields.get(name)
        if value is None:
            return frozenset()
        if not isinstance(value, list):
            raise self.wrong(name, "must be a list", f'For example "{name}": [0, "2-5"].')
        numbers: set[int] = set()
        for item in value:
            first = last = item
            if isinstance(item, str) and (match := _RANGE.fullmatch(item.strip())):
                first, last = int(match[1]), int(match[2])
            if type(first) is not int or type(last) is not int or not 0 <= first <= last <= MAX_NUMBER:
                raise self.wrong(
                    name,
                    f'holds {item!r:.40}, neither a non-negative integer nor a range such as "2-5"',
                    f"Numbers go up to {MAX_NUMBER}.",
                )
            numbers.update(range(first, last + 1))
        return frozenset(numbers)

    def names(self, name: str, example: str = "relu") -> tuple[str, ...]:
        """Return a field that lists names, none of them empty."""
        value = self._fields.get(name)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            raise self.wrong(
                name, "must be a list of names, none of them empty", f'For example "{name}": ["{example}"].'
            )
        return tuple(value)

    def wrong(self, name: str, problem: str, fix: str, choices: tuple[str, ...] = ()) -> UserError:
        """Return the error of a wrong field.

        Args:
            name: The field.
            problem: The words behind its name in the message.
            fix: A sentence on how to correct it.
            choices: The valid values, if they can be listed.
        """
        return UserError(f'{self.subject}: "{name}" {problem}.', fix, choices)


def warn(text: str) -> None:
    """Warn about a configuration."""
    warnings.warn(text, ConfigWarning, stacklevel=2)
