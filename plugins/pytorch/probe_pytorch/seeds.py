"""``seed_all``, which seeds all sources of randomness (docs/configuration.md#seed-all)."""

from __future__ import annotations

import functools
import os
import random
from collections.abc import Callable

import numpy as np
import torch
from probe_recording.api import Config

from probe_core.errors import UserError

MAX_SEED = 2**32 - 1
DEFAULT_SEED = 1234
"""Used if a configuration sets ``is_deterministic`` and not ``seed``."""
DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d")
DROPOUT_MODULES = ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d")


def seed_all(seed: int = 1234, mode: bool = False, rm_dropout: bool = False) -> None:
    """Set the random seeds of Python, numpy, torch and the device, and turn cuDNN off.

    Args:
        seed: Any number from 0 to 2**32 - 1.
        mode: True to use deterministic algorithms; torch then raises for operators that have none.
        rm_dropout: True to set the probability of the dropouts of torch that are built or called from now on to 0
            (``dropout`` and ``dropout1d`` to ``dropout3d``, as functions and as modules).

    Raises:
        UserError: An argument has a wrong type or value.
    """
    if type(seed) is not int or not 0 <= seed <= MAX_SEED:
        raise UserError(
            f"seed must be a whole number from 0 to {MAX_SEED}, not {seed!r:.40}.",
            "For example seed_all(seed=1234).",
        )
    for name, value in (("mode", mode), ("rm_dropout", rm_dropout)):
        if not isinstance(value, bool):
            raise UserError(f"{name} must be True or False, not {value!r:.40}.", f"For example seed_all({name}=True).")
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
    if mode or torch.are_deterministic_algorithms_enabled():
        torch.use_deterministic_algorithms(mode)  # which imports torch's compiler
    os.environ["HCCL_DETERMINISTIC"] = str(mode)
    if mode:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    if rm_dropout:
        _remove_dropout()


def _remove_dropout() -> None:
    """Replace torch's dropout functions and the constructors of its dropout modules by ones with p = 0."""
    functional = torch.nn.functional
    for name in DROPOUTS:
        original = getattr(functional, name)
        if not getattr(original, "keeps_all", False):
            setattr(functional, name, _create_keeping_function(original))
    for name in DROPOUT_MODULES:
        _patch_module(getattr(torch.nn, name))


def _create_keeping_function(function: Callable[..., object]) -> object:
    @functools.wraps(function)
    def keep(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> object:
        return function(input, 0.0, training, inplace)

    keep.keeps_all = True  # type: ignore[attr-defined]
    return keep


def _patch_module(module: type[torch.nn.Module]) -> None:
    original = module.__init__
    if getattr(original, "keeps_all", False):
        return

    def keep(self: torch.nn.Module, p: float = 0.5, inplace: bool = False) -> None:
        original(self, 0.0, inplace)

    keep.keeps_all = True  # type: ignore[attr-defined]
    module.__init__ = keep  # type: ignore[method-assign]


def seed_as_configured(config: Config) -> None:
    """Set all seeds, and use deterministic algorithms, if a configuration asks for it."""
    if config.seed is not None or config.deterministic:
        seed_all(DEFAULT_SEED if config.seed is None else config.seed, config.deterministic)
