"""Level L2: operators that reach the dispatcher or, on an NPU, the kernels of one API."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from probe_recording.api import Capture
from probe_recording.capture.threads import Threads

from probe_core.errors import UserError
from probe_pytorch.capture.aten_mode import AtenMode
from probe_pytorch.capture.call_capture import CallCapture
from probe_pytorch.capture.call_recorder import TorchCallRecorder
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
        dump = KernelDump(sys.modules.get("torch_npu"), session.kernels, acl, session.failed)
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
