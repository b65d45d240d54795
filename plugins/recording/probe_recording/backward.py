"""The backward record of one call, filled in as its gradients arrive."""

from __future__ import annotations

from typing import Any

from probe_recording.leaves import Tree
from probe_recording.session import Entry, Session


class Backward:
    """Takes the gradients of one call into its backward record.

    Args:
        session: The session that records.
        key: The name of the record.
        parent: The module whose forward called, by the name of that forward.
        size: How many gradients are expected on each side, which are null until they arrive.
        inside: True where the record is wanted whatever its name.
    """

    def __init__(
        self,
        session: Session,
        key: str,
        parent: str | None,
        size: tuple[int, int] = (0, 0),
        inside: bool = False,
    ) -> None:
        self._session = session
        self._key = key
        self._parent = parent.replace(".forward.", ".backward.") if parent else None
        self._size = size
        self._asks = not (session.filter.takes_all or inside)
        self._entry: Entry | None = None
        self._done = False

    def __call__(self, side: str, position: int, gradient: Any, last: bool) -> None:
        """A gradient has arrived; errors of the recorder stay here."""
        session = self._session
        if not session.active or self._done:
            return
        try:
            if gradient is not None or last:
                self._take(side, position, gradient, last)
        except Exception as error:
            session.failed("backward", self._key, error)

    def _take(self, side: str, position: int, gradient: Any, last: bool) -> None:
        session = self._session
        entry = self._entry
        if entry is None:
            if self._asks and not session.filter.api(self._key):
                self._done = True
                return
            fields: dict[str, Tree] = {
                name: [None] * size
                for name, size in zip(("input", "output"), self._size)
                if session.wants("backward", name)
            }
            entry = self._entry = session.open(self._key, fields, self._parent)
        values = entry.fields.get(side)
        if values is not None and position >= 0:
            with session.quiet():
                leaf = None
                if gradient is not None:
                    leaf = session.collector.tree(
                        gradient, f"{self._key}.{side}.{position}", session.save_for(self._key, True)
                    )
            values.extend([None] * (position + 1 - len(values)))
            values[position] = leaf
        session.arrived(entry)
        if last:
            self._done = True
            session.complete(entry)
