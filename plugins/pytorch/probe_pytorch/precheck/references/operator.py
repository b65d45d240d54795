"""A fused operator as a reference: binds the arguments of a recorded call to the operator's definition."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

FIRST_TENSOR = ("self", "input", "x")
"""What the first tensor is called: in the operator's schema, by its Python binding, in its documentation."""


class FusedOperator:
    """A definition of a fused operator with the signature of the operator itself.

    The definition computes in the precision of the tensors that it is given, leaves them as they are, and is
    differentiable by autograd wherever the operator is; there is no other backward.

    Attributes:
        name: The operator's name in torch_npu.
        grad_output: For an operator of several outputs, which of them the recorded gradient belongs to; None
            where there is one output, or no gradient.
        compare_outputs: Which outputs are worth comparing; None for all that the definition gives.
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
        """What the operator gives out for these arguments.

        Raises:
            ValueError: The arguments are not the operator's, or do not fit together; one sentence says why.
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
