"""The search of the task overflow_check (docs/configuration.md#overflow)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from probe_recording.sessions.framework_session import FrameworkSession
from probe_recording.values.leaves import Save, Tree


class OverflowSearch:
    """The search for records that overflowed: tensors are held until their record is complete and can be tested.

    Args:
        session: The session.
        store: The function that stores a tensor.
        left: The number of overflows to record until the search ends; negative for no end.

    Attributes:
        left: The same; it falls with each overflow.
        on_last: A function to call after the last overflow; None for none.
    """

    def __init__(self, session: FrameworkSession, store: Save, left: int) -> None:
        self.left = left
        self.on_last: Callable[[], None] | None = None
        self._session = session
        self._store = store
        self._held: dict[str, list[tuple[str, Any]]] = {}

    def hold(self, key: str, may_change: bool, name: str, tensor: Any) -> str:
        """Hold a tensor of a record in memory, and return the name of the file that it would be stored in.

        Args:
            key: The name of the record.
            may_change: True if the data may change before the record is complete.
            name: The name of the tensor.
            tensor: The tensor.
        """
        self._held.setdefault(key, []).append((name, self._session.copy_of(tensor) if may_change else tensor))
        return name + self._session.suffix

    def release(self, key: str) -> None:
        """Release the tensors of a record."""
        self._held.pop(key, None)

    def clear(self) -> None:
        """Release all tensors."""
        self._held.clear()

    def store_overflow(self, key: str, fields: dict[str, Tree]) -> bool:
        """Store the tensors of a complete record if it overflowed, else release them and return False."""
        tensors = self._held.pop(key, [])
        if not self._session.has_overflowed(fields) or self.left == 0:
            return False
        with self._session.quiet():
            for name, tensor in tensors:
                self._store(name, tensor)
        return True

    def count_down(self) -> None:
        """Count a record with an overflow; the last one ends the search."""
        self.left -= 1
        if self.left == 0 and self.on_last is not None:
            self.on_last()
