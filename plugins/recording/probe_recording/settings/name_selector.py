"""Selection of records by the entries of ``list`` (docs/configuration.md#scope)."""

from __future__ import annotations

import re
from collections.abc import Sequence

_PATTERN_ENTRY = re.compile(r"name-regex\((.*)\)", re.DOTALL)


class NameSelector:
    """A test for names that contain a text or match a regular expression.

    Args:
        entries: Texts, and regular expressions written as ``name-regex(EXPRESSION)``. An expression may match
            anywhere in a name, as for ``re.search``.

    Raises:
        ValueError: An expression is invalid; the message holds the expression and the reason.
    """

    def __init__(self, entries: Sequence[str]) -> None:
        self._texts: list[str] = []
        self._patterns: list[re.Pattern[str]] = []
        for entry in entries:
            match = _PATTERN_ENTRY.fullmatch(entry)
            if match is None:
                self._texts.append(entry)
                continue
            try:
                self._patterns.append(re.compile(match[1]))
            except (re.error, RecursionError, OverflowError) as error:
                raise ValueError(f'"{match[1]}" is not a valid regular expression: {error}') from None

    def is_selected(self, name: str) -> bool:
        """Return True if a name contains one of the texts or matches one of the expressions."""
        return any(text in name for text in self._texts) or any(pattern.search(name) for pattern in self._patterns)
