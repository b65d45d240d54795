"""Level L2 on devices other than an NPU: all operators that reach the dispatcher, also in the backward."""

from __future__ import annotations

import sys
from typing import Any

from probe_recording.api import stack_of
from probe_recording.capture.threads import Threads
from torch.utils._python_dispatch import TorchDispatchMode

from probe_pytorch import compat
from probe_pytorch.capture.call_recorder import TorchCallRecorder
from probe_pytorch.capture.callers import wrap_with_caller


class AtenMode(TorchDispatchMode):
    """A dispatch mode that records each dispatched operator as ``Aten.{name}.{count}``.

    The names of collectives and custom operators include their namespace, as in ``Aten.c10d.allreduce_.0``.

    Args:
        threads: The state of the threads.

    Attributes:
        calls: The recorder of calls; None to record nothing.
    """

    def __init__(self, threads: Threads) -> None:
        super().__init__()
        self.calls: TorchCallRecorder | None = None
        self._threads = threads
        self._entered = False

    def install(self) -> None:
        """Enter the mode on this thread, below all modes of the user."""
        if not self._entered:
            compat.enter_dispatch_below(self)
            self._entered = True

    def remove(self) -> None:
        """Leave the mode."""
        if self._entered:
            self._entered = False
            compat.take_dispatch_out(self)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Record the call of the operator ``func``, which torch passes here instead of running it."""
        kwargs = kwargs or {}
        calls = self.calls
        caller = compat.find_dispatch_caller(sys._getframe(1))
        called = wrap_with_caller(caller, compat.get_operator_function(func))
        if calls is None or not calls.session.active:
            return called(*args, **kwargs)
        space = func.namespace
        name = func.overloadpacket.__name__
        prefix = f"Aten.{name}" if space == "aten" else f"Aten.{space}.{name}"
        schema = func._schema
        filled = ("out",) if "out" in kwargs else ()
        writes = bool(schema.arguments and schema.arguments[0].alias_info and schema.arguments[0].alias_info.is_write)
        return calls.record(prefix, called, args, kwargs, stack_of(caller), None, writes, filled)
