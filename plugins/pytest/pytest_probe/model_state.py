"""The seeds and the states of models from which each run of a test begins."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import torch
from torch import nn

SEED = 0
"""Number that all random generators start from before a test."""


def set_seeds() -> None:
    """Set the seeds of Python, NumPy (if it is imported) and torch."""
    import sys

    random.seed(SEED)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(SEED)
    torch.manual_seed(SEED)


def save_state(model: nn.Module) -> Callable[[], None]:
    """Return a function that restores the parameters, buffers and gradients of a model as they are now."""
    tensors = [(tensor, tensor.detach().clone()) for tensor in itertools.chain(model.parameters(), model.buffers())]
    gradients = [(p, None if p.grad is None else p.grad.detach().clone()) for p in model.parameters()]

    def restore() -> None:
        with torch.no_grad():
            for tensor, saved in tensors:
                tensor.copy_(saved)
        for parameter, gradient in gradients:
            parameter.grad = None if gradient is None else gradient.clone()

    return restore
