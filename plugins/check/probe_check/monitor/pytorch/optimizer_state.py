"""The gradient and the moments of each parameter, as an optimizer of PyTorch stores them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from probe_check.monitor.pytorch.measurement import get_local_shard
from probe_core.errors import UserError

REFUSED_OPTIMIZERS = ("DeepSpeedZeroOptimizer", "DeepSpeedZeroOptimizer_Stage3", "BF16_Optimizer")
"""Classes of DeepSpeed, which keep gradients and moments in flat partitions."""
_GROUP_ATTRIBUTES = (
    ("float16_groups", "fp32_from_float16_groups"),
    ("model_float16_groups", "shard_fp32_from_float16_groups"),
)
"""Attributes of Megatron's optimizers: groups of half parameters, and of the float32 copies they update."""


@dataclass(frozen=True, slots=True)
class Moments:
    """The moments of a parameter.

    Attributes:
        first: ``exp_avg``; None if the optimizer has none.
        second: ``exp_avg_sq``; None if the optimizer has none.
        step: The number of steps that they contain; None if it is not known.
        betas: The decay rates.
        epsilon: The term added to the denominator.
    """

    first: torch.Tensor | None
    second: torch.Tensor | None
    step: float | None
    betas: tuple[float, float]
    epsilon: float

    def compute_update_and_ratio(self) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Return the update of Adam without its learning rate, with and without epsilon; None if unknown."""
        if self.first is None or self.second is None or not self.step:
            return None
        first = self.first / (1 - self.betas[0] ** self.step)
        root = torch.sqrt(self.second / (1 - self.betas[1] ** self.step))
        return first / (root + self.epsilon), first / root


def refuse_optimizer(optimizer: Any) -> None:
    """Raise a UserError if gradients and moments of an optimizer belong to no parameter.

    Raises:
        UserError: The optimizer is one of DeepSpeed.
    """
    name = type(optimizer).__name__
    if name in REFUSED_OPTIMIZERS:
        raise UserError(
            f"The optimizer {name} of DeepSpeed keeps gradients and moments in flat partitions, which the "
            "monitor does not divide into parameters.",
            'Set "wg_distribution", "mv_distribution" and "mg_direction" to false; activations and '
            "parameters can be monitored.",
        )


def find_gradient(parameter: torch.Tensor, *, has_main_grad: bool) -> torch.Tensor | None:
    """Return the gradient that an optimizer uses: ``main_grad`` if the parameter has one, else ``grad``."""
    main = getattr(parameter, "main_grad", None) if has_main_grad else None
    gradient = parameter.grad if main is None else main
    return None if gradient is None else get_local_shard(gradient)


class OptimizerStates:
    """The states of an optimizer, found through the wrappers of Megatron.

    Args:
        optimizer: The optimizer.
    """

    def __init__(self, optimizer: Any) -> None:
        self._parts = list(_iterate_parts(optimizer))
        self._copies: dict[int, torch.Tensor] = {}
        for part in self._parts:
            for model_groups, copy_groups in _GROUP_ATTRIBUTES:
                self._copies |= _map_copies(getattr(part, model_groups, ()), getattr(part, copy_groups, ()))

    def find_moments(self, parameter: torch.Tensor) -> Moments | None:
        """Return the moments of a parameter; None before its first step."""
        parameter = self._copies.get(id(parameter), parameter)
        for part in self._parts:
            holder = part if hasattr(part, "state") else getattr(part, "optimizer", None)
            states: Mapping[Any, Any] = getattr(holder, "state", {})
            if parameter in states:
                return _read_moments(states[parameter], holder)
        return None


def _iterate_parts(optimizer: Any) -> Iterator[Any]:
    yield from getattr(optimizer, "chained_optimizers", None) or (optimizer,)


def _map_copies(model_groups: Sequence[Any], copy_groups: Sequence[Any]) -> dict[int, torch.Tensor]:
    return {
        id(parameter): copy
        for group, copies in zip(model_groups or (), copy_groups or ())
        for parameter, copy in zip(group, copies)
        if copy is not None
    }


def _read_moments(state: Mapping[str, Any], optimizer: Any) -> Moments:
    groups = getattr(optimizer, "param_groups", None) or [{}]
    defaults = getattr(optimizer, "defaults", {})
    step = state.get("step", groups[0].get("step"))
    first, second = (
        None if (tensor := state.get(name)) is None else get_local_shard(tensor) for name in ("exp_avg", "exp_avg_sq")
    )
    return Moments(
        first=first,
        second=second,
        step=None if step is None else float(step),
        betas=tuple(defaults.get("betas", (0.9, 0.999)))[:2],
        epsilon=float(defaults.get("eps", 1e-8)),
    )


def compute_sign_agreement(gradient: torch.Tensor, moment: torch.Tensor) -> torch.Tensor:
    """Return the share of elements whose gradient and first moment have the same sign.

    An element that is zero in one of them counts as half. An empty gradient agrees.
    """
    if not moment.numel():
        return torch.ones(())
    total = (gradient.sign() * moment.to(gradient.dtype).sign()).sum(dtype=torch.float32)
    return (total / moment.numel() + 1) / 2
