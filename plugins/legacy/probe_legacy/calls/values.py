"""The state of torch_npu.hooks' calls in a process: the file that values are written to, and from when."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from probe_pytorch import compat
from probe_pytorch.capture.transient_hooks import exclude_from_copies, remove_hook
from probe_recording.api import stack_of
from probe_recording.capture.call_recorder import RunningCall
from probe_recording.interrupts import defer_interrupts
from torch import nn

from probe_core.files.atomic import make_directory
from probe_core.store.files import DEFAULT_RECORD_FILES
from probe_legacy.calls.recorder import OldRecorder
from probe_legacy.calls.rows import HooksRows, open_recording
from probe_legacy.calls.selection import CallSelection
from probe_legacy.calls.versions import HOOKS, write_operators


class HooksRecording:
    """The recording of one process.

    Everything is recorded from the moment when both a file and a model are known, to the end of the process.

    Attributes:
        path: The file to write; None before ``set_dump_path``.
        rows: The writer of rows; None before a model is known.
    """

    def __init__(self) -> None:
        self.path: Path | None = None
        self.rows: HooksRows | None = None
        self._models: list[Any] = []
        self._hooks: list[LeafModules] = []
        self._recorder: OldRecorder | None = None
        self._process = 0
        atexit.register(self.finish)

    def set_path(self, path: Path) -> None:
        """Write to another file from now on; rows are appended to what it holds."""
        self.finish()
        self.path = path
        if self.rows is not None:
            if self.rows.is_numbered:
                path.unlink(missing_ok=True)
            self._begin()

    def register(self, model: Any, rows: HooksRows) -> None:
        """Record a model as well."""
        self.finish()
        self._models.append(model)
        self.rows = rows
        if self.path is not None:
            self._begin()

    def _begin(self) -> None:
        """Start a recording to ``path``."""
        assert self.path is not None and self.rows is not None
        scratch = self.path.absolute().parent / f".probe_{os.getpid()}"
        make_directory(scratch)
        operators = scratch / "operators.json"
        write_operators(HOOKS, operators)
        self._process = os.getpid()
        recorder = self._recorder = OldRecorder(HOOKS, scratch, operators)
        self.rows.number, self.rows.tuples = 0, recorder.tuples
        if not self.rows.is_numbered:  # 3.0.0 recorded no modules
            self._hooks = [LeafModules(model, recorder) for model in self._models]
        self._resume(recorder)

    def _resume(self, recorder: OldRecorder) -> None:
        config = replace(recorder.config, task="tensor", extra_info=False)
        recorder.begin(self._models, CallSelection(HOOKS), config)

    def flush(self) -> None:
        """Write what was recorded so far, and go on."""
        if self._recorder is not None and os.getpid() == self._process:
            self._write(self._recorder)
            self._resume(self._recorder)

    @defer_interrupts()
    def finish(self) -> None:
        """Write everything and end the recording; ``set_path`` starts another."""
        recorder, self._recorder = self._recorder, None
        if recorder is None or os.getpid() != self._process:
            return  # a forked process, whose recorder has let go
        self._write(recorder)
        for hooks in self._hooks:
            hooks.remove()
        self._hooks = []
        recorder.finish()
        shutil.rmtree(recorder.config.dump_path, ignore_errors=True)

    def _write(self, recorder: OldRecorder) -> None:
        part = recorder.directory
        recorder.step()
        recorder.calls = None
        if self.path is None or self.rows is None or not (part / DEFAULT_RECORD_FILES[0]).is_file():
            return
        run = open_recording(part)
        with self.path.open("a", encoding="utf-8") as lines:
            self.rows.write(run, lines)
        run.close()
        shutil.rmtree(part.parent, ignore_errors=True)


# -- calls of modules without children, which torch_npu.hooks recorded by class ---------------------


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
