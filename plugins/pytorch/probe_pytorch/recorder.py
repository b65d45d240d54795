"""The recorder behind ``PrecisionDebugger`` and ``probe run``, composed of the captures of its level."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from probe_recording.api import Capture, Config, ModuleCapture, Recorder
from probe_recording.framework import StepDirectory
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from probe_pytorch import compat
from probe_pytorch.capture.call_capture import CallCapture
from probe_pytorch.capture.call_recorder import TorchCallRecorder
from probe_pytorch.capture.conditions import TorchConditions
from probe_pytorch.capture.eager_code import EagerCode
from probe_pytorch.capture.model_finder import ModelFinder
from probe_pytorch.capture.modules import TorchModuleHooks, list_modules
from probe_pytorch.capture.names import Patch
from probe_pytorch.capture.operator_capture import OperatorCapture
from probe_pytorch.capture.step_phases import StepPhaseCapture
from probe_pytorch.capture.tap import TapCapture
from probe_pytorch.process import TorchProcess
from probe_pytorch.session import TorchSendingSession, TorchSession
from probe_pytorch.storage.tensors import INITIAL_HEADER_BYTES


class TorchRecorder(TorchProcess, Recorder[TorchSession]):
    """A recorder of a PyTorch process.

    Args:
        config: The settings of the recording.
        finds_models: True to record the modules of any model that is called, if ``start`` is given none.
        records_inside: True to record the calls inside of recorded Python functions as well.
        records_families: True to record custom operators and autograd functions.

    Attributes:
        session_class: The class of sessions that write files.
    """

    framework = "pytorch"
    session_class: type[TorchSession] = TorchSession
    _conditions: TorchConditions

    def __init__(
        self, config: Config, finds_models: bool = False, *, records_inside: bool = False, records_families: bool = True
    ) -> None:
        super().__init__(config, INITIAL_HEADER_BYTES, writes_empty_steps=not finds_models)
        self._eager = EagerCode(self._notices, "in the whole run" if finds_models else "while it is recorded")
        self._phases: StepPhaseCapture | None = None
        if config.records_step_phases:
            self._phases = StepPhaseCapture(self._conditions.record_first_call, hooks_optimizers=finds_models)
        self._modules = ModuleCapture(self.new_modules(), list_modules)
        self._calls = CallCapture(
            config, self._threads, self._notices, self.create_calls,
            records_inside=records_inside, records_families=records_families,
        )  # fmt: skip
        self.captures += self._list_captures(finds_models)
        self._compiled_before = compat.count_compiled_frames()

    def _list_captures(self, finds_models: bool) -> list[Capture[TorchSession]]:
        captures: list[Capture[TorchSession]] = [self._eager]
        if self._phases is not None:
            captures.append(self._phases)
        captures.append(TapCapture() if self.config.compile == "tap" else self._modules)
        if finds_models:
            captures.append(ModelFinder(self._threads, self._record_root, self._record_root_call))
        return [*captures, self._calls, OperatorCapture(self._threads, self._calls)]

    # -- models that are found ----------------------------------------------------------------

    def _record_root(self, model: nn.Module, named: list[tuple[str, nn.Module]]) -> None:
        if self.config.compile == "eager":
            self._eager.report_compiled(model)
        if self.config.compile != "tap":
            self._modules.hook(named, self.config)
        if self._phases is not None:
            self._phases.add_model(model)

    def _record_root_call(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._phases is not None:
            self._phases.record_inputs(model, args, kwargs)
        elif not compat.is_tracing():
            self._conditions.record_first_call(model, args, kwargs)

    # -- sessions --------------------------------------------------------------------------

    @property
    def versions(self) -> dict[str, str]:
        """Versions of torch and of a device's package beside it."""
        modules = {name: sys.modules.get(name) for name in ("torch", "torch_npu")}
        return {name: str(getattr(module, "__version__", "")) for name, module in modules.items() if module}

    def new_session(self, directory: StepDirectory, displayed_path: str) -> TorchSession:
        """Return a new session."""
        session_class = self.session_class if self.config.online is None else TorchSendingSession
        session = session_class(self.config, directory, displayed_path, self._sessions.carryover.room)
        self._calls.begin_step(session)
        return session

    def create_calls(self, session: TorchSession) -> TorchCallRecorder:
        """Return a new recorder of calls into a session."""
        return TorchCallRecorder(session, self._threads)

    def new_modules(self) -> TorchModuleHooks:
        """Return new hooks of modules."""
        return TorchModuleHooks(self._threads)

    def new_conditions(self) -> TorchConditions:
        """Return a new capture of the conditions of steps."""
        return TorchConditions()

    def _has_compiled_code(self) -> bool:
        return compat.count_compiled_frames() > self._compiled_before

    def _hook_calls(self, model: nn.Module, before: Callable[..., None]) -> Any:
        """Call ``before`` by a global hook, so that the model holds no hook that would be saved with it."""

        def call_before(module: nn.Module, _: Any) -> None:
            if module is model and not compat.is_exporting():
                before()

        return register_module_forward_pre_hook(call_before)

    # -- functions of the user ---------------------------------------------------------------

    def register(self, holder: Any, attribute: str, name: str) -> None:
        """Start recording the calls of ``holder.attribute``, under ``name`` and a count."""
        self._calls.add(Patch(holder, attribute, name))

    def restore(self, holder: Any, attribute: str) -> bool:
        """Stop recording the calls of ``holder.attribute``; return False if they were not recorded."""
        return self._calls.drop(holder, attribute)
