"""The second run of one call of torch, forward or backward, with changed copies of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from probe_recording.api import InterceptedCall

from probe_watch.free_benchmark.arguments import UnsupportedTensor, choose_change, map_tensors
from probe_watch.free_benchmark.pytorch_arguments import (
    attach_leaf,
    copy_tensor,
    create_leaf,
    is_supported,
    iterate_torch_tensors,
    lay_out_like,
)
from probe_watch.free_benchmark.pytorch_perturbations import HALVES, create_changer, raise_halves
from probe_watch.free_benchmark.settings import ChangeMode

CPU = torch.device("cpu")


@dataclass(slots=True)
class Repetition:
    """A second run of a call that is ready to start.

    Attributes:
        function: The function to call.
        args: The changed positional arguments.
        kwargs: The changed keyword arguments.
        mode: The change.
        autocast: The types of devices, with the state of autocast when the program made the call.
        leaves: The receivers of gradients, by the ids of the program's tensors.
        inputs: The ids of the program's tensors that need a gradient, in the order of the arguments.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    mode: ChangeMode
    autocast: list[tuple[str, bool, torch.dtype]]
    leaves: dict[int, torch.Tensor] = field(default_factory=dict)
    inputs: list[int] = field(default_factory=list)

    def run(self) -> Any:
        """Return the result of the call; hooks of the program for saved tensors are not called."""
        with self._apply_settings():
            return self.function(*self.args, **self.kwargs)

    def compute_gradients(self, received: Sequence[Any]) -> list[torch.Tensor | None]:
        """Run the call and its backward pass, and return the gradients of ``inputs``.

        Args:
            received: The gradients of the results of the program's call, None where there is none.
        """
        with torch.enable_grad():
            result = self.run()
        outputs, gradients = [], []
        for output, gradient in zip(result if isinstance(result, (list, tuple)) else (result,), received):
            if gradient is not None and isinstance(output, torch.Tensor) and output.requires_grad:
                outputs.append(output)
                gradients.append(gradient.to(output))
        leaves = list(self.leaves.values())
        if not outputs:
            return [None] * len(self.inputs)
        values = torch.autograd.grad(outputs, leaves, gradients, allow_unused=True)
        by_input = dict(zip(self.leaves, values))
        firsts = {number: place for place, number in reversed(list(enumerate(self.inputs)))}
        return [by_input[n] if firsts[n] == place else None for place, n in enumerate(self.inputs)]

    @contextmanager
    def _apply_settings(self) -> Iterator[None]:
        with ExitStack() as stack:
            for kind, enabled, dtype in self.autocast:
                on = enabled and not self.mode.raises_precision
                with suppress(RuntimeError):  # a device without autocast
                    stack.enter_context(torch.autocast(kind, dtype=dtype, enabled=on, cache_enabled=False))
            stack.enter_context(torch.autograd.graph.saved_tensors_hooks(_keep_tensor, _keep_tensor))
            yield


def create_repetition(
    call: InterceptedCall, mode: ChangeMode, noise: Mapping[str, float], *, keeps_graph: bool = False,
    only_gradients: bool = False,
) -> Repetition | None:  # fmt: skip
    """Return a second run of a call that has not run yet.

    Args:
        call: The call.
        mode: The change of its arguments.
        noise: The size of the noise, by dtype.
        keeps_graph: True to let gradients of the result reach the program's tensors.
        only_gradients: True to change only a tensor that needs a gradient.

    Returns:
        The second run; None if the mode changes none of the arguments.

    Raises:
        UnsupportedTensor: An argument is a tensor of a kind that cannot be copied.
    """
    tensors = list(iterate_torch_tensors((call.args, call.kwargs)))
    if not all(map(is_supported, tensors)):
        raise UnsupportedTensor
    builder = _Builder(mode, keeps_graph)
    if mode.raises_precision:
        if not tensors or (mode is ChangeMode.IMPROVE_PRECISION and not any(t.dtype in HALVES for t in tensors)):
            return None
    else:
        values = (*call.args, *call.kwargs.values())
        if not builder.choose(values, create_changer(mode, noise), only_gradients):
            return None
    args = builder.convert(call.args)
    kwargs = builder.convert(call.kwargs)
    if mode is ChangeMode.TO_CPU:
        args, kwargs = _move_to_cpu(args), {name: _move_to_cpu(value) for name, value in kwargs.items()}
    kinds = dict.fromkeys(["cpu", *(tensor.device.type for tensor in tensors)])
    inputs = [id(tensor) for tensor in tensors if tensor.requires_grad]
    return Repetition(call.function, args, kwargs, mode, read_autocast(kinds), builder.leaves, inputs)


class _Builder:
    """A builder of the arguments of one second run."""

    def __init__(self, mode: ChangeMode, keeps_graph: bool) -> None:
        self.leaves: dict[int, torch.Tensor] = {}
        self._mode = mode
        self._keeps_graph = keeps_graph
        self._with_leaves = torch.is_grad_enabled() and not keeps_graph
        self._target: torch.Tensor | None = None
        self._values: torch.Tensor | None = None
        self._copies: dict[int, torch.Tensor] = {}

    def choose(
        self,
        values: Iterable[Any],
        change: Callable[[torch.Tensor], torch.Tensor | None],
        only_gradients: bool,
    ) -> bool:
        """Choose the tensor to change, in the first argument with a floating tensor; return False if none."""

        def is_wanted(tensor: torch.Tensor) -> bool:
            return tensor.is_floating_point() and (tensor.requires_grad or not only_gradients)

        chosen = choose_change(values, torch.Tensor, is_wanted, lambda tensor: change(tensor.detach()))
        if chosen is not None:
            self._target, self._values = chosen
        return chosen is not None

    def convert(self, value: Any) -> Any:
        """Return an argument with copies in place of its tensors."""
        return map_tensors(self._convert, value, torch.Tensor)

    def _convert(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor is self._target and self._values is not None:
            values, self._values = lay_out_like(self._values, tensor), None
            return self._attach_to_leaf(values, tensor)
        copy = self._copies.get(id(tensor))
        if copy is None:
            copy = self._copies[id(tensor)] = self._copy_tensor(tensor)
        return copy

    def _copy_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        if not self._keeps_graph:
            return self._attach_to_leaf(self._raise_precision(copy_tensor(tensor)), tensor)
        raised = self._raise_precision(tensor)
        return raised.clone() if raised is tensor else raised

    def _raise_precision(self, tensor: torch.Tensor) -> torch.Tensor:
        if not self._mode.raises_precision:
            return tensor
        return raise_halves(tensor.to(CPU) if self._mode is ChangeMode.TO_CPU else tensor)

    def _attach_to_leaf(self, values: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
        if not (self._with_leaves and tensor.requires_grad):
            return values
        leaf = self.leaves.get(id(tensor))
        if leaf is None:
            leaf = self.leaves[id(tensor)] = create_leaf(values)
        return attach_leaf(values, leaf)


def _move_to_cpu(value: Any) -> Any:
    """Return an argument with the CPU in place of other devices."""
    if isinstance(value, torch.device):
        return CPU
    if isinstance(value, str):
        with suppress(RuntimeError):
            torch.device(value)
            return "cpu"
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(map(_move_to_cpu, value))
    return value


def read_autocast(kinds: Iterable[str]) -> list[tuple[str, bool, torch.dtype]]:
    """Return whether autocast is enabled for each type of device, and its dtype."""
    states = []
    for kind in kinds:
        try:
            states.append((kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)))
        except (AttributeError, TypeError):  # before torch 2.4
            if kind == "cpu":
                states.append((kind, torch.is_autocast_cpu_enabled(), torch.get_autocast_cpu_dtype()))
            elif kind == "cuda":
                old: Any = torch.is_autocast_enabled
                states.append((kind, old(), torch.get_autocast_gpu_dtype()))
        except RuntimeError:  # a device without autocast
            continue
    return states


def _keep_tensor(tensor: torch.Tensor) -> torch.Tensor:
    return tensor
