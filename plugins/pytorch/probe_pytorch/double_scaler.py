"""Operators of gradient scalers, whose kernels accept float32 only, for scripts that run in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch


def _unscale(gradients: Sequence[torch.Tensor], found_inf: torch.Tensor, inverse: torch.Tensor) -> None:
    """Multiply gradients by ``inverse``; set ``found_inf`` to 1 if one of them holds nan or inf."""
    for gradient in gradients:
        if not bool(torch.isfinite(gradient).all()):
            found_inf.fill_(1.0)
        gradient.mul_(inverse.to(gradient.dtype))


def _update(
    scale: torch.Tensor,
    tracker: torch.Tensor,
    found_inf: torch.Tensor,
    growth: float,
    backoff: float,
    interval: int,
) -> torch.Tensor:
    """Update the scale of the loss as ``torch._amp_update_scale_`` does."""
    if float(found_inf):
        scale.mul_(backoff)
        tracker.zero_()
    elif int(tracker) + 1 == interval:
        scale.mul_(growth)
        tracker.zero_()
    else:
        tracker.add_(1)
    return scale


SCALER_OPERATORS: Mapping[str, Callable[..., Any]] = {
    "_amp_foreach_non_finite_check_and_unscale_": _unscale,
    "_amp_update_scale_": _update,
}
"""Replacements of operators by their names."""
