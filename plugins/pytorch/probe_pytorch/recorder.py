"""The recorder behind ``PrecisionDebugger`` and ``probe run``, which installs the captures of its level."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import probe_recording
from probe_recording import Change, Config, StepDirectory, interrupts_deferred
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from probe_core.errors import UserError, format_list
from probe_pytorch import compat
from probe_pytorch.capture.aten import AtenCapture
from probe_pytorch.capture.backward_phases import BackwardPhaseCapture
from probe_pytorch.capture.calls import Calls
from probe_pytorch.capture.conditions import TorchConditions
from probe_pytorch.capture.families import Families
from probe_pytorch.capture.functions import FunctionCapture
from probe_pytorch.capture.kernel_dump import KernelDump, load_gradient
from probe_pytorch.capture.listed_functions import ListedFunctions
from probe_pytorch.capture.modules import ModuleCapture, list_modules
from probe_pytorch.capture.names import Names, Patch, load_names
from probe_pytorch.capture.operators import CustomOperators
from probe_pytorch.capture.optimizer_phases import OptimizerPhaseCapture
from probe_pytorch.capture.patches import Patches
from probe_pytorch.capture.roots import RootFinder
from probe_pytorch.capture.tap import TapCapture
from probe_pytorch.process import TorchProcess
from probe_pytorch.session import SendingSession, Session
from probe_pytorch.storage.tensors import INITIAL_HEADER_BYTES


class Recorder(TorchProcess, probe_recording.Recorder[Session]):
    """A recorder of a PyTorch process.

    Args:
        config: The settings of the recording.
        finds_models: True to record the modules of any model that is called, if ``start`` is given none.

    Attributes:
        sees_inside: True to record the calls inside of recorded Python functions as well.
        sees_families: True to record custom operators and autograd functions.
        session_kind: The class of sessions that write files.
    """

    sees_inside = False
    sees_families = True
    session_kind: type[Session] = Session
    _modules: ModuleCapture
    _conditions: TorchConditions

    def __init__(self, config: Config, finds_models: bool = False) -> None:
        super().__init__(config, INITIAL_HEADER_BYTES)
        self.finds_models = finds_models
        self._names: Names | None = None
        self._functions: FunctionCapture | None = None
        self._patches: Patches | None = None
        self._families = Families()
        self._backward_phases = BackwardPhaseCapture(self._conditions.model_called)
        self._steps = OptimizerPhaseCapture(self._backward_phases) if config.records_step_phases else None
        if self._steps is not None and finds_models:
            self._steps.watch()  # later steps begin inside a hook of the optimizer
        self._roots = RootFinder(self._threads, self._hook_found, self._backward_phases.record_inputs)
        self._aten: AtenCapture | None = None
        self._tap = TapCapture()
        self._custom: list[Patch] = []
        self._listed = ListedFunctions(config.wrapped_functions) if config.wrapped_functions else None
        self._stance: Callable[[], None] | None = None
        self._paused_calls: Calls | None = None
        self._compiled_before = compat.count_compiled_frames()

    # -- the life of a step ----------------------------------------------------------------

    def _see(self, session: Session, model: nn.Module | Sequence[nn.Module] | None) -> None:
        self._force_eager()
        roots = (model,) if isinstance(model, nn.Module) else tuple(model or ())
        for root in roots:
            self._tell_compiled(root)
        if self._steps is not None:
            self._backward_phases.begin(session, roots)
            self._steps.begin()
        if self.config.compile == "tap":
            self._tap_modules(session, model)
        elif self.config.modules:
            self._modules.begin_step(session)
            if model is not None:
                self._hook_modules(list_modules(model))
        if model is None and self.finds_models and (self.config.modules or self._steps is not None):
            self._roots.install()
        if self.config.apis:
            self._see_functions(session)
        if self.config.level == "L2":
            self._see_operators(session)

    def _tap_modules(self, session: Session, model: Any) -> None:
        self._tap.begin_step(session)
        if model is not None:
            self._tap.install(list_modules(model))

    def _hook_found(self, model: nn.Module, named: list[tuple[str, nn.Module]]) -> None:
        self._tell_compiled(model)
        if self.config.modules:
            self._hook_modules(named)
        self._backward_phases.see(model)

    def _tell_compiled(self, model: nn.Module) -> None:
        """Print once that a compiled model runs uncompiled, and the consequences."""
        if self.config.compile != "eager" or not any(map(compat.is_compiled, model.modules())):
            return
        period = "in the whole run" if self.finds_models else "while it is recorded"
        self._notices.print_once(
            f"probe: the model is compiled by torch.compile, but runs uncompiled {period}. Its results differ "
            "from those of the compiled model by rounding, and dropout draws other random numbers from here "
            'on. To record the compiled model, call start(model=model) with "compile": "tap" and level L0.'
        )

    def _hook_modules(self, named: list[tuple[str, nn.Module]]) -> None:
        config = self.config
        self._modules.install(named, "backward" in config.directions and config.parameter_gradients)

    @interrupts_deferred()
    def stop(self) -> None:
        """Stop recording and write the records."""
        if not self._states.apply(Change.STOP):
            return
        session = self._session
        self._tap.stop()
        self._backward_phases.end()
        if self._steps is not None and session is not None:
            self._steps.end(session)
        self._blind()
        if session is not None:
            session.active = False
            if compat.may_have_compiled():
                session.note("compile", self.config.compile)
            session.flush(although_empty=not self.finds_models)

    def _blind(self) -> None:
        super()._blind()
        self._roots.remove()
        self._backward_phases.remove()
        if self._steps is not None:
            self._steps.remove()
        stance, self._stance = self._stance, None
        if stance is not None:
            stance()
        if self._aten is not None:
            self._aten.calls = None
            self._aten.remove()
        self._modules.remove()
        if self._functions is not None:
            self._functions.calls = None
            self._functions.remove()
        if self._patches is not None:
            self._patches.calls = None
            self._patches.remove()

    def _see_functions(self, session: Session) -> None:
        self._install(self.create_calls(session))

    def _install(self, calls: Calls) -> None:
        """Pass the calls of all functions to ``calls``."""
        if self._names is None:
            self._names = load_names(self.config.wrap_ops, self.config.risk_level)
        if self._functions is None:
            custom = None
            if self.sees_families:
                namespaces = self.config.operator_namespaces
                custom = CustomOperators(self._names.internal_namespaces, namespaces, self._families)
            self._functions = FunctionCapture(self._names, self._threads, custom, self.sees_inside)
            self._patches = Patches(self._names, self._threads)
            for patch in self._custom:
                self._patches.add(patch)
        assert self._patches is not None
        for patch in self._listed.iterate_importable() if self._listed else ():
            self._patches.add(patch)
        self._functions.calls = self._patches.calls = calls
        self._functions.install()
        self._patches.install()

    def create_calls(self, session: Session) -> Calls:
        """Return a new recorder of calls into a session."""
        return Calls(session, self._threads)

    def _see_operators(self, session: Session) -> None:
        if self.config.acl_config or "torch_npu" in sys.modules:
            self._dump_kernels(session)
            return
        if self._aten is None:
            self._aten = AtenCapture(self._threads)
        self._aten.calls = Calls(session, self._threads)
        self._aten.install()

    def _dump_kernels(self, session: Session) -> None:
        """Install the dump of kernels, which on an NPU is level L2, for the one API that ``list`` names."""
        names = self.config.names or self.config.scope
        if len(names) != 1:
            raise UserError(
                f"Level L2 on an NPU dumps the kernels of one API, but the configuration names {len(names)}.",
                'Name exactly one, for example "list": ["Functional.linear.0.forward"].',
            )
        acl = Path(self.config.acl_config) if self.config.acl_config else None
        dump = KernelDump(sys.modules.get("torch_npu"), session.kernels, acl, session.failed)
        self._see_functions(session)
        assert self._functions is not None and self._functions.calls is not None
        gradient_files = self.config.backward_input
        if len(gradient_files) > 1:
            raise UserError(
                f"Level L2 runs the backward of one API, but backward_input names {len(gradient_files)} gradients.",
                'Name that of its first result: "backward_input": ["conv2d.1.backward.input.0.pt"].',
            )
        gradient = load_gradient(Path(gradient_files[0])) if gradient_files else None
        self._functions.calls.dump_kernels(names[0], dump, gradient)

    def _force_eager(self) -> None:
        """Make compiled code run uncompiled until stop."""
        if self.config.compile == "eager" and self._stance is None and compat.may_have_compiled():
            self._stance = compat.force_eager()

    # -- sessions --------------------------------------------------------------------------

    @property
    def versions(self) -> dict[str, str]:
        """Versions of torch and of a device's package beside it."""
        modules = {name: sys.modules.get(name) for name in ("torch", "torch_npu")}
        return {name: str(getattr(module, "__version__", "")) for name, module in modules.items() if module}

    def new_session(self, directory: StepDirectory, shown: str) -> Session:
        """Return a new session."""
        kind = self.session_kind if self.config.online is None else SendingSession
        session = kind(self.config, directory, shown, self._room)
        if self.config.apis and self.sees_families:
            for name, value in self._families.begin_step().items():
                session.note(name, value)
        return session

    def _close_last(self) -> None:
        """Remove the taps and the hooks of optimizers, which stay in place between steps."""
        self._tap.remove()
        self._conditions.data.remove()
        if self._steps is not None:
            self._steps.close()
        if self._listed is not None and self._listed.missing:
            self._notices.print_once(
                f"probe: {format_list(self._listed.missing)} of {self.config.wrapped_functions} "
                "not found, and therefore not recorded."
            )

    def _has_compiled_code(self) -> bool:
        return compat.count_compiled_frames() > self._compiled_before

    def _hook_calls(self, model: nn.Module, before: Callable[..., None]) -> Any:
        """Call ``before`` by a global hook, so that the model holds no hook that would be saved with it."""

        def call_before(module: nn.Module, _: Any) -> None:
            if module is model and not compat.is_exporting():
                before()

        return register_module_forward_pre_hook(call_before)

    def new_conditions(self) -> TorchConditions:
        """Return a new capture of the conditions of steps."""
        return TorchConditions()

    # -- functions of the user ---------------------------------------------------------------

    def register(self, holder: Any, attribute: str, name: str) -> None:
        """Start recording the calls of ``holder.attribute``, under ``name`` and a count."""
        patch = Patch(holder, attribute, name)
        self._custom.append(patch)
        if self._patches is not None:
            self._patches.add(patch)

    def restore(self, holder: Any, attribute: str) -> bool:
        """Stop recording the calls of ``holder.attribute``; return False if they were not recorded."""
        dropped = [p for p in self._custom if p.holder is holder and p.attribute == attribute]
        for patch in dropped:
            self._custom.remove(patch)
        if self._patches is not None:
            self._patches.drop(holder, attribute)
        return bool(dropped)

    # -- single modules --------------------------------------------------------------------------

    def new_modules(self) -> ModuleCapture:
        """Return a new capture of modules."""
        return ModuleCapture(self._threads)

    def _pause_calls(self) -> None:
        self._paused_calls = self._functions.calls if self._functions is not None else None
        self._set_calls(None)

    def _resume_calls(self) -> None:
        self._set_calls(self._paused_calls)
        self._paused_calls = None

    def _set_calls(self, calls: Calls | None) -> None:
        for capture in (self._functions, self._patches):
            if capture is not None:
                capture.calls = calls
