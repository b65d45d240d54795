"""The phases of a training step for watches: batch, losses, gradients, and steps of optimizers.

Values are measured when they are observed, and released; only their statistics are kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import mindspore
from mindspore import Parameter, Tensor, nn, ops
from mindspore.experimental import optim as experimental
from mindspore.ops import composite
from mindspore.ops.function import clip_func
from probe_recording.api import Capture
from probe_recording.capture.attribute_patches import AttributePatches
from probe_recording.keeping.readings import iterate_statistics
from probe_recording.step_facts.step_phases import NO_BACKWARD, NO_STEP, StepPhase, StepPhases, flatten_leaves

from probe_mindspore import compat, compat_passes
from probe_mindspore.capture.cells import list_models
from probe_mindspore.session import MindSporeSession

NOT_CALLED = "the model was not called, or start() was given none"
NO_GRADIENTS = "no backward pass computed gradients of parameters that no loss scale may have multiplied"
REASONS = {
    "batch": NOT_CALLED, "forward": NOT_CALLED, "loss": NO_BACKWARD, "gradient": NO_GRADIENTS,
    "applied": NO_STEP, "settings": NO_STEP, "parameters_before": NO_STEP, "state_before": NO_STEP,
    "parameters_after": NO_STEP, "state_after": NO_STEP,
}  # fmt: skip


class PhaseCapture(Capture[MindSporeSession]):
    """A capture of the phases of a step, by hooks on models and wrappers around passes and optimizers.

    Args:
        suspend_switch: Returns a context in which functions are compiled as without probe. Optimizers run in it,
            because MindSpore prints many warnings if they are not compiled. Calls inside are not recorded.
    """

    def __init__(self, suspend_switch: Callable[[], AbstractContextManager[None]]) -> None:
        self._suspend_switch = suspend_switch
        self._session: MindSporeSession | None = None
        self._step_phases = StepPhases()
        self._handles: list[Any] = []
        self._wrappers = AttributePatches()
        self._clipping_wrappers = AttributePatches()
        self._models: Sequence[nn.Cell] = ()
        self._has_frozen = False
        self._depth = 0
        self._outputs: Any = None

    def __deepcopy__(self, memo: dict[int, Any]) -> PhaseCapture:
        return self  # a copied model keeps its hooks, which belong to the original

    # -- installation ----------------------------------------------------------------------

    def install(self, session: MindSporeSession, model: Any) -> None:
        """Record into ``session`` from now on, with the inputs and outputs of the models."""
        models = list_models(model)
        if session.step_phases is None:
            session.step_phases = StepPhases()
            self._has_frozen = False
            for phase, reason in REASONS.items():
                session.step_phases.explain_missing(phase, reason)
        self._session, self._step_phases, self._models = session, session.step_phases, models
        for model in models:
            self._handles += compat.hook_forward(model, self._record_inputs, self._record_outputs)
        self._wrap(compat_passes.passes, compat_passes.FORWARD, self._wrap_forward)
        self._wrap(compat_passes.passes, compat_passes.BACKWARD, self._wrap_backward)
        for optimizer in (nn.Optimizer, experimental.Optimizer):
            self._wrap(optimizer, "__call__", self._wrap_step)
        for scaler in (mindspore.amp.StaticLossScaler, mindspore.amp.DynamicLossScaler):
            self._wrap(scaler, "unscale", self._wrap_unscaling)
        self._replace_clipping()

    def _wrap(self, holder: Any, name: str, wrap: Callable[[Any], Any]) -> None:
        self._wrappers.replace(holder, name, wrap(getattr(holder, name)))

    def _replace_clipping(self) -> None:
        """Wrap the function that clips gradients, above the wrapper of the recorder of calls."""
        for module in (ops, ops.function, clip_func, composite):
            if hasattr(module, "clip_by_global_norm"):
                wrapper = self._wrap_clipping(module.clip_by_global_norm)
                self._clipping_wrappers.replace(module, "clip_by_global_norm", wrapper)

    def remove(self) -> None:
        """Remove all hooks and wrappers."""
        self._clipping_wrappers.restore_all()
        self._wrappers.restore_all()
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()
        self._session = self._outputs = None
        self._models = ()

    # -- values ----------------------------------------------------------------------------

    def _run_guarded(self, stage: str, record: Callable[[], None]) -> None:
        """Run a part of the recorder so that its errors are logged, not raised; do nothing at rest."""
        session = self._session
        if session is None or not session.active or session.is_quiet:
            return
        try:
            with session.quiet(), session.lock:
                record()
        except Exception as error:  # the program must go on whatever the recorder's error
            session.log_failure("step_phases", stage, error)

    def _collect_leaf(self, value: Any) -> Any:
        """Return the leaf of a tensor or a number, or a tree of them."""
        assert self._session is not None
        return self._session.collector.tree(value, "", None)

    def _add(self, phase: str, named: Sequence[tuple[str, Any]]) -> StepPhase | None:
        """Add a step_phase of values; None if there are no values."""
        if not named:
            return None
        step_phase = self._step_phases.add(phase)
        step_phase.values.update((name, self._collect_leaf(value)) for name, value in named)
        return step_phase

    def _add_tree(self, phase: str, value: Any, name: str) -> None:
        leaves = {key: leaf for key, leaf in flatten_leaves(self._collect_leaf(value), name) if leaf is not None}
        self._step_phases.add(phase).values.update(leaves)

    # -- models ----------------------------------------------------------------------------

    def _record_inputs(self, model: nn.Cell, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        def record() -> None:
            step_phase = self._step_phases.add("batch")
            for tree in (list(args), dict(kwargs or {})):
                leaves = flatten_leaves(self._collect_leaf(tree), "input")
                step_phase.values.update({key: leaf for key, leaf in leaves if leaf is not None})
            if not self._has_frozen:
                self._has_frozen = True
                self._record_frozen()

        self._run_guarded("batch", record)

    def _record_frozen(self) -> None:
        """Record what no optimizer shows: parameters that are not trained, once in a step."""
        frozen = [
            (str(parameter.name), parameter)
            for model in self._models
            for parameter in model.get_parameters()
            if not parameter.requires_grad
        ]
        self._add("frozen", frozen)

    def _record_outputs(self, model: nn.Cell, *rest: Any) -> None:
        if rest[-1] is not None:  # it is None after an exception
            self._run_guarded("forward", lambda: self._add_tree("forward", rest[-1], "output"))

    # -- differentiation -------------------------------------------------------------------

    def _wrap_forward(self, original: Any) -> Callable[..., Any]:
        def forward(*args: Any, **kwargs: Any) -> Any:
            self._depth += 1
            try:
                result = original(*args, **kwargs)
            finally:
                self._depth -= 1
            if not self._depth:
                self._outputs = result
            return result

        return forward

    def _wrap_backward(self, original: Any) -> Callable[..., Any]:
        def backward(*args: Any) -> Any:
            if self._depth:  # a derivative within a function that is differentiated
                return original(*args)
            outputs, self._outputs = self._outputs, None
            self._run_guarded("loss", lambda: self._add_loss(outputs, compat_passes.Pass(args)))
            result = original(*args)
            self._run_guarded("gradient", lambda: self._add_gradients(result, compat_passes.Pass(args)))
            return result

        return backward

    def _add_loss(self, outputs: Any, backward_pass: compat_passes.Pass) -> None:
        losses = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        losses = losses[:1] if backward_pass.has_aux else losses
        self._add_tree("loss", [loss for loss in losses if isinstance(loss, Tensor)], "loss")

    def _add_gradients(self, result: Any, backward_pass: compat_passes.Pass) -> None:
        if not backward_pass.may_be_scaled:
            self._add("gradient", backward_pass.gradients(result))

    def _wrap_unscaling(self, original: Any) -> Callable[..., Any]:
        def unscale(scaler: Any, *args: Any, **kwargs: Any) -> Any:
            def record() -> None:
                self._add("unscaled", [("scale", scaler.scale_value)])

            self._run_guarded("unscaled", record)
            return original(scaler, *args, **kwargs)

        return unscale

    def _wrap_clipping(self, original: Any) -> Callable[..., Any]:
        def clip(x: Any, *args: Any, **kwargs: Any) -> Any:
            def record() -> None:
                parts = [part.norm for part in iterate_statistics(self._collect_leaf(x)) if part.norm is not None]
                step_phase = self._add("clipped", [("total_norm", math.hypot(*parts))])
                assert step_phase is not None
                step_phase.facts["function"] = "clip_by_global_norm"

            self._run_guarded("clipped", record)
            return original(x, *args, **kwargs)

        return clip

    # -- optimizers ------------------------------------------------------------------------

    def _wrap_step(self, original: Any) -> Callable[..., Any]:
        def step(optimizer: nn.Cell, *args: Any, **kwargs: Any) -> Any:
            self._run_guarded("before the step", lambda: self._record_before_step(optimizer, args))
            result = self._run_compiled(original, optimizer, *args, **kwargs)
            self._run_guarded("after the step", lambda: self._record_after_step(optimizer))
            return result

        return step

    def _run_compiled(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """Run an optimizer without the wrappers of functions, the last one of which is removed first."""
        self._clipping_wrappers.restore_all()
        try:
            with self._suspend_switch():
                return original(*args, **kwargs)
        finally:
            if self._session is not None:  # the recording goes on
                self._replace_clipping()

    def _record_before_step(self, optimizer: nn.Cell, args: tuple[Any, ...]) -> None:
        kind = type(optimizer).__name__
        settings = self._step_phases.add("settings")
        settings.facts.update(optimizer=kind, groups=list_groups(optimizer))
        for phase, named in (
            ("applied", list_applied_gradients(optimizer, args)),
            ("parameters_before", list_parameters(optimizer)),
            ("state_before", list_states(optimizer)),
        ):
            self._add_optimizer_phase(kind, phase, named)

    def _record_after_step(self, optimizer: nn.Cell) -> None:
        kind = type(optimizer).__name__
        self._add_optimizer_phase(kind, "parameters_after", list_parameters(optimizer))
        self._add_optimizer_phase(kind, "state_after", list_states(optimizer))

    def _add_optimizer_phase(self, kind: str, phase: str, named: Sequence[tuple[str, Any]]) -> None:
        step_phase = self._add(phase, named)
        if step_phase is not None:
            step_phase.facts["optimizer"] = kind


# -- the parameters, states and settings of optimizers of MindSpore ---------------------------------


Named = list[tuple[str, Any]]
_SEVERAL = (list, tuple, nn.CellList)


def list_parameters(optimizer: nn.Cell) -> Named:
    """Return the names and values of the parameters that an optimizer changes."""
    return [(str(parameter.name), parameter) for parameter in optimizer.parameters]


def list_applied_gradients(optimizer: nn.Cell, args: Sequence[Any]) -> Named:
    """Return the gradients that an optimizer is called with, by the names of its parameters."""
    passed_gradients = args[0] if len(args) == 1 else args
    gradients = [passed_gradients] if isinstance(passed_gradients, Tensor) else list(passed_gradients)
    return [(name, gradient) for (name, _), gradient in zip(list_parameters(optimizer), gradients)]


def list_states(optimizer: nn.Cell) -> Named:
    """Return the other parameters of an optimizer, such as moments, without those that hold settings."""
    excluded_ids = {id(parameter) for parameter in optimizer.parameters}
    excluded_ids.update(id(value) for group in _iterate_settings(optimizer) for value in group.values())
    return [(str(state.name), state) for state in optimizer.get_parameters() if id(state) not in excluded_ids]


def list_groups(optimizer: nn.Cell) -> list[dict[str, Any]]:
    """Return the settings of each group of parameters, and their names where they are known."""
    names = [name for name, _ in list_parameters(optimizer)]
    groups = list(_iterate_settings(optimizer))
    return [
        {
            "settings": {key: _convert_to_plain(value) for key, value in settings.items()},
            "parameters": _select_names(names, number, len(groups)),
        }
        for number, settings in enumerate(groups)
    ]


def _select_names(names: list[str], number: int, count: int) -> list[str]:
    """Return the names of a group: all of a single group, or one if each parameter is a group."""
    if count == 1:
        return names
    return [names[number]] if count == len(names) else []


def _iterate_settings(optimizer: nn.Cell) -> Iterator[dict[str, Any]]:
    """Yield the settings of each group of parameters; with rates of its own, each parameter is a group."""
    groups = getattr(optimizer, "param_groups", None)
    if isinstance(groups, list):  # as in PyTorch: optimizers of mint and experimental
        for group in groups:
            yield {key: value for key, value in group.items() if key != "params"}
        return
    rates = getattr(optimizer, "learning_rate", None)
    decay, scale = (getattr(optimizer, name, None) for name in ("weight_decay", "loss_scale"))
    for number, rate in enumerate(rates if isinstance(rates, _SEVERAL) else [rates]):
        group_decay = decay[number] if isinstance(decay, _SEVERAL) and number < len(decay) else decay
        yield {"lr": _read_scheduled_rate(optimizer, rate), "weight_decay": group_decay, "loss_scale": scale}


def _read_scheduled_rate(optimizer: nn.Cell, rate: Any) -> Any:
    """Return the learning rate of the next step, if it is a constant or an item of a list."""
    values = getattr(rate, "learning_rate", None)
    step = getattr(optimizer, "global_step", None)
    if not isinstance(rate, nn.Cell) or not isinstance(values, Parameter) or step is None:
        return rate
    rates = values.asnumpy()
    return float(rates[min(int(step.asnumpy().reshape(-1)[0]), len(rates) - 1)])


def _convert_to_plain(value: Any) -> Any:
    """Return a setting as JSON: a number, a text or a list of them; others by the names of their types."""
    if isinstance(value, Tensor):
        return float(value.asnumpy().reshape(-1)[0]) if value.size == 1 else type(value).__name__
    if isinstance(value, (list, tuple)):
        return [_convert_to_plain(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return type(value).__name__
