"""Single records as a reader makes them from their JSON values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from probe_recording.reading.columns import RunColumnsBuilder
from probe_recording.reading.leaves import add_record

from probe_core.model import Record


def record_of(index: int, key: str, fields: Any) -> Record:
    """Return the record ``key`` with the given index."""
    columns = RunColumnsBuilder()
    add_record(columns, key, fields)
    return replace(columns.finish().record(0), index=index)
