"""Recording of one step of one rank of a MindSpore program."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from mindspore import Tensor, communication
from probe_recording.api import Config, NpyStore, Process, Session, belongs_to_recorder
from probe_recording.capture.threads import Threads
from probe_recording.framework import SendingMixin, StepDirectory
from probe_recording.values.arrays import Array

from probe_mindspore import compat
from probe_mindspore.values import MindSporeCollector

belongs_to_recorder(Path(__file__).parent)


class MindSporeSession(Session):
    """Session that records one step of one rank.

    Tensors are copied to host memory at once, and written as ``.npy`` files.
    """

    framework = "mindspore"
    collector: MindSporeCollector

    def __init__(self, config: Config, directory: StepDirectory, shown: str, threads: Threads) -> None:
        super().__init__(config, directory, shown)
        self._threads = threads
        measured = config.task != "structure" and config.online is None
        self.collector = MindSporeCollector(self.log_failure, self.checksum, measured)

    def quiet(self) -> AbstractContextManager[None]:
        """Return a context in which calls are not recorded, and not part of the graph."""
        return self._suspend_recording()

    @contextmanager
    def _suspend_recording(self) -> Iterator[None]:
        """Mark this thread as being inside the recorder."""
        with self._threads.suspend(), compat.disable_gradients():
            yield

    @property
    def is_quiet(self) -> bool:
        """True within the recorder, in this thread."""
        return bool(self._threads.inside)

    def will_have_gradient(self, value: Any) -> bool:
        """Return True for a tensor that is part of the graph."""
        return isinstance(value, Tensor) and compat.get_node(value) is not None

    def new_store(self) -> NpyStore:
        """Return a store that writes one file for each tensor."""
        return NpyStore(self.tensors)

    def copy_of(self, tensor: Array) -> Array:
        """Return a copy, because the array may share its memory with a tensor."""
        copied: Array = tensor.copy()
        return copied


class MindSporeSendingSession(SendingMixin, MindSporeSession):
    """Session whose forward calls are sent to a receiver; nothing is measured and nothing is written."""

    def describe_tensor(self, tensor: Array) -> tuple[Hashable, int, str]:
        """Return the memory and layout of an array, its number of bytes and the name of its dtype."""
        place = tensor.__array_interface__["data"][0], tensor.shape, tensor.strides, tensor.dtype.name
        return place, tensor.nbytes, tensor.dtype.name

    def copy_to_host(self, tensor: Array) -> tuple[memoryview, tuple[int, ...]]:
        """Return the bytes of a copy, and the shape."""
        flat: Any = np.array(tensor, order="C", copy=True).reshape(-1).view(np.uint8)
        return memoryview(flat), tensor.shape


# -- the process of a MindSpore program -------------------------------------------------------------


class MindSporeProcess(Process):
    """The rank of a MindSpore process, from its default communication group."""

    rank_variable = "RANK_ID"
    size_variable = "RANK_SIZE"

    def _group(self) -> tuple[int, int] | None:
        if not communication.GlobalComm.INITED:
            return None
        return int(communication.get_rank()), int(communication.get_group_size())
