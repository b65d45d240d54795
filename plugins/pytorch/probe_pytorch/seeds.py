"""``seed_all``: every source of randomness that the seeds of this format set (spec/dump 12)."""

from __future__ import annotations

import functools
import os
import random
from collections.abc import Callable

import numpy as np
import torch

from probe_core.errors import UserError

LARGEST_SEED = 2**32 - 1
DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d")
DROPOUT_MODULES = ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d")


def seed_all(seed: int = 1234, mode: bool = False, rm_dropout: bool = False) -> None:
    """Set all seeds, and with ``mode`` choose deterministic algorithms.

    Args:
        seed: From 0 to 2**32 - 1.
        mode: True uses deterministic algorithms; an operator that has none then raises.
        rm_dropout: True sets the probability of dropouts built or called from now on to 0.

    Raises:
        UserError: An argument of the wrong type or size.
    """
    if type(seed) is not int or not 0 <= seed <= LARGEST_SEED:
        raise UserError(
            f"seed must be a whole number from 0 to {LARGEST_SEED}, not {seed!r:.40}.", "Change it."
        )
    for name, value in (("mode", mode), ("rm_dropout", rm_dropout)):
        if not isinstance(value, bool):
            raise UserError(f"{name} must be True or False, not {value!r:.40}.", "Pass a bool.")
    os.environ["PYTHONHASHSEED"] = str(seed)
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)
    npu = getattr(torch, "npu", None)
    if npu is not None and npu.is_available():
        npu.manual_seed(seed)
        npu.manual_seed_all(seed)
    torch.backends.cudnn.enabled = False
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    torch.use_deterministic_algorithms(mode)
    os.environ["HCCL_DETERMINISTIC"] = str(mode)
    if mode:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    if rm_dropout:
        _remove_dropout()


def _remove_dropout() -> None:
    """Let the functions and modules of torch that drop out keep everything."""
    functional = torch.nn.functional
    for name in DROPOUTS:
        original = getattr(functional, name)
        if not getattr(original, "keeps_all", False):
            setattr(functional, name, _keeping(original))
    for name in DROPOUT_MODULES:
        _keeping_module(getattr(torch.nn, name))


def _keeping(function: Callable[..., object]) -> object:
    @functools.wraps(function)
    def keep(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> object:
        return function(input, 0.0, training, inplace)

    keep.keeps_all = True  # type: ignore[attr-defined]
    return keep


def _keeping_module(module: type[torch.nn.Module]) -> None:
    original = module.__init__
    if getattr(original, "keeps_all", False):
        return

    def keep(self: torch.nn.Module, p: float = 0.5, inplace: bool = False) -> None:
        original(self, 0.0, inplace)

    keep.keeps_all = True  # type: ignore[attr-defined]
    module.__init__ = keep  # type: ignore[method-assign]
