"""The tensors of calls whose comparison with the golden has not ended (docs/against.md#cost)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from probe_core.store.names import is_gradient
from probe_recording.diff_check.call_judge import CallJudge, Decision
from probe_recording.diff_check.recorded_call import drop_data_names
from probe_recording.sessions.session import Session
from probe_recording.values.leaves import Save, encode, quote
from probe_recording.values.tensor_store import Entry, TensorSelection

MAX_COPIED_BYTES = 1 << 30
"""Bytes of copies that may be held; further tensors are not kept."""

MAX_GRADIENT_BYTES = MAX_COPIED_BYTES // 2
"""Bytes of copies up to which gradients of parameters are held, because most of them wait until the step ends."""

MAX_UNREAD_RECORDS = 256
"""Number of records whose statistics may wait on a device before they are fetched and compared."""


@dataclass(slots=True)
class _HeldRecord:
    """The tensors of a record.

    Attributes:
        tensors: The tensors by their names.
        copied: The names of those that are copies.
        left_out: The names of those that are not held, because the copies reached their limit.
        entry: The record, once it is complete.
        text: Its JSON with the names of all tensors.
    """

    tensors: dict[str, Any] = field(default_factory=dict)
    copied: set[str] = field(default_factory=set)
    left_out: set[str] = field(default_factory=set)
    entry: Entry | None = None
    text: str = ""


class HeldTensors(TensorSelection):
    """The tensors of a session that are stored only if the judge keeps their call.

    A tensor is held itself until its record is complete, unless the program may change it before. If the judge
    cannot decide then, the tensors of the record are copied, on the device that they are on.

    Args:
        session: The session.
        judge: The judge.
    """

    def __init__(self, session: Session, judge: CallJudge) -> None:
        self._session = session
        self._judge = judge
        self._records: dict[str, _HeldRecord] = {}
        self._unread: list[tuple[Entry, str | None]] = []
        self._copied_bytes = 0

    # -- reports of the session ------------------------------------------------------------

    def save_for(self, key: str, may_change: bool) -> Save | None:
        """Return the function that holds the tensors of a record; None if the record will not keep them."""
        return None if self._judge.is_finished else partial(self._hold, key, may_change)

    def _hold(self, key: str, may_change: bool, name: str, tensor: Any) -> str | None:
        with self._session.lock:
            record = self._records.setdefault(key, _HeldRecord())
            if name in record.copied:
                self._release(record, [name])
            record.tensors[name] = tensor
            limit = MAX_GRADIENT_BYTES if is_gradient(key) else MAX_COPIED_BYTES
            if may_change and not self._copy(record, name, limit):
                return None
            return name + self._session.suffix

    def take_back(self, key: str) -> None:
        """Release the tensors of a call that raised an exception."""
        record = self._records.pop(key, None)
        if record is not None:
            self._release(record, list(record.tensors))

    def add(self, entry: Entry, parent: str | None) -> None:
        """Compare a complete record, once its statistics are known."""
        self._unread.append((entry, parent))
        if self._session.is_waiting and len(self._unread) < MAX_UNREAD_RECORDS and not self._is_full:
            record = self._records.get(entry.key)
            if record is not None:
                with self._session.quiet():
                    self._copy_all(record)
            return
        self.compare()

    def note_arrival(self, entry: Entry) -> None:
        """Release the gradients of parameters that agree, so that their copies do not wait for the end of the step."""
        record = self._records.get(entry.key)
        if record is None or self._session.is_waiting or None in _list_first_leaves(entry):
            return
        if self._judge.agrees(entry.key, drop_data_names(encode(entry.fields))):
            self._release(record, list(record.tensors))

    # -- decisions -------------------------------------------------------------------------

    def compare(self) -> None:
        """Compare all complete records."""
        unread, self._unread = self._unread, []
        with self._session.quiet():
            self._session.read_back()
            for entry, parent in unread:
                self._apply(self._judge.take(entry.key, self._encode(entry), parent))
                entry.fields = {}
                record = self._records.get(entry.key)
                if record is not None:
                    self._copy_all(record)

    def finish(self, open_entries: Iterable[Entry]) -> None:
        """Compare all records, also those that are not complete, and decide on all that wait."""
        self.compare()
        for entry in sorted(open_entries, key=lambda entry: entry.order):
            if entry.order >= 0:
                self._apply(self._judge.take(entry.key, self._encode(entry), None))
        self._apply(self._judge.end_step())
        self._records.clear()

    def _encode(self, entry: Entry) -> str:
        """Return the JSON of a record without the names of tensor files; until it is decided on, it is written so."""
        full_text = encode(entry.fields)
        text = drop_data_names(full_text)
        record = self._records.get(entry.key)
        entry.text = f"{quote(entry.key)}: {full_text if record is None else text}"
        if record is not None:
            record.entry, record.text = entry, full_text
        return text

    def encode_open(self, entry: Entry) -> str:
        """Return the JSON of a record that is not complete, without the names of tensor files that are held."""
        text = encode(entry.fields)
        return drop_data_names(text) if entry.key in self._records else text

    def _apply(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            record = self._records.pop(decision.key, None)
            if record is None:
                continue
            if decision.is_kept and record.entry is not None:
                with self._session.quiet():
                    stored = {self._session.store_tensor(name, tensor) for name, tensor in record.tensors.items()}
                self._judge.left_out_count += len(record.left_out)
                record.entry.text = f"{quote(decision.key)}: {drop_data_names(record.text, stored)}"
            self._release(record, list(record.tensors))

    # -- memory ----------------------------------------------------------------------------

    @property
    def _is_full(self) -> bool:
        return self._copied_bytes >= MAX_COPIED_BYTES

    def _copy_all(self, record: _HeldRecord) -> None:
        for name in list(record.tensors):
            if name not in record.copied:
                self._copy(record, name, MAX_COPIED_BYTES)

    def _copy(self, record: _HeldRecord, name: str, limit: int) -> bool:
        """Replace a held tensor by a copy; return False, and hold it no longer, if the copies reached a limit."""
        if self._copied_bytes >= limit:
            del record.tensors[name]
            record.left_out.add(name)
            return False
        copy = record.tensors[name] = self._session.copy_of(record.tensors[name])
        record.copied.add(name)
        self._copied_bytes += copy.nbytes
        return True

    def _release(self, record: _HeldRecord, names: Iterable[str]) -> None:
        """Release the copies of tensors."""
        if not record.copied:
            return
        for name in names:
            tensor = record.tensors.pop(name, None)
            if tensor is not None and name in record.copied:
                record.copied.discard(name)
                self._copied_bytes -= tensor.nbytes


def _list_first_leaves(entry: Entry) -> list[Any]:
    """Return the first leaf of each parameter's gradients."""
    return [leaves[0] for leaves in entry.fields.values() if isinstance(leaves, list) and leaves]
