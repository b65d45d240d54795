"""A fused operator as a reference: the binding of a recorded call's arguments to a definition."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

FIRST_TENSOR = ("self", "input", "x")
"""Names of the first tensor: in the operator's schema, its Python binding and its documentation."""


class FusedOperator:
    """A fused operator, computed by a definition with the operator's own signature.

    The definition computes in the precision of its tensors, does not change them, and is differentiable by
    autograd wherever the operator is; there is no other backward.

    Args:
        name: The name of the operator in torch_npu.
        definition: The function that computes it.
        grad_output: See the attribute.
        compare_outputs: See the attribute.

    Attributes:
        name: The name of the operator in torch_npu.
        grad_output: The number of the output that the recorded gradient belongs to; None for operators with
            one output or without gradients.
        compare_outputs: The numbers of the outputs to compare; None for all that the definition returns.
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
            ValueError: The arguments are not those of the operator, or do not fit together; the text says
                why.
        """
        for name in FIRST_TENSOR:
            if name in keywords and self._takes_no(name):
                keywords[self._first] = keywords.pop(name)
        try:
            bound = self._signature.bind(*arguments, **keywords)
        except TypeError as error:
            raise ValueError(f"{self.name} was called with other arguments than it takes: {error}.") from None
        try:
            return self._definition(*bound.args, **bound.kwargs)
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from None
        except (RuntimeError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
            reason = str(error).partition("\n")[0].rstrip(".")
            raise ValueError(f"{self.name} cannot be computed from these arguments: {reason}.") from error

    def _takes_no(self, name: str) -> bool:
        return name not in self._signature.parameters
