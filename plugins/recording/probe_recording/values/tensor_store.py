"""The interface of the stores of tensors."""

from __future__ import annotations

from typing import Any, Protocol


class Store(Protocol):
    """A store for the data of one step's tensors."""

    def save(self, name: str, tensor: Any) -> str | None:
        """Store a tensor and return its ``data_name``; return None if it cannot be stored."""

    def flush(self) -> None:
        """Write everything saved so far, so that it survives a crash."""

    def close(self) -> int:
        """Complete the files and return the number of bytes that the next file should reserve for its header."""
