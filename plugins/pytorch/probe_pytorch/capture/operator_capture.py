"""Level L2: operators that reach the dispatcher or, on an NPU, the kernels of one API."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from probe_recording.api import Capture, stack_of
from probe_recording.capture.threads import Threads
from torch.utils._python_dispatch import TorchDispatchMode

from probe_core.errors import UserError
from probe_pytorch import compat
from probe_pytorch.capture.call_capture import CallCapture
from probe_pytorch.capture.call_recorder import TorchCallRecorder
from probe_pytorch.capture.callers import wrap_with_caller
from probe_pytorch.capture.kernel_dump import KernelDump, load_gradient
from probe_pytorch.session import TorchSession


class OperatorCapture(Capture[TorchSession]):
    """The capture of operators, also in the backward.

    Args:
        threads: The state of the threads.
        calls: The capture of calls, which finds the API whose kernels are dumped.
    """

    def __init__(self, threads: Threads, calls: CallCapture) -> None:
        self._threads = threads
        self._calls = calls
        self._mode: AtenMode | None = None

    def install(self, session: TorchSession, model: Any) -> None:
        """Record operators into a session at level L2."""
        if session.config.level != "L2":
            return
        if session.config.acl_config or "torch_npu" in sys.modules:
            self._dump_kernels(session)
            return
        if self._mode is None:
            self._mode = AtenMode(self._threads)
        self._mode.calls = TorchCallRecorder(session, self._threads)
        self._mode.install()

    def remove(self) -> None:
        """Leave the dispatch mode."""
        if self._mode is not None:
            self._mode.calls = None
            self._mode.remove()

    def _dump_kernels(self, session: TorchSession) -> None:
        """Install the dump of kernels, which on an NPU is level L2, for the one API that ``list`` names."""
        config = session.config
        names = config.names or config.scope
        if len(names) != 1:
            raise UserError(
                f"Level L2 on an NPU dumps the kernels of one API, but the configuration names {len(names)}.",
                'Name exactly one, for example "list": ["Functional.linear.0.forward"].',
            )
        acl = Path(config.acl_config) if config.acl_config else None
        dump = KernelDump(sys.modules.get("torch_npu"), session.kernels, acl, session.log_failure)
        gradient_files = config.backward_input
        if len(gradient_files) > 1:
            raise UserError(
                f"Level L2 runs the backward of one API, but backward_input names {len(gradient_files)} gradients.",
                'Name that of its first result: "backward_input": ["conv2d.1.backward.input.0.pt"].',
            )
        gradient = load_gradient(Path(gradient_files[0])) if gradient_files else None
        calls = TorchCallRecorder(session, self._threads)
        calls.dump_kernels(names[0], dump, gradient)
        self._calls.receive(calls)


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
