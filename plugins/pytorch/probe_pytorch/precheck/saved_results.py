"""Backwards that read a rounded result of their forward (docs/explain.md#yardstick)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def perturb_attention(function: Callable[..., Any], unit: float, generator: torch.Generator) -> Callable[..., Any]:
    """Return attention whose backward reads an output that is moved by a random part of its rounding.

    Fused kernels take the gradient of the scores, ``p (dp - d)``, with ``d = sum(gradient * output)`` of the
    output that the forward rounded. A term with the value zero adds what the change of ``d`` makes of the
    gradients: ``-d`` times the derivative of ``sum(p * scores)`` with constant ``p``, where
    ``sum(p * scores)`` is the scaled product of a query and the mean of the keys by its weights.

    Args:
        function: ``scaled_dot_product_attention``.
        unit: The largest relative change by rounding the output.
        generator: The source of random numbers.
    """

    def run_attention(query: Any, key: Any, value: Any, *rest: Any, **keywords: Any) -> Any:
        output = function(query, key, value, *rest, **keywords)
        mean = function(query.detach(), key.detach(), key, *rest, **keywords)
        scale = keywords.get("scale")
        scores = (query * mean).sum(-1, keepdim=True) * (query.shape[-1] ** -0.5 if scale is None else scale)
        part = torch.rand(output.shape, generator=generator, dtype=output.dtype).mul_(2 * unit).sub_(unit)
        return output - output.detach() * part * (scores - scores.detach())

    return run_attention
