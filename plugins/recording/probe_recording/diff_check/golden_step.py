"""The records of the golden in one step and rank, as calls are compared with them."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from probe_core.errors import UserError
from probe_core.store.files import CONSTRUCT_FILE
from probe_core.store.names import canonicalize
from probe_recording.diff_check.call_stream import CallStream, GoldenCall
from probe_recording.diff_check.recorded_call import drop_data_names, get_form
from probe_recording.reading.construct import read_construct
from probe_recording.reading.jsonstream import JsonCursor, JsonError


class GoldenStep:
    """The records of one step and rank of the golden; their JSON stays in the file until it is compared.

    Args:
        path: The record file.

    Raises:
        UserError: The file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._spans = _find_records(path)
        self._file = path.open("rb")
        self._construct = read_construct(path.parent / CONSTRUCT_FILE)
        self._has_modules = bool(self._construct.modules())
        by_parent: dict[str | None, list[GoldenCall]] = defaultdict(list)
        for key in self._spans:
            form = get_form(key)
            if form.is_forward:
                by_parent[self._find_parent(key)].append(GoldenCall(key, form.kind))
        self._streams = {parent: CallStream(calls) for parent, calls in by_parent.items()}
        self._gradients = {canonicalize(key): key for key in self._spans if canonicalize(key) != key}

    def _find_parent(self, key: str) -> str | None:
        return next(iter(self._construct.ancestors(key)), None)

    def find_stream(self, parent: str | None) -> CallStream:
        """Return the stream of the calls of a module; without names of modules all calls are in one stream."""
        return self._streams.setdefault(parent if self._has_modules else None, CallStream(()))

    def find_key(self, key: str) -> str | None:
        """Return the golden's name of a record that has the same name in both runs; None if it has no such record."""
        return key if key in self._spans else self._gradients.get(canonicalize(key))

    def read_text(self, key: str) -> str:
        """Return the JSON of a record without the names of tensor files."""
        start, end = self._spans[key]
        self._file.seek(start)
        return drop_data_names(self._file.read(end - start).decode("utf-8", "replace"))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _find_records(path: Path) -> dict[str, tuple[int, int]]:
    """Return the offsets of the first byte of each record and of the byte after it, by the names of the records."""
    spans: dict[str, tuple[int, int]] = {}
    try:
        with path.open("rb") as file:
            cursor = JsonCursor(file)
            for key in cursor.iterate_members() if cursor.peek() == "{" else ():
                if key != "data" or cursor.peek() != "{":
                    cursor.skip()
                    continue
                for name in cursor.iterate_members():
                    start, end, _ = cursor.skip()
                    spans[name] = start, end
    except (OSError, JsonError) as error:
        problem = error.strerror or error if isinstance(error, OSError) else error
        raise UserError(f"{path} cannot be read: {problem}.", "Give another golden, or record it again.") from None
    return spans
