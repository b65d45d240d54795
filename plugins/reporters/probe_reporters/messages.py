"""The text of a reason code, and the texts of cells without a number."""

from __future__ import annotations

from dataclasses import dataclass

NOT_AVAILABLE = "N/A"
UNSUPPORTED = "unsupported"
NAN = "Nan"


@dataclass(frozen=True, slots=True)
class Text:
    """The texts that a reason code leaves in a table.

    Attributes:
        message: The text in the column Err_message; empty for codes that are not shown.
        rank: The place of the message among others in the same cell.
        cell: The text in place of a missing number in tables of tensors; tables of statistics show ``N/A`` or
            ``Nan``.
    """

    message: str = ""
    rank: int = 0
    cell: str = UNSUPPORTED
