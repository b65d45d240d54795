"""Gradients of a PyTorch model before each step of an optimizer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from probe_core.errors import UserError
from probe_watch.grad_probe.measurement import GradientStatistics, MeasuredGradient, compute_crc32, compute_shares
from probe_watch.grad_probe.recorder import Gradient, GradRecorder
from probe_watch.grad_probe.settings import Bound, GradSettings

_SQUARES_UNDERFLOW = 1e-15
"""Elements below this have squares that float32 cannot represent with full precision."""


class TorchGradRecorder(GradRecorder):
    """A recorder of the gradients of PyTorch models."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._models: tuple[nn.Module, ...] = ()

    def observe(self, model: nn.Module | Sequence[nn.Module] | None) -> Callable[[], None]:
        """Call ``record_step`` before each step of each optimizer."""
        models = (model,) if isinstance(model, nn.Module) else tuple(model or ())
        if not models:
            raise UserError(
                "monitor() needs the model whose gradients are recorded, not None.",
                "Write debugger.monitor(model).",
            )
        self._models = models
        self.warn_unknown([name for name, _ in self._iterate_parameters()])
        return self.process.hook_optimizers(lambda: self.record_step(self._iterate_gradients()))

    def _iterate_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield all parameters with their names, shared parameters once for each name."""
        for number, model in enumerate(self._models):
            prefix = f"{number}." if number else ""
            for name, parameter in model.named_parameters(remove_duplicate=False):
                yield f"{prefix}{name}", parameter

    def _iterate_gradients(self) -> Iterator[Gradient]:
        """Yield the gradients to record; a shared parameter under its first name unless another is listed."""
        yielded_ids: set[int] = set()
        for name, parameter in self._iterate_parameters():
            gradient = getattr(parameter, "main_grad", None)
            gradient = parameter.grad if gradient is None else gradient
            if gradient is None or not self.is_wanted(name):
                continue
            if not self.settings.parameters and id(parameter) in yielded_ids:
                continue
            yielded_ids.add(id(parameter))
            yield _create_gradient(name, gradient)


def _create_gradient(name: str, tensor: torch.Tensor) -> Gradient:
    local = _get_local_shard(tensor)
    shape = (*local.shape, 2) if local.is_complex() else tuple(local.shape)
    return Gradient(name, shape, lambda settings: measure(local, settings))


def _get_local_shard(tensor: torch.Tensor) -> torch.Tensor:
    """Return the shard of a distributed tensor that this process holds, or the tensor itself."""
    tensor = tensor.detach()
    to_local = getattr(tensor, "to_local", None)
    local: torch.Tensor = tensor if to_local is None else to_local()
    return local


@torch.no_grad()
def measure(gradient: torch.Tensor, settings: GradSettings) -> MeasuredGradient:
    """Return what is measured of a gradient, on its device.

    Half types are measured in float32. For NaN, infinities, empty and complex gradients see
    ``measurement.measure_array``. A sparse gradient is measured as the dense one.
    """
    gradient = gradient.detach()
    if gradient.layout is not torch.strided:
        gradient = gradient.to_dense()
    if gradient.is_complex():
        gradient = torch.view_as_real(gradient.resolve_conj())
    is_plain = gradient.dtype in (torch.float32, torch.float64)
    wide = gradient if is_plain else gradient.to(torch.float32)
    maximum, minimum, norm = _compute_extremes_and_norm(wide)
    interval_shares, zero_share = _count_intervals(wide, settings.bounds) if settings.has_intervals else ((), None)
    checksum = compute_crc32(wide.to(torch.float32).cpu().numpy()) if settings.has_checksum else ""
    return MeasuredGradient(
        GradientStatistics(tuple(gradient.shape), maximum, minimum, norm, checksum, interval_shares, zero_share),
        (wide > 0).cpu().numpy() if settings.has_directions else None,
    )


def _compute_extremes_and_norm(wide: torch.Tensor) -> tuple[float | None, float | None, float]:
    if not wide.numel():
        return None, None, 0.0
    values = torch.stack([wide.max(), wide.min(), torch.linalg.vector_norm(wide)])
    maximum, minimum, norm = values.tolist()
    largest = max(abs(maximum), abs(minimum))
    if math.isfinite(largest) and largest and (math.isinf(norm) or largest < _SQUARES_UNDERFLOW):
        norm = largest * torch.linalg.vector_norm(wide / largest).item()
    return maximum, minimum, norm


def _count_intervals(wide: torch.Tensor, bounds: Sequence[Bound]) -> tuple[tuple[float, ...], float]:
    total = wide.numel()
    counted = [(wide == 0).sum(), *((wide <= bound).sum() for bound in bounds)]
    if bounds:
        counted.append((wide > bounds[-1]).sum())
    zeros, *counts = torch.stack(counted).tolist()
    return compute_shares(counts[:-1], counts[-1] if counts else 0, total), zeros / total if total else 0.0
