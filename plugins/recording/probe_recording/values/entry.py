"""A record that is being made."""

from __future__ import annotations

from dataclasses import dataclass

from probe_recording.values.leaves import Tree


@dataclass(slots=True, eq=False)
class Entry:
    """A record of a session.

    Attributes:
        key: Its name.
        fields: Its content, a tree of leaves.
        order: Its position in the file: records are in the order of their last values. -1 before the first value.
        text: Its JSON, cached once the record is complete and written.
    """

    key: str
    fields: dict[str, Tree]
    order: int = -1
    text: str | None = None
