"""A statement on a call, in the parts of which a line shows some and a cause all."""

from __future__ import annotations

from typing import NamedTuple


class Statement(NamedTuple):
    """A clause whose subject is a call.

    Attributes:
        brief: What the first line of an answer states.
        more: How the clause goes on for a reader who wants details.
        values: The values behind it; empty for none.
    """

    brief: str
    more: str = ""
    values: str = ""

    @property
    def text(self) -> str:
        """The whole statement, with the values in brackets at its end."""
        return f"{self.brief}{self.more}{self.values and f' ({self.values})'}"

    def prepend(self, beginning: str) -> Statement:
        """Return the statement with a beginning in front."""
        return self._replace(brief=f"{beginning}{self.brief}")
