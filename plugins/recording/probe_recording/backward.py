"""The backward record of one call, filled in while its gradients arrive."""

from __future__ import annotations

from typing import Any

from probe_recording.leaves import Tree
from probe_recording.session import Entry, Session


class Backward:
    """A receiver of the gradients of one call, which writes them into the call's backward record.

    Args:
        session: The session that the record is added to.
        key: The name of the record.
        parent: The forward record of the module that made the call, or None outside of modules.
        size: Number of gradients expected as input and as output; each is null until it arrives.
        inside: True to record it whatever its name, as inside a module that ``list`` selects.
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
        """Record one gradient; errors of the recorder are logged and do not reach the training.

        Args:
            side: ``input`` for a gradient of the call's outputs, ``output`` for one of its inputs.
            position: The position among the gradients of that side; -1 if only the end is reported.
            gradient: The tensor, or None if there is no gradient.
            last: True if no further gradient will arrive.
        """
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
