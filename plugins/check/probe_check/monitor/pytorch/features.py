"""Features of attention and linear layers: entropy, largest probability, stable rank, spectral norm."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from probe_check.monitor.names import Namer, list_spellings
from probe_check.monitor.pytorch.activations import is_recomputing
from probe_check.monitor.pytorch.hooks import Observation, TrainingHooks
from probe_check.monitor.pytorch.measurement import TensorMeasurement
from probe_check.monitor.pytorch.values import ValueIdentity
from probe_check.monitor.settings import MonitorSettings
from probe_check.monitor.tasks import Task

POWER_ITERATIONS = 3
"""Number of power iterations. Source: the figures of msprobe."""
_START_VECTOR_SEED = 1234
"""Seed of the start vector, which is drawn from a separate generator."""

Receive = Callable[[ValueIdentity, TensorMeasurement], None]
"""A receiver of features."""


@torch.no_grad()
def compute_attention_features(query: torch.Tensor, key: torch.Tensor, order: str) -> TensorMeasurement:
    """Return the mean entropy of causal attention, and the mean of the largest probability of each row.

    They are those of the first head of the first sample: rows of ``softmax(q k^T / sqrt(d))`` below the
    diagonal. Query and key must have four dimensions.

    Args:
        query: The query.
        key: The key.
        order: The order of the dimensions, ``s,b,h,d`` or ``b,s,h,d``.
    """
    if query.dim() != 4 or key.dim() != 4:
        return TensorMeasurement([math.nan, math.nan], tuple(query.shape), str(query.dtype))
    first = (slice(None), 0, 0) if order == "s,b,h,d" else (0, slice(None), 0)
    rows, columns = query.detach()[first].float(), key.detach()[first].float()
    scores = rows @ columns.T / math.sqrt(query.shape[-1])
    count, width = scores.shape
    mask = torch.ones(count, width, dtype=torch.bool, device=scores.device).tril(width - count)
    logarithms = scores.masked_fill(~mask, -math.inf).log_softmax(1)
    probabilities = logarithms.exp()
    entropy = -torch.nansum(probabilities * logarithms, 1).mean()
    return TensorMeasurement([entropy, probabilities.amax(1).mean()], tuple(query.shape), str(query.dtype))


@torch.no_grad()
def compute_linear_features(weight: torch.Tensor) -> TensorMeasurement:
    """Return the stable rank of a matrix (Frobenius norm / spectral norm), and its spectral norm.

    The spectral norm is that of a few power iterations, and thus a lower bound. It is 0 for a matrix of
    zeros, as is the rank.
    """
    matrix = weight.detach().float()
    vector = torch.randn(matrix.shape[1], generator=torch.Generator().manual_seed(_START_VECTOR_SEED)).to(matrix.device)
    vector = vector / vector.norm()
    square = matrix.T @ matrix
    largest = vector.new_zeros(())
    for _ in range(POWER_ITERATIONS):
        following = square @ vector
        largest = following @ vector
        length = following.norm()
        vector = torch.where(length > 0, following / length, vector)
    spectral = largest.clamp(min=0).sqrt()
    rank = torch.where(spectral > 0, torch.linalg.vector_norm(matrix) / spectral, 0.0)
    return TensorMeasurement([rank, spectral], tuple(weight.shape), str(weight.dtype))


def find_matrix(module: nn.Module) -> torch.Tensor | None:
    """Return the weight of a linear layer: a matrix ``weight`` or ``wg``, unless it is an embedding."""
    is_embedding = isinstance(module, nn.Embedding) or any(
        hasattr(module, name) for name in ("num_embeddings", "vocab_start_index")
    )
    if is_embedding:
        return None
    weights = (getattr(module, name, None) for name in ("weight", "wg"))
    return next((w for w in weights if isinstance(w, torch.Tensor) and w.dim() == 2), None)


class FeatureHooks(TrainingHooks):
    """The hooks on attention and linear layers.

    Args:
        models: The models.
        settings: The configuration; an empty list of linear layers in ``l2_targets`` selects all layers.
        receive: The receiver of features.
        observation: The conditions of the observation.
    """

    def __init__(
        self, models: Sequence[nn.Module], settings: MonitorSettings, receive: Receive, observation: Observation
    ) -> None:
        super().__init__()
        self._receive = receive
        self._observation = observation
        self._dimension_order = settings.dimension_order
        self._counts: dict[tuple[str, int, str], int] = {}
        for model_index, model in enumerate(models):
            for hook, targets in settings.feature_targets.items():
                namer = Namer(is_short=settings.has_short_names)
                for name, module in model.named_modules():
                    shown_name = namer.choose_name(model_index, name)
                    if not targets or set(targets) & set(list_spellings(model_index, name)):
                        self._hook(module, hook, model_index, shown_name)

    def _hook(self, module: nn.Module, hook: str, model_index: int, name: str) -> None:
        if hook != "attention_hook" and find_matrix(module) is None:
            return
        measure = self._measure_attention if hook == "attention_hook" else self._measure_linear
        micro_steps = self._observation.micro_steps

        def observe_forward(module: nn.Module, inputs: Any, _: Any) -> None:
            if not module.training or not self._observation.is_active() or is_recomputing():
                return
            key = hook, model_index, name
            count = self._counts.get(key, 0)
            self._counts[key] = (count + 1) % micro_steps
            try:
                measure(module, inputs, model_index, name, count)
            except Exception as error:  # of the framework: the forward must go on
                self._observation.fail(error)

        self._add_forward_hook(module, observe_forward)

    def _measure_attention(self, _: nn.Module, inputs: Sequence[Any], model_index: int, name: str, count: int) -> None:
        tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
        if len(tensors) >= 2:
            features = compute_attention_features(tensors[0], tensors[1], self._dimension_order)
            self._receive(ValueIdentity(Task.ATTENTION, model_index, f"{name}.attention", count), features)

    def _measure_linear(self, module: nn.Module, _: Any, model_index: int, name: str, count: int) -> None:
        weight = find_matrix(module)
        if weight is not None and count == self._observation.micro_steps - 1:
            features = compute_linear_features(weight)
            self._receive(ValueIdentity(Task.LINEAR, model_index, f"{name}.linear"), features)

    def end_step(self) -> None:
        """Count micro-batches from 0 again."""
        self._counts.clear()
