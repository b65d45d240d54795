"""A session of no framework, for tests of recorders."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from probe_recording.api import NpyStore, Session


class EmptySession(Session):
    """A session that stores nothing."""

    framework = "empty"

    def quiet(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def will_have_gradient(self, value: Any) -> bool:
        return False

    def new_store(self) -> NpyStore:
        return NpyStore(self.tensors)

    def copy_of(self, tensor: Any) -> Any:
        return tensor
