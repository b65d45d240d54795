"""The records of the golden in one step and rank, as calls are compared with them."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any, NoReturn

from probe_core.store.names import canonicalize
from probe_recording.diff_check.call_stream import CallStream, GoldenCall
from probe_recording.diff_check.recorded_call import drop_data_names, get_form
from probe_recording.reading.run import DumpRun


class GoldenStep:
    """The records of one step and rank of the golden.

    Args:
        file: The record file.

    Raises:
        UserError: The file cannot be read.
    """

    def __init__(self, file: Path) -> None:
        self._run = DumpRun(file, "", _refuse_tensor)
        self._has_modules = bool(self._run.construct.modules())
        by_parent: dict[str | None, list[GoldenCall]] = defaultdict(list)
        for index, key in enumerate(self._run.names()):
            form = get_form(key)
            if form.is_forward:
                by_parent[self._find_parent(key)].append(GoldenCall(index, key, form.kind))
        self._streams = {parent: CallStream(calls) for parent, calls in by_parent.items()}
        self._gradients = {canonicalize(key): key for key in self._run.names() if canonicalize(key) != key}

    def _find_parent(self, key: str) -> str | None:
        return next(iter(self._run.construct.ancestors(key)), None)

    def find_stream(self, parent: str | None) -> CallStream:
        """Return the stream of the calls of a module; without names of modules all calls are in one stream."""
        return self._streams.setdefault(parent if self._has_modules else None, CallStream(()))

    def find_key(self, key: str) -> str | None:
        """Return the golden's name of a record that has the same name in both runs; None if it has no such record."""
        return key if self._run.find(key) is not None else self._gradients.get(canonicalize(key))

    def read_text(self, key: str) -> str:
        """Return the JSON of a record without the names of tensor files."""
        index = self._run.find(key)
        assert index is not None
        return drop_data_names(self._run.text(index))

    def close(self) -> None:
        """Close the file."""
        self._run.close()


def _refuse_tensor(*_: Any) -> NoReturn:
    raise AssertionError("tensors of the golden are not read while the program runs")
