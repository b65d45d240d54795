"""A fused operator as a reference: the binding of a recorded call's arguments to a definition."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

FIRST_TENSOR = ("self", "input", "x")
"""Names of the first tensor in the schema, the Python binding and the documentation of an operator, which differ."""


class FusedOperator:
    """A fused operator, computed by a definition with the operator's own signature.

    The definition computes in the precision of its tensors, does not change them, and is differentiable by
    autograd wherever the operator is.

    Args:
        name: The name of the operator in torch_npu.
        definition: The function that computes it.
        grad_output: The index of the output that the recorded gradient belongs to; None for operators with
            a single output or without gradients.
        compare_outputs: The indices of the outputs to compare; None for all that the definition returns.

    Attributes:
        name: The name of the operator in torch_npu.
        grad_output: The index of the output that the recorded gradient belongs to, or None.
        compare_outputs: The indices of the outputs to compare, or None.
    """

    def __init__(
        self,
        name: str,
        definition: Callable[..., Any],
        grad_output: int | None = None,
        compare_outputs: tuple[int, ...] | None = None,
    ) -> None:
        self.name = name
        self.grad_output = grad_output
        self.compare_outputs = compare_outputs
        self._definition = definition
        self._signature = inspect.signature(definition)
        self._first = next(iter(self._signature.parameters))

    def forward(self, /, *arguments: Any, **keywords: Any) -> Any:
        """Return the output of the operator for these arguments.

        Raises:
            ValueError: The arguments do not match the signature of the operator, or each other.
        """
        for name in FIRST_TENSOR:
            if name in keywords and name not in self._signature.parameters:
                keywords[self._first] = keywords.pop(name)
        try:
            bound = self._signature.bind(*arguments, **keywords)
        except TypeError as error:
            raise ValueError(f"{self.name} received arguments that do not match its signature: {error}.") from None
        try:
            return self._definition(*bound.args, **bound.kwargs)
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from None
        except (RuntimeError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
            reason = str(error).partition("\n")[0].rstrip(".")
            raise ValueError(f"{self.name} cannot be computed from these arguments: {reason}.") from error
