"""The comparison of two outputs, on the device or with the CPU (docs/free-benchmark.md#rules)."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from probe_watch.free_benchmark.array_comparison import CHUNK_BYTES, is_close_to_cpu
from probe_watch.free_benchmark.array_perturbations import Array
from probe_watch.free_benchmark.outcome import OutputComparison, OutputDifference
from probe_watch.free_benchmark.outputs import NotComparable
from probe_watch.free_benchmark.pytorch_perturbations import format_dtype
from probe_watch.free_benchmark.thresholds import CpuLimits


def compute_norm_ratio(original: torch.Tensor, changed: torch.Tensor, floor: float) -> float | OutputDifference:
    """Return the largest ratio of two elements at the same place, in either direction.

    Magnitudes below ``floor`` count as ``floor``. Elements that are nan in both tensors, or the same
    infinity, are equal. An empty tensor has the ratio 1. The division is made in the dtype of ``changed``,
    as msprobe does, so that the figures are the same.

    Args:
        original: The output of the program.
        changed: The output of the second run, to whose dtype and device the other one is converted.
        floor: The smallest magnitude that is distinguished from 0.

    Returns:
        The ratio; ``Difference.SIGN`` if an element changes its sign and the product is below
        ``-floor ** 2``; ``Difference.NOT_FINITE`` if an element is finite in one tensor only.

    Raises:
        NotComparable: The shapes differ.

    Example::

        >>> norm_ratio(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 1.0]), 1e-4)
        2.0
    """
    if original.shape != changed.shape:
        raise NotComparable("shapes differ")
    original = original.to(changed)
    if changed.is_complex():
        original, changed = torch.view_as_real(original), torch.view_as_real(changed)
    if not changed.is_floating_point():
        original, changed = original.float(), changed.float()  # products of integers overflow
    ratio = 1.0
    size = max(1, CHUNK_BYTES // changed.element_size())
    chunks = (torch.split(tensor.reshape(-1), size) for tensor in (original, changed))
    for first, second in zip(*chunks):
        part = _compute_chunk_ratio(first, second, floor)
        if isinstance(part, OutputDifference):
            return part
        ratio = max(ratio, part)
    return ratio


def _compute_chunk_ratio(original: torch.Tensor, changed: torch.Tensor, floor: float) -> float | OutputDifference:
    if not changed.numel():
        return 1.0
    if changed.is_floating_point():
        finite = original.isfinite() & changed.isfinite()
        if not bool(finite.all()):
            is_same = (original == changed) | (original.isnan() & changed.isnan())
            if not bool((finite | is_same).all()):
                return OutputDifference.NOT_FINITE
            ones = torch.ones_like(changed)
            original, changed = torch.where(finite, original, ones), torch.where(finite, changed, ones)
    if float((original * changed).min()) < -(floor**2):
        return OutputDifference.SIGN
    ratios = original.abs().clamp(min=floor) / changed.abs().clamp(min=floor)
    largest, least = float(ratios.max()), float(ratios.min())
    return max(largest, 1 / least if least else math.inf)


def _copy_to_host(tensor: torch.Tensor) -> Array:
    """Return a copy of a tensor as float64, or complex128."""
    wide = torch.complex128 if tensor.is_complex() else torch.float64
    array: Array = tensor.detach().cpu().resolve_conj().resolve_neg().to(wide).numpy()
    return array


class TorchComparison:
    """The comparison of tensors of torch."""

    tensor_type: type = torch.Tensor

    def name_dtype(self, tensor: torch.Tensor) -> str:
        """Return the name of a tensor's dtype without ``torch.``."""
        return format_dtype(tensor.dtype)

    def is_inexact(self, tensor: torch.Tensor) -> bool:
        """Return True for floating and complex tensors."""
        return tensor.is_floating_point() or tensor.is_complex()

    @torch.no_grad()
    def compare_on_device(
        self, original: torch.Tensor, changed: torch.Tensor, floor: float, limit: float
    ) -> OutputComparison:
        """Return the outcome of the comparison on the device.

        Args:
            original: The output of the program.
            changed: The output of the second run.
            floor: The smallest magnitude that is distinguished from 0.
            limit: The largest ratio of consistent outputs.
        """
        outcome = OutputComparison(True, str(original.dtype), str(original.shape), OutputDifference.RATIO)
        ratio = compute_norm_ratio(original, changed, floor)
        if isinstance(ratio, OutputDifference):
            return replace(outcome, consistent=False, difference=ratio)
        return replace(outcome, consistent=ratio <= limit, ratio=ratio)

    @torch.no_grad()
    def compare_with_cpu(self, original: torch.Tensor, reference: torch.Tensor, limits: CpuLimits) -> OutputComparison:
        """Return the outcome of the comparison with the CPU, which has no ratio."""
        consistent = is_close_to_cpu(_copy_to_host(original), _copy_to_host(reference), limits)
        return OutputComparison(consistent, str(original.dtype), str(original.shape))
