"""A snapshot of a training between two steps, from which a step can run again (docs/watch.md#rerun)."""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from probe_pytorch import compat
from probe_pytorch.generators import iterate_default_generators


class Snapshot:
    """Copies of parameters, buffers, gradients, optimizer states, further objects and random states.

    Tensors are restored in place, so that references to them stay valid.

    Args:
        models: The models.
        optimizers: The optimizers.
        others: Objects with ``state_dict`` and ``load_state_dict``, such as schedulers and a GradScaler.

    Attributes:
        byte_count: Bytes of the copied tensors.
    """

    def __init__(self, models: Sequence[nn.Module], optimizers: Sequence[Optimizer], others: Sequence[Any]) -> None:
        self.byte_count = 0
        with compat.disable_modes(), torch.no_grad():
            self._tensors = [self._copy_tensor(tensor) for tensor in _list_tensors(models, optimizers)]
            self._gradients = [
                (tensor, tensor.grad, None if tensor.grad is None else self._copy_tensor(tensor.grad)[1])
                for tensor in _list_parameters(models, optimizers)
            ]
            self._modes = [(module, module.training) for model in models for module in model.modules()]
            self._optimizers = [(item, *self._copy_optimizer(item)) for item in optimizers]
            self._others = [(item, copy.deepcopy(item.state_dict())) for item in others]
            self._generators = [(item, item.get_state()) for _, item in iterate_default_generators()]
        self._python = random.getstate()
        self._numpy = _save_numpy_state()

    def _copy_tensor(self, tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values = tensor.detach()
        self.byte_count += values.numel() * values.element_size()
        return tensor, values.clone()

    def _copy_optimizer(self, optimizer: Optimizer) -> tuple[dict[Any, dict[str, Any]], list[dict[str, Any]]]:
        state = {
            parameter: {key: self._copy_value(value) for key, value in values.items()}
            for parameter, values in optimizer.state.items()
        }
        groups = [
            {key: list(value) if key == "params" else self._copy_value(value) for key, value in group.items()}
            for group in optimizer.param_groups
        ]
        return state, groups

    def _copy_value(self, value: Any) -> Any:
        """Return a tensor with its copy, or a copy of another value."""
        if isinstance(value, torch.Tensor):
            return _TensorCopy(*self._copy_tensor(value))
        return copy.deepcopy(value)

    def restore(self) -> None:
        """Set everything to the values of the snapshot, which can be restored again."""
        with compat.disable_modes(), torch.no_grad():
            for tensor, values in self._tensors:
                tensor.detach().copy_(values)
            for parameter, gradient, copied in self._gradients:
                if gradient is not None and copied is not None:
                    gradient.detach().copy_(copied)
                parameter.grad = gradient
            for module, is_training in self._modes:
                module.training = is_training
            for optimizer, state, groups in self._optimizers:
                self._restore_optimizer(optimizer, state, groups)
            for generator, values in self._generators:
                generator.set_state(values)
        random.setstate(self._python)
        if self._numpy is not None:
            self._numpy()
        for stateful, values in self._others:  # last, because their functions may raise
            stateful.load_state_dict(copy.deepcopy(values))

    def _restore_optimizer(
        self, optimizer: Optimizer, state: dict[Any, dict[str, Any]], groups: list[dict[str, Any]]
    ) -> None:
        optimizer.state.clear()
        for parameter, values in state.items():
            optimizer.state[parameter] = {key: _restore_value(value) for key, value in values.items()}
        for group, values in zip(optimizer.param_groups, groups):
            group.clear()
            group.update({k: list(v) if k == "params" else _restore_value(v) for k, v in values.items()})


class _TensorCopy:
    """A tensor and a copy of its values."""

    __slots__ = ("tensor", "values")

    def __init__(self, tensor: torch.Tensor, values: torch.Tensor) -> None:
        self.tensor = tensor
        self.values = values


def _restore_value(value: Any) -> Any:
    if isinstance(value, _TensorCopy):
        value.tensor.detach().copy_(value.values)
        return value.tensor
    return copy.deepcopy(value)


def copy_batch(value: Any) -> Any:
    """Return a copy of the tensors in nested lists, tuples and dicts; other objects are passed on."""
    if isinstance(value, torch.Tensor):
        with compat.disable_modes():
            return value.detach().clone().requires_grad_(value.requires_grad)
    if type(value) is dict:
        return {key: copy_batch(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(copy_batch(item) for item in value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(copy_batch(item) for item in value))
    return value


def count_batch_bytes(value: Any) -> int:
    """Return the bytes of the tensors that ``copy_batch`` copies."""
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    if type(value) is dict:
        return sum(map(count_batch_bytes, value.values()))
    return sum(map(count_batch_bytes, value)) if isinstance(value, (list, tuple)) else 0


def _list_tensors(models: Iterable[nn.Module], optimizers: Iterable[Optimizer]) -> list[torch.Tensor]:
    """Return all parameters and buffers, each once."""
    tensors = {id(tensor): tensor for tensor in _list_parameters(models, optimizers)}
    for model in models:
        tensors.update({id(tensor): tensor for tensor in model.buffers()})
    return list(tensors.values())


def _list_parameters(models: Iterable[nn.Module], optimizers: Iterable[Optimizer]) -> list[torch.Tensor]:
    parameters: dict[int, torch.Tensor] = {}
    for model in models:
        parameters.update({id(parameter): parameter for parameter in model.parameters()})
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            parameters.update({id(parameter): parameter for parameter in group["params"]})
    return list(parameters.values())


def _save_numpy_state() -> Callable[[], None] | None:
    """Return a function that restores the state of NumPy's global generator; None if it is not used."""
    if "numpy.random" not in sys.modules:
        return None
    import numpy as np

    state = np.random.get_state()
    return lambda: np.random.set_state(state)
