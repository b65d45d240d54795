"""Private API of MindSpore that shows forward and backward passes, written for MindSpore 2.10."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mindspore import Parameter, Tensor
from mindspore.ops.composite import base

passes: Any = base
"""The module that holds the functions which run ``value_and_grad`` and ``GradOperation``."""

FORWARD = "_pynative_func_grad_forward"
"""The function that runs a function that is differentiated; its first argument."""

BACKWARD = "_pynative_func_grad_backward"
"""The function that runs the backward pass afterwards."""


def shows_passes() -> bool:
    """Return True if the forward and backward passes of a program can be observed."""
    return hasattr(passes, FORWARD) and hasattr(passes, BACKWARD)


class Pass:
    """The arguments of a backward pass.

    Args:
        args: The arguments of the function named by ``BACKWARD``.
    """

    def __init__(self, args: Sequence[Any]) -> None:
        _, self._gradient_of, self._weights, _, self.has_aux = args[:5]

    @property
    def may_be_scaled(self) -> bool:
        """True if the program passes the gradient of the loss, which may hold a loss scale."""
        return bool(self._gradient_of.sens_param)

    def gradients(self, result: Any) -> list[tuple[str, Any]]:
        """Return the names of parameters with their gradients, from the result of the pass."""
        if self._weights is None or not self._gradient_of.get_by_list:
            return []
        by_input = self._gradient_of.get_all or getattr(self._gradient_of, "get_by_position", False)
        gradients = result[1] if by_input else result
        is_single = isinstance(self._weights, Parameter)
        weights = [self._weights] if is_single else list(self._weights)
        values = [gradients] if is_single or isinstance(gradients, Tensor) else list(gradients)
        if len(values) != len(weights) or not all(isinstance(value, Tensor) for value in values):
            return []  # not one gradient for each parameter
        return [(str(weight.name), value) for weight, value in zip(weights, values)]
