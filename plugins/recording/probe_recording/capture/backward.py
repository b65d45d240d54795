"""The backward record of one call, filled in while its gradients arrive."""

from __future__ import annotations

from typing import Any

from probe_recording.capture.gathering import report_gradients
from probe_recording.sessions.session import Session
from probe_recording.values.leaves import Tree
from probe_recording.values.tensor_store import Entry


class Backward:
    """A receiver of the gradients of one call, which writes them into the call's backward record.

    Args:
        session: The session that the record is added to.
        key: The name of the record.
        parent: The forward record of the module that made the call, or None outside of modules.
        size: Number of gradients expected as input and as output; each is null until it arrives.
        is_in_selected_module: True to record it whatever its name, as inside a module that ``list`` selects.
    """

    def __init__(
        self,
        session: Session,
        key: str,
        parent: str | None,
        size: tuple[int, int] = (0, 0),
        is_in_selected_module: bool = False,
    ) -> None:
        self._session = session
        self._key = key
        self._parent = parent.replace(".forward.", ".backward.") if parent else None
        self._size = size
        self._asks = not (session.filter.takes_all or is_in_selected_module)
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
            session.log_failure("backward", self._key, error)

    def take_node(self, outputs: tuple[Any, ...], inputs: tuple[Any, ...]) -> None:
        """Record the gradients of a graph node, which are all gradients of the call; a hook for the node.

        Args:
            outputs: The gradients that the node passes on; None for each that does not exist.
            inputs: The gradients that it received.
        """
        session = self._session
        if not session.active or self._done:
            return
        try:
            if not self._takes_together(outputs, inputs):
                report_gradients(self, outputs, inputs)
        except Exception as error:
            session.log_failure("backward", self._key, error)

    def _takes_together(self, outputs: tuple[Any, ...], inputs: tuple[Any, ...]) -> bool:
        """Record all gradients at once, which is faster; return False if they must be taken one by one."""
        session = self._session
        if self._asks and not session.filter.is_api_selected(self._key):
            self._done = True
            return True
        self._asks = False
        if self._entry is not None or session.save_for(self._key, True) is not None:
            return False
        count = len(inputs)
        while count and inputs[count - 1] is None:  # only the last gradient of all is recorded as null
            count -= 1
        with session.quiet():
            texts = session.collector.encode_groups(inputs[:count], outputs)
        if texts is None:
            return False
        sides = zip(("input", "output"), texts)
        fields = {side: text for side, text in sides if session.wants("backward", side)}
        self._done = True
        entry = session.open(self._key, fields, self._parent)
        session.note_arrival(entry)
        session.complete(entry)
        return True

    def _take(self, side: str, position: int, gradient: Any, last: bool) -> None:
        session = self._session
        entry = self._entry
        if entry is None:
            if self._asks and not session.filter.is_api_selected(self._key):
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
        session.note_arrival(entry)
        if last:
            self._done = True
            session.complete(entry)
