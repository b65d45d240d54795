"""A session that sends the forward calls of a step instead of writing them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from probe_recording.reading.entries import SIZES
from probe_recording.sending.body import SentTensor
from probe_recording.sending.message import Buffer
from probe_recording.sending.outbox import CALL_OVERHEAD_BYTES, REASON_RECORDER_ERROR, REASON_UNFINISHED, Outbox
from probe_recording.sessions.session import Session
from probe_recording.sites import Stack
from probe_recording.values.leaves import Save, Tree
from probe_recording.values.tensor_store import Entry

DISTRIBUTED_PREFIX = "Distributed."


@dataclass(slots=True)
class _PendingCall:
    """The copies of a call that is not complete.

    Attributes:
        tensors: The copies.
        size: Bytes reserved for them.
        dropped: The reason for which the call is not sent; None while it is to be sent.
        copies: Copies by the place and layout of the tensor, either of inputs or of outputs; with the tensor
            itself, so that its memory is not used for another one meanwhile.
    """

    tensors: list[SentTensor] = field(default_factory=list)
    size: int = 0
    dropped: str | None = None
    copies: dict[Hashable, tuple[SentTensor, Any]] = field(default_factory=dict)


class SendingMixin(Session):
    """A mix-in of a framework's session: complete forward calls go to an outbox, and nothing is written.

    It stands before the framework's session among the bases. Every tensor is copied to host memory when it is
    saved, so nothing that happens to it afterwards changes what is sent.

    Attributes:
        outbox: The queue of calls, set by ``send_into``.
        step: The number of the step.
    """

    outbox: Outbox
    step: int

    def send_into(self, outbox: Outbox, step: int) -> None:
        """Send the calls of this session as those of ``step`` through ``outbox``."""
        self.outbox, self.step = outbox, step
        self._calls: dict[str, _PendingCall] = {}
        self._queued = 0
        self._closed = False

    # -- to be overridden for a framework -------------------------------------------------

    @abstractmethod
    def describe_tensor(self, tensor: Any) -> tuple[Hashable, int, str]:
        """Return what tensors share that have the same bytes at one moment, the bytes, and the dtype's name.

        The name is that of numpy or ml_dtypes.
        """

    @abstractmethod
    def copy_to_host(self, tensor: Any) -> tuple[Buffer, tuple[int, ...]]:
        """Return the bytes of a copy of a tensor in host memory that nothing else uses, and the shape."""

    # -- reports of captures ---------------------------------------------------------------

    def save_for(self, key: str, may_change: bool = False) -> Save | None:
        """Return the function that copies the tensors of a forward call; None if the call is not sent."""
        if not key.endswith(".forward") or key.startswith(DISTRIBUTED_PREFIX) or self.lost or self._closed:
            return None
        held = self._calls.get(key)
        if held is None:
            held = self._calls[key] = _PendingCall()
            held.dropped = self.outbox.reserve(CALL_OVERHEAD_BYTES)
            held.size = 0 if held.dropped else CALL_OVERHEAD_BYTES
        else:
            held.copies.clear()  # the call may have changed its inputs
        return None if held.dropped else partial(self._copy, held)

    def _copy(self, held: _PendingCall, name: str, tensor: Any) -> str | None:
        """Copy a tensor, unless its call is dropped because there is no room."""
        if held.dropped:
            return None
        try:
            identity, size, dtype = self.describe_tensor(tensor)
            if dtype not in SIZES:
                return None
            if identity in held.copies:
                held.tensors.append(held.copies[identity][0]._replace(name=name))
                return name + self.suffix
            held.dropped = self.outbox.reserve(size)
            if held.dropped:
                self._forget(held)
                return None
            held.size += size
            data, shape = self.copy_to_host(tensor)
        except BaseException:
            held.dropped = held.dropped or REASON_RECORDER_ERROR  # without this tensor the call would be judged wrongly
            self._forget(held)
            raise
        sent = SentTensor(name, dtype, shape, data)
        held.copies[identity] = sent, tensor
        held.tensors.append(sent)
        return name + self.suffix

    def add(self, key: str, fields: dict[str, Tree], stack: Stack | None = None, parent: str | None = None) -> Entry:
        """Queue a complete call, or count it if there was no room for it."""
        held = self._calls.pop(key, None)
        if held is not None and held.dropped:
            self.outbox.drop(key, held.dropped)
        elif held is not None:
            with self.lock:
                self._queued += 1
            self.outbox.put(self.step, key, fields, held.tensors, held.size)
        return Entry(key, fields)

    def take_back(self, prefix: str, number: int) -> None:
        """Forget a call that raised."""
        super().take_back(prefix, number)
        self._forget(self._calls.pop(f"{prefix}.{number}.forward", None))

    def log_failure(self, stage: str, name: str, error: BaseException) -> None:
        """Log an error of the recorder, and count the call that it happened in."""
        super().log_failure(stage, name, error)
        held = self._calls.pop(name, None)
        if held is not None:
            self._forget(held)
            self.outbox.drop(name, held.dropped or REASON_RECORDER_ERROR)

    def _forget(self, held: _PendingCall | None) -> None:
        """Give back what is reserved for a call."""
        if held is not None:
            size, held.size = held.size, 0
            held.tensors.clear()
            held.copies.clear()
            self.outbox.release(size)

    # -- writing ---------------------------------------------------------------------------

    def flush(self, although_empty: bool = False) -> None:
        """Write nothing, and have everything sent that was queued."""
        self.outbox.note_idle()

    def close(self) -> int:
        """End the step; calls that have not returned by now are counted as dropped."""
        self._closed = True
        while self._calls:
            key, held = self._calls.popitem()
            self._forget(held)
            self.outbox.drop(key, REASON_UNFINISHED)
        return self.room

    @property
    def count(self) -> int:
        """The number of calls that were queued."""
        return self._queued
