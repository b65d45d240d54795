"""Calls of modules without children, which torch_npu.hooks recorded by class."""

from __future__ import annotations

import sys
from typing import Any

from probe_pytorch import compat
from probe_pytorch.capture.transient_hooks import exclude_from_copies, remove_hook
from probe_recording.api import stack_of
from probe_recording.capture.call_recorder import RunningCall
from torch import nn

from probe_legacy.calls.recorder import OldRecorder


class LeafModules:
    """Hooks of a model's modules without children, which are left out of its pickles and copies.

    Args:
        model: The model.
        recorder: The recorder that the calls are reported to.
    """

    def __init__(self, model: nn.Module, recorder: OldRecorder) -> None:
        self._recorder = recorder
        self._running: list[tuple[nn.Module, RunningCall | None]] = []
        self._handles: list[Any] = []
        for module in model.modules():
            if next(module.children(), None) is None:
                self._handles.append(
                    exclude_from_copies(module.register_forward_pre_hook(self._begin_module, with_kwargs=True))
                )
                self._handles.append(
                    exclude_from_copies(module.register_forward_hook(self._end_module, always_call=True))
                )

    def remove(self) -> None:
        """Remove the hooks."""
        while self._handles:
            remove_hook(self._handles.pop())

    def _begin_module(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        calls, call = self._recorder.calls, None
        if calls is not None and calls.session.active and not compat.is_exporting():
            call = calls.begin(f"Module.{type(module).__name__}", args, kwargs, stack_of(sys._getframe(1)))
        self._running.append((module, call))

    def _end_module(self, module: nn.Module, args: tuple[Any, ...], result: Any) -> None:
        """Record the results of a module; one that raised has None, and no record."""
        while self._running:
            running, call = self._running.pop()
            if running is module:
                if call is not None and self._recorder.calls is not None and result is not None:
                    self._recorder.calls.end(call, result)
                return
