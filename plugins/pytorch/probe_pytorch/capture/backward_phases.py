"""The phases of a training step: what the model receives and returns, and the gradients of its parameters.

Values are measured where they stand and let go; nothing is kept but their statistics and, while an optimizer
steps, some elements of each parameter (``capture/optimizer_phases.py``).
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence
from functools import partial, wraps
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from probe_recording.api import stack_of
from probe_recording.capture.attribute_patches import AttributePatches
from probe_recording.sites import STAND_IN, Stack
from probe_recording.step_facts.step_phases import NO_BACKWARD, StepPhase, StepPhases, flatten_leaves
from torch import nn

from probe_pytorch import compat, compat_hooks
from probe_pytorch.capture.callers import ORIGINAL_ATTRIBUTE, TORCH_DIRECTORY, wrap_with_caller
from probe_pytorch.capture.modules import COMPILED
from probe_pytorch.capture.transient_hooks import exclude_from_copies, remove_hook
from probe_pytorch.session import TorchSession
from probe_pytorch.statistics import PLAIN
from probe_pytorch.values import TorchCollector

MEASURED_BLOCK_COUNT, MEASURED_BLOCK_SIZE = 16, 2048
"""Number and size of the blocks that are measured of a parameter after the step, of a state and of a buffer.

Smaller ones are measured as a whole, as are gradients and parameters before the step, which the others follow
from.
"""

PROBE_DIRECTORY = str(Path(__file__).parents[1])
NO_MODEL = "start() was given no model, so its inputs, outputs and parameters are not known"
NOT_CALLED = "the model was not called, or it is compiled"


class BackwardPhaseCapture:
    """A capture of the phases of a step, from the batch to the last backward pass.

    Args:
        on_call: A function that receives each model and its arguments before its forward.

    Attributes:
        session: The session that is recorded into; None while nothing is recorded.
        models: The models of the step.
        names: The names of their parameters, by the ids of these.
    """

    def __init__(self, on_call: Callable[[nn.Module, Any, dict[str, Any]], None]) -> None:
        self._on_call = on_call
        self.session: TorchSession | None = None
        self.models: list[nn.Module] = []
        self._seen: list[nn.Module] = []
        self.names: dict[int, str] = {}
        self._step_phases = StepPhases()
        self._collector = TorchCollector()
        self._handles: list[Any] = []
        self._hidden: list[Any] = []
        self._patches = AttributePatches()
        self._depth = 0
        self._gradients: dict[str, StepPhase] = {}
        self._accumulating: set[str] = set()

    # -- installation ----------------------------------------------------------------------

    def install(self, session: TorchSession, models: Sequence[nn.Module]) -> None:
        """Record into ``session`` from now on, with the parameters of the models."""
        if session.step_phases is None:
            session.step_phases = StepPhases()
            config = session.config
            self._collector = TorchCollector(
                keep=session.keep, wide=config.precision == "high", failed=session.log_failure, encodes=True
            )
        self._step_phases = session.step_phases
        self.session = session
        for model in models:
            self.add_model(model)
        self._replace_backward()

    def add_model(self, model: nn.Module) -> None:
        """Record what a model receives and returns, and the gradients of its parameters."""
        session = self.session
        if session is None or any(model is watched for watched in self.models):
            return
        prefix = f"{len(self.models)}." if self.models else ""
        self.models.append(model)
        is_hookable = session.config.compile != "tap" and not isinstance(model, torch.jit.ScriptModule)
        with compat.disable_modes():
            if is_hookable:
                self._hidden.append(
                    exclude_from_copies(model.register_forward_pre_hook(self.record_inputs, with_kwargs=True))
                )
                self._hidden.append(exclude_from_copies(model.register_forward_hook(self._record_output)))
            for name, parameter in model.named_parameters():
                if id(parameter) not in self.names:
                    self.names[id(parameter)] = f"{prefix}{clean_name(name)}"
                    if parameter.requires_grad:
                        self._watch(self.names[id(parameter)], parameter)

    def _watch(self, name: str, parameter: nn.Parameter) -> None:
        callback = partial(self._record_gradient, name, weakref.ref(parameter))
        self._handles.append(compat_hooks.register_hook(parameter, callback))

    def remove(self) -> None:
        """Remove all hooks, and forget the models."""
        self.session = None
        self._patches.restore_all()
        for handle in self._handles:
            handle.remove()
        for handle in self._hidden:
            remove_hook(handle)
        self._handles, self._hidden, self.models, self._seen = [], [], [], []
        self.names.clear()
        self._gradients.clear()
        self._accumulating.clear()

    def complete(self) -> None:
        """Note the phases that the step did not show, before the captures are removed."""
        if self.session is None:
            return
        has_model = bool(self.models)
        for phase in ("batch", "forward"):
            self._step_phases.explain_missing(phase, NOT_CALLED if has_model else NO_MODEL)
        self._step_phases.explain_missing("loss", NO_BACKWARD)
        self._step_phases.explain_missing("gradient", NO_BACKWARD if has_model else NO_MODEL)

    # -- phases ---------------------------------------------------------------------------------

    def add_phase(self, phase: str, stack: Stack | None = None) -> StepPhase:
        """Add a phase of this moment and return it."""
        return self._step_phases.add(phase, stack)

    def collect_leaf(self, value: Any) -> Any:
        """Return the leaf of a tensor or a scalar, or a tree of them; call this in a quiet context."""
        return self._collector.tree(value, "", None)

    def collect_leaves(self, named: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
        """Return the names of values, each with its leaf; call this in a quiet context."""
        leaves = self._collector.leaves([value for _, value in named])
        return [(name, leaf) for (name, _), leaf in zip(named, leaves)]

    def stack(self, frame: FrameType | None) -> Stack | None:
        """Return the call stack from the first frame of the program; None if it is not to be recorded."""
        if self.session is None or not self.is_active or not self.session.config.extra_info:
            return None
        while frame is not None and (
            frame.f_code.co_filename.startswith((TORCH_DIRECTORY, PROBE_DIRECTORY)) or frame.f_code.co_name == STAND_IN
        ):
            frame = frame.f_back
        return stack_of(frame) if frame is not None else None

    @property
    def is_active(self) -> bool:
        """True while the session records."""
        return self.session is not None and self.session.active and not compat.is_tracing()

    def run_guarded(self, stage: str, record: Callable[[], None]) -> None:
        """Run a part of the recorder so that its errors are logged, not raised; do nothing at rest."""
        session = self.session
        if session is None or not self.is_active:
            return
        try:
            with session.quiet(), session.lock:
                if torch.is_grad_enabled():
                    with torch.no_grad():
                        record()
                else:  # as inside hooks of the backward pass
                    record()
        except Exception as error:  # the program must go on whatever the recorder's error
            session.log_failure("step_phases", stage, error)

    # -- batch and forward -----------------------------------------------------------------

    def record_inputs(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Record what a model receives."""
        stack = self.stack(sys._getframe(1))

        def record() -> None:
            step_phase = self.add_phase("batch", stack)
            for tree, name in ((list(args), "input"), (dict(kwargs), "input")):
                step_phase.values.update(self._collect_tensors(tree, name))

        self.run_guarded("batch", record)
        self.run_guarded("held", lambda: self._record_frozen_values(model))
        if not compat.is_tracing():
            self._on_call(model, args, kwargs)

    def _record_frozen_values(self, model: nn.Module) -> None:
        """Record what no optimizer shows: buffers and parameters without a gradient, once in a step."""
        if any(model is recorded for recorded in self._seen):
            return
        self._seen.append(model)
        frozen = [(name, value) for name, value in model.named_parameters() if not value.requires_grad]
        prefix = self._create_prefix(model)
        for phase, values in (("frozen", frozen), ("buffers_before", list(model.named_buffers()))):
            if values:
                named = [(f"{prefix}{clean_name(name)}", take_blocks(value)) for name, value in values]
                self.add_phase(phase).values.update(self.collect_leaves(named))

    def _create_prefix(self, model: nn.Module) -> str:
        """Return the beginning of the names of a model's parameters and buffers."""
        number = next((n for n, candidate in enumerate(self.models) if candidate is model), 0)
        return f"{number}." if number else ""

    def _record_output(self, model: nn.Module, args: Any, output: Any) -> None:
        def record() -> None:
            self.add_phase("forward").values.update(self._collect_tensors(output, "output"))

        self.run_guarded("forward", record)

    def _collect_tensors(self, value: Any, name: str) -> dict[str, Any]:
        """Return the leaves of all tensors and scalars within a value by their names."""
        return {key: leaf for key, leaf in flatten_leaves(self.collect_leaf(value), name) if leaf is not None}

    # -- backward --------------------------------------------------------------------------

    def _replace_backward(self) -> None:
        """Wrap ``torch.autograd.backward``, which ``Tensor.backward`` calls, to see the loss."""
        if self._patches:
            return
        original = torch.autograd.backward

        @wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            called = wrap_with_caller(sys._getframe(1), original)
            if self._depth:  # torch runs one pass within another for modes and for checkpoints
                return called(tensors, *args, **kwargs)
            self._depth += 1
            try:
                self._record_loss(tensors, self.stack(sys._getframe(1)))
                result = called(tensors, *args, **kwargs)
                self._record_reduced_gradients()
            finally:
                self._depth -= 1
            return result

        setattr(backward, ORIGINAL_ATTRIBUTE, original)  # it passes itself to modes by the name that now means this
        self._patches.replace(torch.autograd, "backward", backward)

    def _record_loss(self, tensors: Any, stack: Stack | None) -> None:
        def record() -> None:
            losses = list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]
            self.add_phase("loss", stack).values.update(self._collect_tensors(losses, "loss"))
            self._gradients.clear()

        self.run_guarded("loss", record)

    def _record_gradient(self, name: str, parameter: Callable[[], Any], gradient: Any) -> None:
        """Take in a gradient as autograd gives it."""

        def record() -> None:
            self._open_gradient_phase("gradient", name).values[name] = self.collect_leaf(gradient)
            held = parameter()
            if held is not None and held.grad is not None:  # it will be added to what is there
                self._open_gradient_phase("accumulated", name)
                if name not in self._accumulating:
                    self._accumulating.add(name)
                    callback = partial(self._record_accumulated, name)
                    self._handles.append(held.register_post_accumulate_grad_hook(callback))

        self.run_guarded("gradient", record)

    def _record_accumulated(self, name: str, parameter: Any) -> None:
        """Take in the sum of a gradient and of those before it."""
        step_phase = self._gradients.get("accumulated")
        if step_phase is None or name not in step_phase.values:
            return

        def record() -> None:
            step_phase.values[name] = self.collect_leaf(parameter.grad)

        self.run_guarded("accumulated", record)

    def _open_gradient_phase(self, phase: str, name: str) -> StepPhase:
        """Return the entry of this phase in this backward pass, with a place for the value ``name``.

        A second gradient of one parameter belongs to another backward pass.
        """
        step_phase = self._gradients.get(phase)
        if step_phase is None or step_phase.values.get(name) is not None:
            step_phase = self._gradients[phase] = self.add_phase(phase)
        step_phase.values[name] = None
        return step_phase

    def _record_reduced_gradients(self) -> None:
        """Record the gradients after a backward pass, if several processes may have reduced them."""
        dist = torch.distributed
        if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
            return

        def record() -> None:
            step_phase = self.add_phase("reduced")
            for model in self.models:
                for parameter in model.parameters():
                    name = self.names.get(id(parameter))
                    if name is not None and parameter.grad is not None:
                        step_phase.values[name] = self.collect_leaf(parameter.grad)

        self.run_guarded("reduced", record)


def clean_name(name: str) -> str:
    """Return the path of a parameter without the parts that torch.compile inserts."""
    return ".".join(part for part in name.split(".") if part != COMPILED)


def take_blocks(value: Any) -> Any:
    """Return a large tensor in parts: the first elements of evenly spread blocks, as a matrix."""
    if type(value) not in PLAIN or (size := value.numel()) <= MEASURED_BLOCK_COUNT * MEASURED_BLOCK_SIZE:
        return value
    if value.layout is not torch.strided or not value.is_contiguous() or compat.is_freed(value):
        return value
    return value.detach().as_strided((MEASURED_BLOCK_COUNT, MEASURED_BLOCK_SIZE), (size // MEASURED_BLOCK_COUNT, 1))
